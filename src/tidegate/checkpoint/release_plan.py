"""The order in which waiting output is published, and when each sink is offered its output again. Pure.

Order is kept for each sink: nothing becomes visible after something of a later epoch. That is more than order within a slot,
and it has to be: after a rescale, or where a stream has no key, the rows of one key come from another slot than before.

- The driver hands a sink all its waiting output in one call, sorted by epoch and slot; the committer publishes in that order.
- Where tasks publish, each slot by itself, their output is divided into `stages`. Within a stage each slot goes through its
  epochs independently; no slot begins a stage before all slots have finished the one before it. Without a key, when rows may
  change slots between epochs, one task publishes for all slots.

Sinks are isolated from each other. The first failure ends the attempt of its own sink, which then waits: exponentially longer
with each failure, up to a limit, and with a random part, so that many jobs do not return to a target at the same moment.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from tidegate.connectors.sink import Committable
from tidegate.core.clock import Instant, MonotonicMs
from tidegate.core.ids import EpochId, Uid

_MOST_IN_ORDER = 500
"""Committables that one task is asked at once to publish."""


@dataclass(frozen=True, slots=True)
class Publication:
    """Output of one sink that is to be published now, in this order."""

    sink: Uid
    committables: tuple[Committable, ...]

    @property
    def last(self) -> EpochId:
        return self.committables[-1].epoch


def publications(committables: Iterable[Committable]) -> list[Publication]:
    """All output of each sink, by (epoch, slot)."""
    by_sink: dict[Uid, list[Committable]] = {}
    for committable in sorted(committables, key=lambda c: (c.epoch, c.slot)):
        by_sink.setdefault(committable.sink, []).append(committable)
    return [Publication(sink, tuple(waiting)) for sink, waiting in sorted(by_sink.items())]


def stages(committables: Sequence[Committable]) -> list[tuple[Committable, ...]]:
    """Divide the output of one sink, so that within a stage its slots need not wait for each other.

    A new stage begins with every term: a new claim may have brought another parallelism, and with it other slots for the same
    keys. Within a term a key stays in its slot. That holds for slots that are chosen by key, and only for those.
    """
    ordered = sorted(committables, key=lambda c: (c.epoch, c.slot))
    return [tuple(group) for _, group in groupby(ordered, key=lambda c: c.epoch.term)]


def _some(committables: Iterable[Committable]) -> tuple[Committable, ...]:
    """As much as one order may hold: it travels with the assignments of all tasks."""
    return tuple(islice(committables, _MOST_IN_ORDER))


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a sink waits after failures in a row."""

    first_ms: int = 1_000
    greatest_ms: int = 30_000
    multiplier: float = 2.0
    jitter: float = 0.2

    def delay_ms(self, failures: int, chance: float) -> int:
        """After so many failures; `chance` is a random number in [0, 1)."""
        plain = min(float(self.greatest_ms), self.first_ms * self.multiplier ** min(failures - 1, 30))
        return round(plain * (1 + self.jitter * (2 * chance - 1)))


class ReleaseSchedule:
    """Which sinks are published to now. Time comes with each call."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        self._backoff = backoff or Backoff()
        self._busy: set[Uid] = set()
        self._failures: dict[Uid, int] = {}
        self._errors: dict[Uid, str] = {}
        self._not_before_ms: dict[Uid, MonotonicMs] = {}
        self._refused: set[Uid] = set()

    def begin(
        self, due: Iterable[Committable], now: Instant, in_tasks: Container[Uid] = frozenset()
    ) -> list[Publication]:
        """What is to be published now, of sinks that are not published to by tasks. Each answer must be followed by
        `succeeded` or `failed`."""
        ready = [
            publication
            for publication in publications(c for c in due if c.sink not in in_tasks)
            if publication.sink not in self._busy and self._may_begin(publication.sink, now)
        ]
        self._busy |= {publication.sink for publication in ready}
        return ready

    def for_tasks(self, due: Iterable[Committable], now: Instant, stable: Mapping[Uid, bool]) -> list[Publication]:
        """What tasks are to publish now, of the sinks in `stable`. Each answer is for one task.

        Where slots are stable, each slot of the first stage that is not finished. Otherwise all slots together: one task
        publishes them in order, since a stage for each epoch would publish no more than one epoch with every round.

        An order is repeated until its result is known, so it may be carried out twice, and late. The next stage begins when
        nothing of this one is `due` any more.
        """
        ready: list[Publication] = []
        for publication in publications(c for c in due if c.sink in stable):
            sink = publication.sink
            if not self._may_begin(sink, now):
                continue
            if stable[sink]:
                slots: dict[int, list[Committable]] = {}
                for committable in stages(publication.committables)[0]:
                    slots.setdefault(committable.slot, []).append(committable)
                ready += [Publication(sink, _some(waiting)) for waiting in slots.values()]
            else:
                ready.append(Publication(sink, _some(publication.committables)))
        return ready

    def _may_begin(self, sink: Uid, now: Instant) -> bool:
        return sink not in self._refused and self._has_waited(sink, now)

    def _has_waited(self, sink: Uid, now: Instant) -> bool:
        return now.monotonic_ms >= self._not_before_ms.get(sink, now.monotonic_ms)

    def succeeded(self, sink: Uid, now: Instant) -> None:
        """The sink, or one of its slots, was published to. The wait after a failure of another slot goes on."""
        self._busy.discard(sink)
        if not self._has_waited(sink, now):
            return
        for notes in (self._failures, self._errors, self._not_before_ms):
            notes.pop(sink, None)

    def failed(self, sink: Uid, error: str, now: Instant, chance: float) -> MonotonicMs:
        """Answer: when the sink is offered its output again. Failures of several slots at once count as one."""
        self._busy.discard(sink)
        self._errors[sink] = error
        if not self._has_waited(sink, now):
            return self._not_before_ms[sink]
        self._failures[sink] = self._failures.get(sink, 0) + 1
        self._not_before_ms[sink] = now.plus(self._backoff.delay_ms(self._failures[sink], chance))
        return self._not_before_ms[sink]

    def refused(self, sink: Uid, error: str) -> None:
        """The sink will not take its output: it is never offered again by this run, whatever else happens to the job."""
        self._busy.discard(sink)
        self._errors[sink] = error
        self._refused.add(sink)
        self._not_before_ms.pop(sink, None)

    @property
    def stuck(self) -> frozenset[Uid]:
        """Sinks that have refused their output."""
        return frozenset(self._refused)

    def hurry(self) -> None:
        """Somebody waits for all output: offer it at once."""
        self._not_before_ms.clear()

    def wake_ms(self, now: Instant) -> MonotonicMs | None:
        """When time alone lets a sink begin again. Those whose wait is over have begun, and are waited for otherwise."""
        return min((at_ms for at_ms in self._not_before_ms.values() if at_ms > now.monotonic_ms), default=None)

    def error(self, sink: Uid) -> str | None:
        """What the target said last, if it has not taken anything since."""
        return self._errors.get(sink)


@dataclass(frozen=True, slots=True)
class WaitingOutput:
    """What one sink has not published yet, for people."""

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
    """How much output of completed checkpoints may wait for one sink."""

    epochs: int
    size_bytes: int

    def exceeded_by(self, waiting: WaitingOutput) -> bool:
        return waiting.epochs > self.epochs or waiting.size_bytes > self.size_bytes


def summary(due: Iterable[Committable], schedule: ReleaseSchedule) -> tuple[WaitingOutput, ...]:
    return tuple(
        WaitingOutput(
            sink=each.sink,
            epochs=len({c.epoch for c in each.committables}),
            size_bytes=sum(c.size_bytes for c in each.committables),
            since=each.committables[0].epoch,
            error=schedule.error(each.sink),
        )
        for each in publications(due)
    )
