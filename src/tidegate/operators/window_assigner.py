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
    """Determines which windows a row belongs to. Derive from it for custom windows.

    Examples:
        >>> class Mornings(tg.WindowAssigner):
        ...     def assign_windows(self, row, timestamp):
        ...         day = timestamp - timestamp % 86_400_000
        ...         return [tg.TimeWindow(day, day + 43_200_000)] if timestamp - day < 43_200_000 else []
        ...     def get_default_trigger(self):
        ...         return tg.EventTimeTrigger()
        >>> mornings = orders.key_by("user").window(Mornings()).aggregate("mornings", n=tg.count())
        >>> with tg.testing.harness(mornings) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0 + timedelta(hours=13)))
        ...     h.advance_watermark(T0 + timedelta(days=1))
        ...     [row.n for row in h.output()]
        [1]
    """

    is_event_time: ClassVar[bool] = True
    """Whether these are event-time windows, which the watermark ends; otherwise the clock ends them."""
    is_merging: ClassVar[bool] = False
    """Whether windows of one key that touch are merged."""
    has_fixed_windows: ClassVar[bool] = False
    """Whether all windows are `TimeWindow`s that depend only on the time of a row."""

    @abstractmethod
    def assign_windows(self, row: Row, timestamp: int) -> Sequence[Window]:
        """Return the windows of a row.

        Args:
            row: The row, with an attribute for each column.
            timestamp: Its event time or, for windows of processing time, the clock of the epoch, in milliseconds since
                1970-01-01 UTC.
        """

    def intervals(self) -> Panes | SessionParts | None:
        """Return the intervals of event time whose rows can be combined before they are assigned to windows, if there are any."""
        return None

    @abstractmethod
    def get_default_trigger(self) -> Trigger:
        """Return when windows fire unless the job says otherwise."""
