"""A job as a queue: rows arrive, epochs take them, a change of parallelism stops it for a while. Knows nothing of how decisions
are made; only the samples that a driver would record leave it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.autoscaler.decider import ScalingDecider
from tidegate.autoscaler.decision import ScalingDecision
from tidegate.autoscaler.epoch_sample import EpochSample, LevelSample, SampleCollector
from tidegate.config.autoscaler import AutoscalerConfig

_POLL_S = 0.5


@dataclass(kw_only=True)
class QueueJob:
    """One job. Seconds per row are those of a single slot."""

    arrivals: Callable[[float], float]
    """Rows per second, at a second since the start."""
    parallelism: int
    levels_s: tuple[float, ...] = (0.001,)
    """Seconds per row of each level."""
    source_s: float = 0.0
    """Seconds per row in the source stage, whatever the parallelism."""
    slots: int = 10**6
    """Cores: if there are more tasks, some wait for others, and the level takes no less time."""
    overhead_s: float = 0.3
    """What an epoch takes besides its rows."""
    most_rows: int | None = None
    """Rows of an epoch at most."""
    every_s: float = 0.0
    """The trigger interval."""
    restart_s: float = 60.0
    backlog: float = 0.0
    tells_backlog: bool = True
    spread: float = 0.0
    """How much the time of an epoch varies."""
    seed: int = 0
    now_s: float = 0.0
    since_s: float = field(default=0.0, init=False)
    _ended_s: float = field(default=0.0, init=False)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def _pass_until(self, end_s: float) -> None:
        while self.now_s < end_s:
            step_s = min(60.0, end_s - self.now_s)
            self.backlog += self.arrivals(self.now_s + step_s / 2) * step_s
            self.now_s += step_s

    def rescale(self, parallelism: int) -> None:
        self.parallelism = parallelism
        self._pass_until(self.now_s + self.restart_s)
        self.since_s = self._ended_s = self.now_s

    def epoch(self) -> EpochSample | None:
        """Run an epoch, if there are rows. Return what a driver would record."""
        if self.backlog < 1:
            self._pass_until(self.now_s + _POLL_S)
            return None
        began_s = self.now_s
        rows = int(self.backlog if self.most_rows is None else min(self.backlog, self.most_rows))
        pending = int(self.backlog - rows)
        busy_s = [rows * each / self.parallelism * self._varied() for each in self.levels_s]
        waves = max(1.0, self.parallelism / self.slots)
        source_s = rows * self.source_s
        self.backlog -= rows
        self._pass_until(began_s + self.overhead_s + source_s + sum(busy_s) * waves)
        ended_s, before_s = self.now_s, self._ended_s
        self._ended_s = ended_s
        self._pass_until(began_s + self.every_s)
        levels = [(0, source_s)] if self.source_s else []
        levels += [(number, each) for number, each in enumerate(busy_s, 1)]
        return EpochSample(
            from_ms=round(before_s * 1000),
            to_ms=round(ended_s * 1000),
            last_began_ms=round(began_s * 1000),
            running_since_ms=round(self.since_s * 1000),
            parallelism=self.parallelism,
            rows_in=rows,
            largest_epoch=rows,
            levels=tuple(level(number, rows, seconds) for number, seconds in levels),
            pending_rows=pending if self.tells_backlog else None,
            working_ms=round((ended_s - began_s) * 1000),
        )

    def _varied(self) -> float:
        return 1 + self.spread * (2 * self._random.random() - 1)


def level(number: int, rows: int, busy_s: float) -> LevelSample:
    ms = round(busy_s * 1000)
    return LevelSample(level=number, rows_in=rows, busy_max_ms=ms, busy_min_ms=ms, busy_avg_ms=ms)


@dataclass
class Drive:
    """A job under an autoscaler that acts."""

    job: QueueJob
    config: AutoscalerConfig
    key_groups: int = 720
    decisions: list[ScalingDecision] = field(default_factory=list)
    scalings: list[ScalingDecision] = field(default_factory=list)
    acts: bool = True

    def __post_init__(self) -> None:
        self.decider = ScalingDecider(self.config, self.key_groups)
        self.collector = SampleCollector(self.config.window_ms)

    def run(self, hours: float) -> Drive:
        end_s = self.job.now_s + hours * 3600
        while self.job.now_s < end_s:
            epoch = self.job.epoch()
            sample = None if epoch is None else self.collector.add(epoch)
            if sample is None:
                continue
            decision = self.decider.observe(sample)
            self.decisions.append(decision)
            if self.acts and decision.changes:
                self.scalings.append(decision)
                self.decider.scaled(decision, round(self.job.now_s * 1000))
                self.job.rescale(decision.recommended)
        return self

    @property
    def directions(self) -> str:
        """`ud`: it scaled up and then down."""
        return "".join("u" if each.recommended > each.parallelism else "d" for each in self.scalings)
