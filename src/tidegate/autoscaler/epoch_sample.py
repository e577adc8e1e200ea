"""What the autoscaler knows of a job: how much it read, how busy its tasks were and what waits, over some epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

SOURCE_LEVEL = 0
"""The source stage. Its tasks are partitions of Spark's, whatever the parallelism of the job is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSample:
    """One level over some epochs."""

    level: int
    rows_in: int
    busy_max_ms: int
    """In each epoch the time of the busiest task, because the epoch waits for it; summed over epochs."""
    busy_min_ms: int
    busy_avg_ms: float

    @staticmethod
    def total(samples: Sequence[LevelSample]) -> LevelSample:
        """Samples of one level, added up."""
        return LevelSample(
            level=samples[0].level,
            rows_in=sum(each.rows_in for each in samples),
            busy_max_ms=sum(each.busy_max_ms for each in samples),
            busy_min_ms=sum(each.busy_min_ms for each in samples),
            busy_avg_ms=sum(each.busy_avg_ms for each in samples),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSample:
    """One or more epochs of one attempt. Times are monotonic milliseconds, comparable within one run or trace."""

    from_ms: int
    """When the epoch before the first one ended: the sample also covers the time between epochs."""
    to_ms: int
    last_began_ms: int
    """When the last epoch with rows was planned: it read what had arrived by then. An epoch for a checkpoint reads nothing."""
    running_since_ms: int
    """When the attempt started."""
    parallelism: int
    epochs: int = 1
    rows_in: int
    """Rows of the sources."""
    largest_epoch: int
    """Rows of the largest epoch."""
    levels: tuple[LevelSample, ...]
    """Levels whose tasks measured their time. Empty: none did."""
    pending_rows: int | None = None
    """Rows that the last epoch could have read and did not. None: the sources do not report it."""
    working_ms: int
    """How long epochs ran, with what Structured Streaming takes for each. The rest of the time, the job waited: for rows, for its
    trigger, or for a sink that is too slow."""

    @property
    def duration_ms(self) -> int:
        return self.to_ms - self.from_ms

    def plus(self, later: EpochSample) -> EpochSample:
        """Both together. They belong to the same attempt, and `later` begins where this one ends."""
        levels = {each.level: each for each in self.levels}
        for each in later.levels:
            levels[each.level] = LevelSample.total([levels[each.level], each]) if each.level in levels else each
        return replace(
            # Of the later one: when it ended, and the parallelism.
            later,
            from_ms=self.from_ms,
            last_began_ms=later.last_began_ms if later.rows_in else self.last_began_ms,
            epochs=self.epochs + later.epochs,
            rows_in=self.rows_in + later.rows_in,
            largest_epoch=max(self.largest_epoch, later.largest_epoch),
            levels=tuple(levels[level] for level in sorted(levels)),
            # An epoch whose sources report nothing does not erase what is known of the backlog.
            pending_rows=self.pending_rows if later.pending_rows is None else later.pending_rows,
            working_ms=self.working_ms + later.working_ms,
        )


_PARTS = 60
"""A window consists of about so many samples, or of as many as there are epochs."""


class SampleCollector:
    """`window_ms` is the time over which decisions average."""

    def __init__(self, window_ms: int) -> None:
        self._least_ms = window_ms // _PARTS
        self._open: EpochSample | None = None

    def add(self, epoch: EpochSample) -> EpochSample | None:
        """Add a sample of one epoch. Returns a sample of all epochs since the last one that was returned, if they took long
        enough. Epochs of an attempt that has ended are dropped if they did not."""
        before = self._open
        follows = before is not None and before.running_since_ms == epoch.running_since_ms
        sample = before.plus(epoch) if before is not None and follows else epoch
        is_complete = sample.duration_ms >= self._least_ms
        self._open = None if is_complete else sample
        return sample if is_complete else None
