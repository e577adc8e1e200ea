"""Which windows a row belongs to, as the window operator asks for it. The assigners to choose from are in `api.windows`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from tidegate.graph.combine import Panes, SessionParts
from tidegate.operators.row import Row
from tidegate.operators.trigger import Trigger
from tidegate.operators.window import Window


class WindowAssigner(ABC):
    """Determines which windows a row belongs to. Derive from it for custom windows."""

    is_event_time: ClassVar[bool] = True
    """Whether these are event-time windows, which the watermark ends; otherwise the clock ends them."""
    is_merging: ClassVar[bool] = False
    """Whether windows of one key that touch are merged."""
    has_fixed_windows: ClassVar[bool] = False
    """Whether all windows are `TimeWindow`s that depend only on the time of a row."""

    @abstractmethod
    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        """The windows of a row. `timestamp` is its event time or, for windows of processing time, the clock, in ms."""

    def intervals(self) -> Panes | SessionParts | None:
        """Return the intervals of event time whose rows can be combined before they are assigned to windows, if there are any."""
        return None

    @abstractmethod
    def get_default_trigger(self) -> Trigger:
        """Return when windows fire unless the job says otherwise."""
