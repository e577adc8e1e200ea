"""How often the effect of a row becomes visible despite failures: for a source, the engine, a sink, and a whole job."""

from __future__ import annotations

import enum


class Guarantee(enum.Enum):
    """Weakest first."""

    AT_MOST_ONCE = "at most once"
    """After a failure rows may be missing."""
    AT_LEAST_ONCE = "at least once"
    """After a failure rows may appear twice."""
    EXACTLY_ONCE = "exactly once"

    def __str__(self) -> str:
        return self.value

    def __lt__(self, other: Guarantee) -> bool:
        strength = list(Guarantee)
        return strength.index(self) < strength.index(other)
