"""When a window fires, as the window operator asks for it. The triggers to choose from are in `api.triggers`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol

from tidegate.operators.row import Row
from tidegate.operators.window import Window


class TriggerResult(Enum):
    """What happens to a window now."""

    CONTINUE = "continue"
    FIRE = "fire"
    """Evaluate it, and keep its contents."""
    PURGE = "purge"
    """Empty it without evaluating it."""
    FIRE_AND_PURGE = "fire and purge"

    @property
    def is_fire(self) -> bool:
        return self in (TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE)

    @property
    def is_purge(self) -> bool:
        return self in (TriggerResult.PURGE, TriggerResult.FIRE_AND_PURGE)


CONTINUE = TriggerResult.CONTINUE
FIRE = TriggerResult.FIRE


class TriggerContext(Protocol):
    """The context of a trigger. Timers belong to the current key and window."""

    def get_current_processing_time(self) -> int:
        """Return the clock of the epoch, in milliseconds since 1970-01-01 UTC."""
        ...

    def get_current_watermark(self) -> int:
        """Return how far event time has progressed, in milliseconds since 1970-01-01 UTC."""
        ...

    def register_event_time_timer(self, time: int) -> None:
        """Call `on_event_time` of this key and window when the watermark reaches the time.

        Args:
            time: Milliseconds since 1970-01-01 UTC.
        """
        ...

    def register_processing_time_timer(self, time: int) -> None:
        """Call `on_processing_time` of this key and window when the clock reaches the time.

        Args:
            time: Milliseconds since 1970-01-01 UTC.
        """
        ...

    def delete_event_time_timer(self, time: int) -> None:
        """Delete the event-time timer for that time, if there is one.

        Args:
            time: Milliseconds since 1970-01-01 UTC.
        """
        ...

    def delete_processing_time_timer(self, time: int) -> None:
        """Delete the processing-time timer for that time, if there is one.

        Args:
            time: Milliseconds since 1970-01-01 UTC.
        """
        ...

    def in_window(self, window: Window) -> AbstractContextManager[None]:
        """Use the state and the timers of another window of the same key, inside a `with` block of `on_merge`.

        Args:
            window: One of the windows that are merged.
        """
        ...


class Trigger(ABC):
    """Decides when the windows of an operator fire. It may declare state, which exists once for each key and window.

    Examples:
        >>> class LargeOrder(tg.Trigger):
        ...     def on_element(self, order, timestamp, window, ctx):
        ...         return tg.TriggerResult.FIRE if order.amount > 100 else tg.TriggerResult.CONTINUE
        ...     def on_event_time(self, time, window, ctx):
        ...         return tg.TriggerResult.CONTINUE
        ...     def on_processing_time(self, time, window, ctx):
        ...         return tg.TriggerResult.CONTINUE
        ...     def clear(self, window, ctx):
        ...         pass
        >>> windows = orders.key_by("user").window(tg.GlobalWindows.create()).trigger(LargeOrder())
        >>> counts = windows.aggregate("until-large", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 250.0, T0))
        ...     [row.n for row in h.output()]
        [2]
    """

    @abstractmethod
    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """Return what happens to the window now that a row was added to it.

        Args:
            element: The row.
            timestamp: Its event time or, for windows of processing time, the clock of the epoch, in milliseconds since
                1970-01-01 UTC.
            window: The window, one of those that the row belongs to.
            ctx: Timers, clock and watermark of the window.
        """

    @abstractmethod
    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """Return what happens to the window when a processing-time timer fires.

        Args:
            time: The time for which the timer was registered, in milliseconds since 1970-01-01 UTC.
            window: The window that registered it.
            ctx: Timers, clock and watermark of the window.
        """

    @abstractmethod
    def on_event_time(self, time: int, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """Return what happens to the window when an event-time timer fires.

        Args:
            time: The time for which the timer was registered, in milliseconds since 1970-01-01 UTC.
            window: The window that registered it.
            ctx: Timers, clock and watermark of the window.
        """

    def can_merge(self) -> bool:
        """Whether it can be used with windows that merge, such as sessions."""
        return False

    def on_merge(self, window: Window, merged: Sequence[Window], ctx: TriggerContext, /) -> None:
        """Register the timers of a window that several have become, and combine their state into its state.

        Args:
            window: The window that they have become.
            merged: The windows that were merged. `ctx.in_window` gives access to their state.
            ctx: Timers, clock and watermark of the new window.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot merge windows.")

    @abstractmethod
    def clear(self, window: Window, ctx: TriggerContext, /) -> None:
        """Clear the state and delete the timers of a window that is removed.

        Args:
            window: The window.
            ctx: Its timers, its clock and its watermark.
        """

    def with_state(self) -> Trigger:
        """Return the trigger that declares the state: this one, or the one that it wraps."""
        return self

    def __repr__(self) -> str:
        return type(self).__name__
