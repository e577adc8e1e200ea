"""Which elements of a window are evaluated, as the window operator asks for it. `api.evictors` has some to choose from."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import NamedTuple

from tidegate.operators.row import Row
from tidegate.operators.window import Window


class TimestampedValue(NamedTuple):
    """A row of a window, and its time in milliseconds."""

    timestamp: int
    value: Row


class Evictor(ABC):  # noqa: B024 (either method alone makes an evictor)
    """Removes elements from a window, before or after its function sees them. Both methods return what stays, in order."""

    def evict_before(self, elements: Sequence[TimestampedValue], window: Window, /) -> Sequence[TimestampedValue]:
        """Return the elements that the function of the window sees.

        Args:
            elements: The rows of the window with their times, in the order in which they arrived.
            window: The window that fires.
        """
        return elements

    def evict_after(self, elements: Sequence[TimestampedValue], window: Window, /) -> Sequence[TimestampedValue]:
        """Return the elements that stay in the window after its function has seen them.

        Args:
            elements: What `evict_before` returned.
            window: The window that fired.
        """
        return elements
