"""How many rows an epoch reads, so that its duration is near the target. Pure.

An epoch holds everything it reads until it ends, so its duration bounds how late a checkpoint can be. This serves the same
purpose as buffer debloating for Flink's channels.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_ROWS = 10_000
"""The size of the first epoch, when nothing has been measured: small, since the first epoch also starts workers."""
LEAST_ROWS = 1_000
_STEP = 2.0
"""The size changes by at most this factor per epoch: a single slow epoch is weak evidence."""


@dataclass(frozen=True, slots=True)
class EpochSize:
    """A size that adapts to a target duration, bounded by `most_rows`."""

    target_s: float
    rows: int = FIRST_ROWS
    most_rows: int | None = None

    @property
    def limit(self) -> int:
        return self.rows if self.most_rows is None else min(self.rows, self.most_rows)

    def after(self, rows: int, seconds: float) -> EpochSize:
        """Return the size after an epoch of `rows` took `seconds`. An epoch that was not full is ignored, unless it was slow."""
        if rows <= 0 or seconds <= 0 or (rows < self.limit // 2 and seconds <= self.target_s):
            return self
        wanted = rows * self.target_s / seconds
        bounded = min(max(wanted, self.limit / _STEP), self.limit * _STEP)
        return EpochSize(self.target_s, max(LEAST_ROWS, round(bounded)), self.most_rows)
