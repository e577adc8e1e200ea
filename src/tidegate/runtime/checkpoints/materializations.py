"""With a changelog: which tasks store whole versions in the background, as the start of later changes.

A checkpoint then consists of the files of such a version and of the changes since. Tasks take turns, so that the files of a
job are stored over the whole interval. Used by the thread of the checkpoint loop; `ready` is replaced as a whole.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.checkpoint.task.version_upload import Materialized
from tidegate.core.clock import Instant, MonotonicMs
from tidegate.core.ids import TaskId

_TURNS = 8
"""Into how many turns an interval is divided at most."""


@dataclass(slots=True)
class _Turn:
    """The tasks whose turn it is, under one id."""

    id: int
    waiting: set[TaskId]
    started: Instant
    ready: set[TaskId] = field(default_factory=set)
    """Tasks whose version is stored and in no completed checkpoint yet."""


class Materializations:
    """Those of one term. `interval_ms` None: there are none."""

    def __init__(self, interval_ms: int | None, tasks: Iterable[TaskId], allowed_failures: int, first: int = 0) -> None:
        """`first`: with which of the tasks to begin."""
        self._tasks = tuple(sorted(tasks))
        self._turns = min(_TURNS, max(1, len(self._tasks)))
        self._step_ms = None if interval_ms is None else max(1, interval_ms // self._turns)
        self._allowed = allowed_failures
        self._next_ms: MonotonicMs | None = None
        self._number = first % self._turns
        self._running: _Turn | None = None
        self._stored: list[_Turn] = []
        self._failures = 0
        self.completed = 0
        self.failed = 0
        self.last_ms = 0
        """How long the last turn took."""
        self.ready: Mapping[TaskId, Materialized] = {}
        """Versions that the next checkpoint may start from."""

    def due(self, now: Instant) -> tuple[TaskId, ...]:
        """Return the tasks whose turn it is; none before the first step has passed, or while others are at work."""
        if self._step_ms is None:
            return ()
        if self._next_ms is None:
            self._next_ms = now.plus(self._step_ms)
        if self._running is not None or now.monotonic_ms < self._next_ms:
            return ()
        self._next_ms = now.plus(self._step_ms)
        turn = self._number % self._turns
        self._number += 1
        return self._tasks[turn :: self._turns]

    def begin(self, id: int, tasks: Iterable[TaskId], now: Instant) -> None:
        self._running = _Turn(id, set(tasks), now)

    def is_under_way(self, id: int) -> bool:
        return self._running is not None and self._running.id == id

    def acknowledge(self, task: TaskId, made: Materialized, now: Instant) -> None:
        """The version of a task is stored."""
        turn = self._running
        assert turn is not None
        turn.ready.add(task)
        self.ready = {**self.ready, task: made}
        self._failures = 0
        self._end_of(turn, task, now)

    def fail(self, task: TaskId, now: Instant) -> bool:
        """A task cannot store its version; it tries again at its next turn. Return whether that has happened too often."""
        assert self._running is not None
        if task not in self._running.waiting:
            return False  # It says so with every epoch, until the others have ended.
        self.failed += 1
        self._failures += 1
        self._end_of(self._running, task, now)
        return self._failures > self._allowed

    def _end_of(self, turn: _Turn, task: TaskId, now: Instant) -> None:
        turn.waiting.discard(task)
        if not turn.waiting:
            self.completed += bool(turn.ready)
            self.last_ms = now.since(turn.started)
            self._running = None
            # Also if all of it failed: its id is returned once nothing of it is offered.
            self._stored.append(turn)

    def use(self, tasks: Mapping[TaskId, Materialized]) -> None:
        """A checkpoint has completed that these versions were offered to. Later ones start from it."""
        self.ready = {task: made for task, made in self.ready.items() if tasks.get(task) != made}
        for turn in self._every():
            turn.ready = {task for task in turn.ready if task in self.ready}

    def released(self, offered: Container[int]) -> tuple[int, ...]:
        """Return the ids whose files clean-up need not spare any longer, once. Checkpoints in progress may use the `offered`."""
        done = [turn for turn in self._stored if not turn.ready and turn.id not in offered]
        self._stored = [turn for turn in self._stored if turn not in done]
        return tuple(turn.id for turn in done)

    def forget(self) -> None:
        """The job goes back: what tasks have stored since is of no use."""
        self._running = None
        self._stored = []
        self.ready = {}
        self._failures = 0

    def _every(self) -> tuple[_Turn, ...]:
        return (*self._stored, *(() if self._running is None else (self._running,)))
