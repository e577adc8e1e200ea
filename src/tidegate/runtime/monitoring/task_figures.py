"""The figures of one task over the epochs of a run: totals that grow, and last values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.core.ids import TaskId
from tidegate.metrics.catalog import WRITE_BUFFER_USAGE
from tidegate.metrics.metric import Kind
from tidegate.metrics.native import NATIVE
from tidegate.runtime.exchange.messages import StateAccess, TaskAck
from tidegate.runtime.monitoring.run_report import StateSizeLine, TaskLine
from tidegate.state.disk.state_sizes import scaled

_KEYS = "estimate-num-keys"


class TaskFigures:
    """Changed in place by the thread that runs epochs, so an epoch costs no more than its acknowledgements. A reader in another
    thread may see a total of this epoch next to one of the epoch before.
    """

    __slots__ = (
        "busy_ms",
        "bytes_in",
        "bytes_out",
        "failed_rows",
        "fired_timers",
        "held_ms",
        "host",
        "host_name",
        "idle_ms",
        "last_rows_in",
        "last_rows_out",
        "late_dropped",
        "memory",
        "metrics",
        "pending_timers",
        "restore_ms",
        "rests",
        "rows_in",
        "rows_out",
        "seen",
        "state_bytes",
        "state_sizes",
        "store",
        "uploads_failed",
        "uploads_started",
    )

    def __init__(self, first: TaskAck) -> None:
        self.metrics = first.metrics
        """What it measured in its last epoch. Not the acknowledgement, which may hold much output."""
        self.host = first.host
        """Where it ran."""
        self.host_name = first.host_name
        self.seen = 0
        """The number of its last epoch in this run, counted from 1."""
        self.rows_in = self.rows_out = self.late_dropped = 0
        self.bytes_in = self.bytes_out = self.fired_timers = self.failed_rows = 0
        self.busy_ms = self.idle_ms = self.held_ms = 0
        self.last_rows_in = self.last_rows_out = 0
        self.uploads_started = self.uploads_failed = 0
        self.state_bytes = self.restore_ms = 0
        self.state_sizes: dict[str, dict[str, int]] = {}
        """Estimated bytes by operator and state. As old as the last estimate; their sum is about `state_bytes` then."""
        self.rests = False
        """Whether it has only restored its state since."""
        self.pending_timers: dict[str, int] = {}
        """By operator, as of the last epoch that counted them."""
        self.memory: dict[str, float] = {}
        """Figures of the memory of state, each as it was last measured."""
        self.store: dict[str, float] = {}
        """What the state backend reported: the last value of a gauge, the total of a counter."""
        self.add(first)

    def add(self, ack: TaskAck) -> None:
        found = ack.metrics
        self.metrics = found
        self.host = ack.host
        self.host_name = ack.host_name
        self.rests = False

        self.rows_in += ack.rows_in
        self.rows_out += ack.rows_out
        self.late_dropped += ack.late_dropped
        self.bytes_in += found.bytes_in
        self.bytes_out += found.bytes_out
        self.fired_timers += found.fired_timers
        self.failed_rows += found.failed_rows
        self.busy_ms += found.busy_ms
        self.idle_ms += found.idle_ms
        self.held_ms += found.held_ms

        self.last_rows_in = ack.rows_in
        self.last_rows_out = ack.rows_out
        self.uploads_started += found.uploads_started
        self.uploads_failed += found.uploads_failed

        self.state_bytes = ack.state_bytes or self.state_bytes
        self.restore_ms = found.restore_ms or self.restore_ms

        # Not every epoch measures these: an epoch without them leaves the last values.
        if found.pending_timers:
            self.pending_timers = found.pending_timers
        if found.state_sizes:
            self.state_sizes = found.state_sizes
        if found.memory:
            self.memory = {**self.memory, **found.memory}
        if found.store:
            # A counter is what one attempt counted, so those of all attempts add up; a gauge replaces the last one.
            counted = {n: v for n, v in self.store.items() if n in NATIVE and NATIVE[n].kind is Kind.COUNTER}
            self.store = {name: value + counted.get(name, 0.0) for name, value in found.store.items()}

    def shares(self, period_ms: int) -> tuple[float, float, float]:
        """Return busy, idle and held as shares of `period_ms`, the time since the epoch before. A task that does not run is
        idle."""
        if self.rests:
            return 0.0, 1.0, 0.0
        found = self.metrics
        # The task measured by its own clock, and may have worked longer than the driver believes.
        whole_ms = max(1, period_ms, found.busy_ms + found.idle_ms + found.held_ms)
        busy, held = found.busy_ms / whole_ms, found.held_ms / whole_ms
        return busy, 1 - busy - held, held

    def line(self, task: TaskId, period_ms: int) -> TaskLine:
        """The task in the report of the run."""
        found = self.metrics
        busy, idle, held = self.shares(period_ms)
        return TaskLine(
            task=str(task),
            level=task.level,
            slot=int(task.slot),
            host=self.host,
            host_name=self.host_name,
            busy=busy,
            idle=idle,
            held=held,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
            fired_timers=self.fired_timers,
            late_dropped=self.late_dropped,
            state_bytes=self.state_bytes,
            resident_bytes=found.resident_bytes,
            restore_ms=self.restore_ms,
            seal_ms=found.seal_ms,
        )

    @property
    def is_measured(self) -> bool:
        """Whether the task of the last epoch measured its time."""
        found = self.metrics
        return found.started_ms + found.busy_ms + found.idle_ms + found.held_ms > 0


@dataclass(slots=True)
class LevelState:
    """The state of all tasks of a level."""

    keys: int = -1
    """Entries, as RocksDB estimates them; -1 if the job does not ask it to."""
    memory_bytes: int = -1
    """What RocksDB holds in memory for writes; -1 without RocksDB. Its cache belongs to a process, and to all levels in it."""
    seal_ms: int = 0
    """How long the tasks took in their last epoch to seal their versions, added up."""
    pending_timers: Counter[str] = field(default_factory=Counter)
    """By operator."""

    def add(self, task: TaskFigures) -> None:
        """Add a task."""
        self.seal_ms += task.metrics.seal_ms
        self.pending_timers.update(task.pending_timers)
        if _KEYS in task.store:
            self.keys = max(0, self.keys) + round(task.store[_KEYS])
        if WRITE_BUFFER_USAGE.name in task.memory:
            self.memory_bytes = max(0, self.memory_bytes) + round(task.memory[WRITE_BUFFER_USAGE.name])


def state_of_levels(tasks: Mapping[TaskId, TaskFigures]) -> dict[int, LevelState]:
    """Add up the state of these tasks by level."""
    levels: dict[int, LevelState] = {}
    for task, figures in tasks.items():
        levels.setdefault(task.level, LevelState()).add(figures)
    return levels


def sizes_of_states(tasks: Mapping[TaskId, TaskFigures]) -> tuple[StateSizeLine, ...]:
    """Add the sizes of states over these tasks, the largest first.

    Tasks look at their state once in a while, and some may not have looked yet. So only the shares of their estimates count: what
    is divided is the present size of all tasks of the level.
    """
    sizes: Counter[int] = Counter()
    shares: dict[int, Counter[tuple[str, str]]] = {}
    for task, figures in tasks.items():
        sizes[task.level] += figures.state_bytes
        found = shares.setdefault(task.level, Counter())
        for operator, states in figures.state_sizes.items():
            found.update({(operator, state): size for state, size in states.items()})
    lines = [
        StateSizeLine(operator=operator, state=state, bytes=size)
        for level, found in shares.items()
        for (operator, state), size in scaled(found, sizes[level]).items()
    ]
    return tuple(sorted(lines, key=lambda each: (-each.bytes, each.operator, each.state)))


class AccessTotals:
    """Sampled accesses to keyed state by operator, state and name: totals over tasks and epochs, and quantiles of the last epoch
    that has any, those of the slowest task.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.totals: Counter[tuple[str, str, str]] = Counter()
        self.quantiles: dict[tuple[str, str, str], tuple[int, int, int]] = {}

    def add(self, accesses: Iterable[StateAccess]) -> None:
        """Add those of one epoch, of all tasks."""
        worst: dict[tuple[str, str, str], tuple[int, int, int]] = {}
        for each in accesses:
            key = (each.operator, each.state, each.name)
            self.counts[key] += each.count
            self.totals[key] += each.total
            median, p99, most = worst.get(key, (0, 0, 0))
            worst[key] = max(median, each.median), max(p99, each.p99), max(most, each.most)
        if worst:
            self.quantiles = {**self.quantiles, **worst}
