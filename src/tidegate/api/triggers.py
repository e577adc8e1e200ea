"""When a window fires. Names and rules are Flink's.

A trigger may have state, declared on its class as on a function; it exists once for each key and window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from tidegate.api.rows import Row
from tidegate.api.state_access import ValueAccess
from tidegate.api.states import ValueState
from tidegate.core.durations import Duration, argument_ms
from tidegate.core.errors import GraphError
from tidegate.operators.trigger import CONTINUE, FIRE, Trigger, TriggerContext, TriggerResult
from tidegate.operators.window import Window

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "EventTimeTrigger",
    "NeverTrigger",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
]


class EventTimeTrigger(Trigger):
    """Fires when the watermark passes the end of the window, and again for every allowed late row."""

    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        end = window.max_timestamp()
        if end <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(end)
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp() else CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, merged: Sequence[Window], ctx: TriggerContext) -> None:
        # Only if it has not fired yet: a late row in a merged window fires it by itself.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())


class ProcessingTimeTrigger(Trigger):
    """Fires when the clock passes the end of the window."""

    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return FIRE if time == window.max_timestamp() else CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, merged: Sequence[Window], ctx: TriggerContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())


class NeverTrigger(Trigger):
    """Never fires: the default of `GlobalWindows`."""

    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def clear(self, window: Window, ctx: TriggerContext) -> None: ...


class CountTrigger(Trigger):
    """Fires on every n-th row of a window, and never because of time.

    Args:
        max_count: The number of rows after which the window fires.

    Examples:
        >>> windows = orders.key_by("user").window(tg.GlobalWindows.create()).trigger(tg.CountTrigger.of(2))
        >>> counts = windows.aggregate("every-second", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0), (3, "ann", 9.0, T0))
        ...     [row.n for row in h.output()]
        [2]
    """

    count = ValueState(int, default=0)

    def __init__(self, max_count: int) -> None:
        if max_count < 1:
            raise GraphError(f"A window cannot fire with every {max_count} rows. Use CountTrigger.of(1) or more.")
        self._max = max_count

    @classmethod
    def of(cls, max_count: int) -> Self:
        """Fire on every `max_count`-th row: `CountTrigger.of(100)`.

        Args:
            max_count: The number of rows after which the window fires.
        """
        return cls(max_count)

    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        seen = self.count.value() + 1
        if seen >= self._max:
            self.count.clear()
            return FIRE
        self.count.update(seen)
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, merged: Sequence[Window], ctx: TriggerContext) -> None:
        total = _combined(ctx, merged, self.count, lambda counts: sum(counts))
        if total:
            self.count.update(total)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self.count.clear()


class PurgingTrigger(Trigger):
    """Fires as the trigger inside does, and empties the window each time.

    Args:
        inner: The trigger that decides when to fire.

    Examples:
        >>> in_pairs = tg.PurgingTrigger.of(tg.CountTrigger.of(2))
        >>> windows = orders.key_by("user").window(tg.GlobalWindows.create()).trigger(in_pairs)
        >>> counts = windows.aggregate("pairs", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.process(*[(number, "ann", 5.0, T0) for number in range(5)])
        ...     [row.n for row in h.output()]
        [2, 2]
    """

    def __init__(self, inner: Trigger) -> None:
        self._inner = inner

    @classmethod
    def of(cls, inner: Trigger) -> Self:
        """Empty the window whenever `inner` fires: `PurgingTrigger.of(CountTrigger.of(100))`.

        Args:
            inner: The trigger that decides when to fire.
        """
        return cls(inner)

    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._purged(self._inner.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._purged(self._inner.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return self._purged(self._inner.on_processing_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self._inner.can_merge()

    def on_merge(self, window: Window, merged: Sequence[Window], ctx: TriggerContext) -> None:
        self._inner.on_merge(window, merged, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        self._inner.clear(window, ctx)

    def with_state(self) -> Trigger:
        return self._inner.with_state()

    @staticmethod
    def _purged(result: TriggerResult) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE if result.is_fire else result

    def __repr__(self) -> str:
        return f"PurgingTrigger({self._inner!r})"


class _Continuous(Trigger):
    """The common part of the two continuous triggers: the time of the next firing, for each window."""

    next_fire = ValueState(int)

    def __init__(self, interval_ms: int) -> None:
        if interval_ms <= 0:
            raise GraphError(f"A window cannot fire every {interval_ms} ms. Give an interval such as '10 s'.")
        self._interval = interval_ms

    @classmethod
    def of(cls, interval: Duration) -> Self:
        """Fire at regular intervals: every ten seconds with `of("10 s")`.

        Args:
            interval: The time between two firings. They happen at its multiples since 1970-01-01 UTC.
        """
        return cls(argument_ms("interval", interval, of=f"{cls.__name__}.of"))

    def can_merge(self) -> bool:
        return True

    def _after(self, time: int) -> int:
        return time - time % self._interval + self._interval


class ContinuousEventTimeTrigger(_Continuous):
    """Fires every interval of event time as long as the window lasts, and at its end.

    Args:
        interval_ms: The time between two firings, in milliseconds. They happen at its multiples since 1970-01-01 UTC.

    Examples:
        >>> windows = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
        >>> early = windows.trigger(tg.ContinuousEventTimeTrigger.of("20 s")).aggregate("early", n=tg.count())
        >>> with tg.testing.harness(early) as h:
        ...     h.process((1, "ann", 5.0, T0))
        ...     h.advance_watermark(T0 + timedelta(seconds=20))
        ...     h.process((2, "ann", 7.0, T0 + timedelta(seconds=50)))
        ...     h.advance_watermark(T0 + timedelta(minutes=1))
        ...     [row.n for row in h.output()][::2]
        [1, 2]
    """

    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        # A late row that the lateness allows: no timer would fire for it any more.
        if window.max_timestamp() <= ctx.get_current_watermark():
            return FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        if self.next_fire.value() is None:
            self._arm(self._after(timestamp), window, ctx)
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return FIRE
        if time == self.next_fire.value():
            self._arm(time + self._interval, window, ctx)
            return FIRE
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_merge(self, window: Window, merged: Sequence[Window], ctx: TriggerContext) -> None:
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())
        first = _combined(ctx, merged, self.next_fire, min)
        if first is not None:
            self._arm(first, window, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())
        time = self.next_fire.value()
        if time is not None:
            ctx.delete_event_time_timer(time)
            self.next_fire.clear()

    def _arm(self, time: int, window: Window, ctx: TriggerContext) -> None:
        # The last interval may be shorter: nothing fires after the end of the window.
        time = min(time, window.max_timestamp())
        self.next_fire.update(time)
        ctx.register_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_Continuous):
    """Fires every interval of processing time, from the first row on.

    Args:
        interval_ms: The time between two firings, in milliseconds. They happen at its multiples since 1970-01-01 UTC.

    Examples:
        >>> windows = orders.key_by("user").window(tg.GlobalWindows.create())
        >>> counts = windows.trigger(tg.ContinuousProcessingTimeTrigger.of("20 s")).aggregate("counts", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.set_processing_time(T0)
        ...     h.process((1, "ann", 5.0, T0))
        ...     h.set_processing_time(T0 + timedelta(seconds=20))
        ...     [row.n for row in h.output()]
        [1]
    """

    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if self.next_fire.value() is None:
            self._arm(self._after(ctx.get_current_processing_time()), ctx)
        return CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        return CONTINUE

    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext) -> TriggerResult:
        if time != self.next_fire.value():
            return CONTINUE
        # From the present time, not from that of the timer: intervals that passed while the job was down do not fire.
        self._arm(self._after(ctx.get_current_processing_time()), ctx)
        return FIRE

    def on_merge(self, window: Window, merged: Sequence[Window], ctx: TriggerContext) -> None:
        first = _combined(ctx, merged, self.next_fire, min)
        if first is not None:
            self._arm(first, ctx)

    def clear(self, window: Window, ctx: TriggerContext) -> None:
        time = self.next_fire.value()
        if time is not None:
            ctx.delete_processing_time_timer(time)
            self.next_fire.clear()

    def _arm(self, time: int, ctx: TriggerContext) -> None:
        self.next_fire.update(time)
        ctx.register_processing_time_timer(time)


def _combined(
    ctx: TriggerContext,
    windows: Sequence[Window],
    state: ValueAccess[int] | ValueAccess[int | None],
    how: Callable[[list[int]], int],
) -> int | None:
    """One number out of those that the state holds for several windows. None where it holds none."""
    found: list[int] = []
    for window in windows:
        with ctx.in_window(window):
            value = state.value()
            if value is not None:
                found.append(value)
    return how(found) if found else None
