"""What stays the same for one job of one seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tidegate.checkpoint.coordination.timing import Cadence
from tidegate.checkpoint.layout import JobLayout
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.reading import read_options
from tidegate.core.ids import Uid

SINK, OTHER, UNKEYED = Uid("sink"), Uid("other"), Uid("unkeyed")
SINKS = (SINK, OTHER, UNKEYED)
_OPTIONS = CheckpointConfig.of(read_options({}))


@dataclass(frozen=True)
class JobPlan:
    """The plan of one job: its place, its cadence, and whether its tasks are real."""

    layout: JobLayout
    groups: int
    cadence: Cadence
    num_retained: int
    epoch_ms: int
    origin: tuple[JobLayout, str] | None = None
    """For a fork: whose checkpoint it began from, and the pin that holds it."""
    real_state: bool = False
    """Whether tasks have real state, instead of a model of it."""

    def config(self, rng: Random) -> CheckpointConfig:
        cadence = self.cadence
        config = replace(
            _OPTIONS,
            interval_ms=cadence.interval_ms,
            timeout_ms=cadence.timeout_ms,
            min_pause_ms=cadence.min_pause_ms,
            max_concurrent=cadence.max_concurrent,
            tolerable_failures=cadence.tolerable_failures,
            num_retained=self.num_retained,
            incremental=True,
            parallel_cleaning=False,
        )
        if not self.real_state:
            return config
        changelog = rng.random() < 0.75
        return replace(
            config,
            inline_threshold_bytes=rng.choice((0, 150, 2_000)),
            changelog=changelog,
            materialize_interval_ms=rng.choice((300, 1_500, 4_000, None)) if changelog else None,
            materialize_incrementally=rng.random() < 0.8,
            materialize_failures=rng.choice((0, 3)),
        )
