"""A window: what an assigner gives out, and what triggers, evictors and functions of windows are called with."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.times import MAX_WATERMARK
from tidegate.state.keys.entry_keys import TimeWindow

__all__ = ["GLOBAL", "GlobalWindow", "TimeWindow", "Window"]


@dataclass(frozen=True, slots=True)
class GlobalWindow:
    """The one window of all rows of a key. It never ends by itself."""

    def max_timestamp(self) -> int:
        return MAX_WATERMARK


Window = TimeWindow | GlobalWindow
GLOBAL = GlobalWindow()
