"""The time of a running job: its clocks, and the earliest timers of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegate.core.ids import Slot, TaskId
from tidegate.core.times import MIN_WATERMARK, EpochTime
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph
from tidegate.graph.states import StateKind
from tidegate.runtime.epochs.clocks import Clocks, Pending, is_due
from tidegate.runtime.epochs.processing_time import ProcessingClock
from tidegate.runtime.exchange.messages import TaskAck

_STANDING = EpochTime(MIN_WATERMARK)
"""The clocks of an epoch in which no timer fires."""


class JobClock:
    """One thread runs epochs and moves the clock. Any thread may ask whether timers are due."""

    def __init__(self, graph: Graph, plan: Plan, processing: ProcessingClock) -> None:
        self._sources = graph.sources
        self._processing = processing
        timed = {node.id for node in graph.processes if any(spec.kind is StateKind.TIMERS for spec in node.states)}
        self._timed_levels = frozenset(level.index for level in plan.levels if timed.intersection(level.nodes))
        self._pending: dict[TaskId, Pending] = {}
        """The earliest timers of the tasks that have reported them. Copied on change, because other threads read it."""
        self.clocks = Clocks().began(self._sources, processing.advance())
        """The clocks after the last accepted epoch."""

    @property
    def has_timers(self) -> bool:
        return bool(self._timed_levels)

    def timers_due(self) -> bool:
        """Whether an epoch that starts now would fire timers, even without rows."""
        time = self.clocks.next(self._sources, self._processing.peek())
        return any(is_due(pending, time) for pending in self._pending.values())

    def timers_pending(self) -> bool:
        """Whether there are event-time timers at all."""
        return any(event is not None for event, _ in self._pending.values())

    def begin_epoch(self, *, final: bool, stands: bool) -> EpochTime:
        """Return the clocks of an epoch that starts now. `final`: all event time passes with it. `stands`: no timer fires."""
        next_time = self.clocks.next(self._sources, self._processing.advance(), final=final)
        return _STANDING if stands else next_time

    def wake(self, level: int, time: EpochTime, has_state: Sequence[bool]) -> tuple[bool, ...]:
        """Return, for each slot of a level, whether its task checks its timers even if no row arrives. A task that has not
        reported its timers yet may have some in restored state: it checks if it has state.
        """
        if level not in self._timed_levels:
            return ()
        pending = [self._pending.get(TaskId(level, Slot(slot))) for slot in range(len(has_state))]
        return tuple(has if known is None else is_due(known, time) for known, has in zip(pending, has_state))

    def accept(self, time: EpochTime, acks: Iterable[TaskAck]) -> None:
        """Accept an epoch with these clocks."""
        seen: dict[str, int] = {}
        reported: dict[TaskId, Pending] = {}
        for ack in acks:
            if ack.timers is not None:
                reported[TaskId(ack.level, Slot(ack.sender))] = ack.timers
            for name, greatest in ack.event_times.items():
                seen[name] = max(greatest, seen.get(name, greatest))
        # A task that has not looked at its timers keeps what it reported last: only its own work changes them.
        self._pending = {**self._pending, **reported}
        # An epoch in which time stands has the smallest of all times. Accepting it would move the job back.
        if time is not _STANDING:
            self.clocks = self.clocks.after(time, seen, self._sources)

    def forget_timers(self) -> None:
        """Forget the timers, because the state of the tasks is replaced: they are unknown until the tasks report them."""
        self._pending = {}

    def reset(self, clocks: Clocks) -> None:
        """Continue from the time of a checkpoint. Processing time does not move back."""
        self.clocks = clocks.began(self._sources, self._processing.resume(clocks.clock_ms))
