"""The order in which uncommitted output is committed, and when each sink is retried. Pure.

Order is kept for each sink: nothing becomes visible after output of a later epoch. Order within a slot would not be
enough: after a rescale, or if a stream has no key, the rows of one key come from another slot than before.

- The driver passes all uncommitted output of a sink in one call, sorted by epoch and slot; the committer keeps
  that order.
- If tasks commit, each for its own slot, their output is divided into stages (`OutputUpTo.stage`). Within a stage each slot
  commits its epochs independently; no slot starts a stage before all slots have finished the previous one. Without a key,
  when rows may change slots between epochs, one task commits for all slots.

Sinks are isolated from each other. The first failure ends the attempt of its own sink, which is then retried with
exponential backoff, up to a limit, and with jitter, so that many jobs do not return to a target at the same moment.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from tidegate.checkpoint.output.sink_output import OutputUpTo
from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant, MonotonicMs
from tidegate.core.history import History
from tidegate.core.ids import EpochId, Uid

# The rest follows with the next epoch. Orders travel with every epoch until they are carried out.
_MOST_IN_ORDER = 500
"""Maximum number of committables in one request to a task."""


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Output of one sink to be committed now, in this order."""

    sink: Uid
    committables: tuple[Committable, ...]
    compare_with: History | None = None
    """Compare the markers of all slots with this history first: the target could not be asked when the job started, and a commit
    sees only the markers of its own slots."""

    @property
    def last(self) -> EpochId:
        return self.committables[-1].epoch


def commit_batches(committables: Iterable[Committable]) -> list[CommitBatch]:
    """Return all output of each sink, ordered by (epoch, slot)."""
    by_sink: dict[Uid, list[Committable]] = {}
    for committable in sorted(committables, key=lambda c: (c.epoch, c.slot)):
        by_sink.setdefault(committable.sink, []).append(committable)
    return [CommitBatch(sink, tuple(waiting)) for sink, waiting in sorted(by_sink.items())]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a sink waits after consecutive failures."""

    first_ms: int = 1_000
    greatest_ms: int = 30_000
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_ms(self, failures: int, chance: float) -> int:
        """Return the delay after this many failures; `chance` is a random number in [0, 1)."""
        # The exponent is bounded before the result is: 2.0 ** 1100 raises OverflowError.
        plain = min(float(self.greatest_ms), self.first_ms * self.multiplier ** min(failures - 1, 30))
        return round(plain * (1 + self.jitter * (2 * chance - 1)))


class ReleaseSchedule:
    """Decides which sinks to commit to. Time is passed with each call."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._busy: set[Uid] = set()
        self._failures: dict[Uid, int] = {}
        self._errors: dict[Uid, str] = {}
        self._not_before_ms: dict[Uid, MonotonicMs] = {}
        self._refused: set[Uid] = set()

    def begin(self, due: OutputUpTo, now: Instant, in_tasks: Container[Uid] = frozenset()) -> list[CommitBatch]:
        """Return what to commit now to sinks that tasks do not commit to. Follow up each commit with `succeeded`
        or `failed`."""
        ready = [
            CommitBatch(sink, due.of(sink))
            for sink in due.waiting_sinks()
            if sink not in in_tasks and sink not in self._busy and self._may_begin(sink, now)
        ]
        self._busy |= {batch.sink for batch in ready}
        return ready

    def for_tasks(self, due: OutputUpTo, now: Instant, stable: Mapping[Uid, bool]) -> list[CommitBatch]:
        """Return what tasks should commit now to the sinks in `stable`. Each commit is for one task.

        If slots are stable: each slot of the first unfinished stage. Otherwise all slots together: one task commits
        them in order, since a stage for each epoch would commit only one epoch per round.

        A request is repeated until its result is known, so it may be executed twice, and late. The next stage starts
        when nothing of this one is `due` any more.
        """
        ready: list[CommitBatch] = []
        for sink in due.waiting_sinks():
            if sink not in stable or not self._may_begin(sink, now):
                continue
            if stable[sink]:
                ready += [CommitBatch(sink, waiting) for waiting in due.stage(sink, _MOST_IN_ORDER)]
            else:
                ready.append(CommitBatch(sink, due.of(sink, _MOST_IN_ORDER)))
        return ready

    def _may_begin(self, sink: Uid, now: Instant) -> bool:
        return sink not in self._refused and self._has_waited(sink, now)

    def _has_waited(self, sink: Uid, now: Instant) -> bool:
        return now.monotonic_ms >= self._not_before_ms.get(sink, now.monotonic_ms)

    def succeeded(self, sink: Uid, now: Instant, *, by_tasks: bool = False) -> None:
        """The sink, or one of its slots, was committed to. The wait after a failure of another slot continues. `by_tasks`: a task
        carried out an order, and what the driver commits meanwhile, if anything, has not ended."""
        if not by_tasks:
            self._busy.discard(sink)
        # A slot that succeeds says nothing about the slot that failed.
        if not self._has_waited(sink, now):
            return
        for notes in (self._failures, self._errors, self._not_before_ms):
            notes.pop(sink, None)

    def failed(self, sink: Uid, error: str, now: Instant, chance: float, *, by_tasks: bool = False) -> MonotonicMs:
        """Record a failure and return when the sink is retried. Simultaneous failures of several slots count as one."""
        if not by_tasks:
            self._busy.discard(sink)
        self._errors[sink] = error
        # Several slots fail at the same time if a target goes down. One outage doubles the wait once.
        if not self._has_waited(sink, now):
            return self._not_before_ms[sink]
        self._failures[sink] = self._failures.get(sink, 0) + 1
        self._not_before_ms[sink] = now.plus(self._backoff.delay_ms(self._failures[sink], chance))
        return self._not_before_ms[sink]

    def refused(self, sink: Uid, error: str) -> None:
        """The sink permanently refuses its output: this run never retries it, whatever else happens to the job."""
        self._busy.discard(sink)
        self._errors[sink] = error
        self._refused.add(sink)
        self._not_before_ms.pop(sink, None)

    @property
    def stuck(self) -> frozenset[Uid]:
        """Sinks that have refused their output."""
        return frozenset(self._refused)

    def hurry(self) -> None:
        """Retry all sinks immediately, because someone is waiting for all output."""
        self._not_before_ms.clear()

    def wake_ms(self, now: Instant) -> MonotonicMs | None:
        """Return when the next wait of a sink ends. Sinks whose wait is over have started, and are tracked otherwise."""
        return min((at_ms for at_ms in self._not_before_ms.values() if at_ms > now.monotonic_ms), default=None)

    @property
    def busy(self) -> frozenset[Uid]:
        """Sinks that the driver is committing to."""
        return frozenset(self._busy)

    def error(self, sink: Uid) -> str | None:
        """Return the last error of the target, if it has not accepted anything since."""
        return self._errors.get(sink)


@dataclass(frozen=True, slots=True)
class WaitingOutput:
    """Uncommitted output of one sink, for people."""

    sink: Uid
    epochs: int
    size_bytes: int
    since: EpochId
    error: str | None

    def __str__(self) -> str:
        many = f"{self.epochs} epoch{'' if self.epochs == 1 else 's'}"
        why = "" if self.error is None else f": {self.error}"
        return f"sink {self.sink!r} has output of {many} from {self.since} on{why}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the uncommitted output of completed checkpoints for one sink."""

    epochs: int
    size_bytes: int

    def exceeded_by(self, waiting: WaitingOutput) -> bool:
        return waiting.epochs > self.epochs or waiting.size_bytes > self.size_bytes


def summary(due: OutputUpTo, schedule: ReleaseSchedule) -> tuple[WaitingOutput, ...]:
    return tuple(
        WaitingOutput(
            sink=sink,
            epochs=len(epochs),
            size_bytes=due.size_bytes(sink),
            since=epochs[0],
            error=schedule.error(sink),
        )
        for sink in due.waiting_sinks()
        if (epochs := due.epochs(sink))
    )
