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
        """Call `on_event_time` of this key and window when the watermark reaches the time."""
        ...

    def register_processing_time_timer(self, time: int) -> None:
        """Call `on_processing_time` of this key and window when the clock reaches the time."""
        ...

    def delete_event_time_timer(self, time: int) -> None:
        """Delete the event-time timer for that time, if there is one."""
        ...

    def delete_processing_time_timer(self, time: int) -> None:
        """Delete the processing-time timer for that time, if there is one."""
        ...

    def in_window(self, window: Window) -> AbstractContextManager[None]:
        """For `on_merge`: state and timers of another window of the same key."""
        ...


class Trigger(ABC):
    """Decides when the windows of an operator fire."""

    @abstractmethod
    def on_element(self, element: Row, timestamp: int, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """A row was added to the window."""

    @abstractmethod
    def on_processing_time(self, time: int, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """A processing-time timer of the window has come."""

    @abstractmethod
    def on_event_time(self, time: int, window: Window, ctx: TriggerContext, /) -> TriggerResult:
        """An event-time timer of the window has come."""

    def can_merge(self) -> bool:
        """Whether it can be used with windows that merge, such as sessions."""
        return False

    def on_merge(self, window: Window, merged: Sequence[Window], ctx: TriggerContext, /) -> None:
        """The windows `merged` have become one; its timers, and what of their state it needs, are to be taken over."""
        raise NotImplementedError(f"{type(self).__name__} cannot merge windows.")

    @abstractmethod
    def clear(self, window: Window, ctx: TriggerContext, /) -> None:
        """The window is gone: clear state, delete timers."""

    def with_state(self) -> Trigger:
        """Return the trigger that declares the state: this one, or the one that it wraps."""
        return self

    def __repr__(self) -> str:
        return type(self).__name__
