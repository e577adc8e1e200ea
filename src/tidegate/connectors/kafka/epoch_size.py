"""How many rows an epoch takes, so that it lasts about as long as wanted. Pure.

An epoch holds whatever it reads until it ends, so its length bounds how late a checkpoint can be: what buffer debloating does
for Flink's channels, by other means.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_ROWS = 10_000
"""Of an epoch of which nothing is known: small, since the first one also starts workers."""
LEAST_ROWS = 1_000
_STEP = 2.0
"""The size changes at most by this factor at once: one slow epoch says little."""


@dataclass(frozen=True, slots=True)
class EpochSize:
    """A size that follows a target. `most_rows` bounds it."""

    target_s: float
    rows: int = FIRST_ROWS
    most_rows: int | None = None

    @property
    def limit(self) -> int:
        return self.rows if self.most_rows is None else min(self.rows, self.most_rows)

    def after(self, rows: int, seconds: float) -> EpochSize:
        """The size after an epoch of so many rows took so long. One that was not full says nothing, unless it was slow."""
        if rows <= 0 or seconds <= 0 or (rows < self.limit // 2 and seconds <= self.target_s):
            return self
        wanted = rows * self.target_s / seconds
        bounded = min(max(wanted, self.limit / _STEP), self.limit * _STEP)
        return EpochSize(self.target_s, max(LEAST_ROWS, round(bounded)), self.most_rows)
