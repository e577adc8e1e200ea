"""What the samples of a window say: rates, utilization, and the capacity that the job needs. Rates are rows per second.

The levels of an epoch run one after the other: Spark starts a level when the one before has ended. So the time that an epoch
needs is the sum of its levels, and the job is evaluated as one vertex that is busy whenever one of its levels is. Levels are
evaluated as well, to show where the time goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isinf

from tidegate.autoscaler.epoch_sample import SOURCE_LEVEL, EpochSample, LevelSample
from tidegate.config.autoscaler import AutoscalerConfig
from tidegate.config.choices import BusyTimeAggregator

_NEAR = 0.8
_NO_PAUSE = 0.9
"""The share of the time in which epochs run, from which on they follow each other without a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelLoad:
    """One level in the window."""

    level: int
    load: float
    """The share of the time in which it was busy."""
    true_processing_rate: float
    """Its own input rows per second if it were busy all the time."""
    target_data_rate: float
    """Its own input rows per second if the job kept up with its sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The job in the window. Names of rates are those of Flink's autoscaler; rows are those of the sources."""

    duration_ms: int
    parallelism: int
    read_rate: float
    """What the job read."""
    target_data_rate: float
    """What arrived at its sources: what it read, and what the backlog grew by."""
    load: float
    """The share of the time in which one of its levels was busy."""
    true_processing_rate: float
    """What it can process at most with its parallelism. Infinite if nothing arrived."""
    is_observed: bool
    """Whether that was measured while it caught up, and not computed from busy time."""
    fixed_s: float
    """Seconds per row that more tasks do not shorten: those of the source stage, which has Spark's partitions, and what an epoch
    takes besides its rows if the number of its rows is limited."""
    lag: float
    """Rows of backlog."""
    has_lag: bool
    """Whether the sources report their backlog."""
    catch_up_data_rate: float
    """What has to be processed in addition, to finish the backlog in time."""
    restart_rate: float
    """The same for what arrives while the job is restarted."""
    is_processing_backlog: bool
    scale_up_threshold: float
    """If it can process less than this, it is too small."""
    scale_down_threshold: float
    """If it can process more than this, it is too large."""
    target_capacity: float
    """What it should be able to process."""
    levels: tuple[LevelLoad, ...]

    @property
    def is_outside(self) -> bool:
        """Whether utilization is outside its boundaries."""
        rate = self.true_processing_rate
        return rate < self.scale_up_threshold or rate > self.scale_down_threshold

    def parallelism_for(self, rate: float) -> float:
        """Return the parallelism, not rounded, with which it can process this. Infinite if the source stage alone takes too
        long."""
        if rate <= 0 or isinf(self.true_processing_rate):
            return 0.0
        # The time that is left for a row at this rate, once the fixed part is done.
        left_s = 1 / rate - self.fixed_s
        return self.parallelism * self._scaled_s / left_s if left_s > 0 else inf

    @property
    def reachable_parallelism(self) -> float:
        """Not rounded. Beyond it, more tasks would come closer than to `_NEAR` of what no parallelism exceeds."""
        # A row takes fixed + scaled · current / p seconds with parallelism p. Solved for p at which the rate is `_NEAR` of 1 /
        # fixed, the rate with infinitely many tasks.
        return self.parallelism * self._scaled_s * _NEAR / (1 - _NEAR) / self.fixed_s if self.fixed_s > 0 else inf

    def rate_at(self, parallelism: int) -> float:
        """Return the rate that it can process with another parallelism."""
        needed_s = self.fixed_s + self._scaled_s * self.parallelism / parallelism
        return 1 / needed_s if needed_s > 0 else inf

    @property
    def _scaled_s(self) -> float:
        """Seconds per row that more tasks shorten."""
        return 0.0 if isinf(self.true_processing_rate) else max(0.0, 1 / self.true_processing_rate - self.fixed_s)


def evaluate(
    samples: Sequence[EpochSample],
    config: AutoscalerConfig,
    *,
    restart_ms: int,
    before: EpochSample | None = None,
    row_limit: int | None = None,
) -> Evaluation | None:
    """Evaluate the samples of a window. None if no task measured its time. `before`: the sample before them, if there is one.
    `row_limit`: how many rows an epoch reads at most, if that is limited."""
    first = samples[0]
    last = samples[-1]
    seconds = max(1, last.to_ms - first.from_ms) / 1000
    levels = _together(samples)
    if not levels:
        return None

    # What a row takes: a part that more tasks share, and a part that they do not.
    rows = sum(each.rows_in for each in samples)
    read_rate = rows / seconds
    busy_s = {each.level: _busy_ms(each, config.aggregator) / 1000 for each in levels}
    total_s: float = sum(busy_s.values())
    fixed_s = _fixed_s(samples, total_s, row_limit) + (busy_s.get(SOURCE_LEVEL, 0.0) / rows if rows else 0.0)
    scaled_s = sum(seconds for level, seconds in busy_s.items() if level != SOURCE_LEVEL) / rows if rows else 0.0
    from_busy = 1 / (fixed_s + scaled_s) if rows and fixed_s + scaled_s > 0 else inf

    # As in Flink: busy time overestimates what a job can do, so what it did while it caught up replaces a computed rate that is
    # larger by more than the threshold. A smaller one is kept.
    observed = _observed_rate(samples, config)
    is_observed = observed is not None and from_busy > observed * (1 + config.observed_switch)

    target = _arrival_rate([*([] if before is None else [before]), *samples], read_rate)
    lag = (last.pending_rows or 0) + _arrived_meanwhile(last, target)
    catch_up_s = config.catch_up_ms / 1000
    catch_up_rate = lag / catch_up_s if catch_up_s else 0.0
    restart_rate = target * restart_ms / 1000 / catch_up_s if catch_up_s else 0.0
    backlog = lag > 0 and lag > read_rate * config.backlog_threshold_ms / 1000

    # While it catches up it may be busy all the time, and is not too large.
    most, least = (1.0, 0.0) if backlog else (config.max_utilization, config.min_utilization)
    return Evaluation(
        duration_ms=last.to_ms - first.from_ms,
        parallelism=last.parallelism,
        read_rate=read_rate,
        target_data_rate=target,
        load=total_s / seconds,
        true_processing_rate=from_busy if observed is None or not is_observed else observed,
        is_observed=is_observed,
        fixed_s=fixed_s,
        lag=lag,
        has_lag=last.pending_rows is not None,
        catch_up_data_rate=catch_up_rate,
        restart_rate=restart_rate,
        is_processing_backlog=backlog,
        scale_up_threshold=catch_up_rate + _at(target, most),
        scale_down_threshold=catch_up_rate + restart_rate + _at(target, least),
        target_capacity=catch_up_rate + restart_rate + _at(target, config.target),
        levels=tuple(_load(each, busy_s[each.level], seconds, target / read_rate if rows else 0.0) for each in levels),
    )


def _at(rate: float, utilization: float) -> float:
    """Return the capacity of which this rate uses that share."""
    return rate / utilization if utilization > 0 else inf


def _together(samples: Sequence[EpochSample]) -> tuple[LevelSample, ...]:
    by_level: dict[int, list[LevelSample]] = {}
    for sample in samples:
        for each in sample.levels:
            by_level.setdefault(each.level, []).append(each)
    return tuple(LevelSample.total(by_level[level]) for level in sorted(by_level))


def _busy_ms(level: LevelSample, aggregator: BusyTimeAggregator) -> float:
    match aggregator:
        case BusyTimeAggregator.MAX:
            return level.busy_max_ms
        case BusyTimeAggregator.MIN:
            return level.busy_min_ms
        case BusyTimeAggregator.AVG:
            return level.busy_avg_ms


def _fixed_s(samples: Sequence[EpochSample], busy_s: float, row_limit: int | None) -> float:
    """Return the seconds per row that epochs take besides rows: planning, starting tasks, collecting their reports. An epoch
    whose rows are not limited becomes larger instead, until that part does not matter."""
    if not row_limit:
        return 0.0
    working_s = sum(each.working_ms for each in samples) / 1000
    return max(0.0, working_s - busy_s) / sum(each.epochs for each in samples) / row_limit


def _arrival_rate(samples: Sequence[EpochSample], read_rate: float) -> float:
    """Return what arrived between the start of the last epoch of the first sample and that of the last one: the rows that were
    read of it, and those that were not. With a single sample, what was read."""
    first = samples[0]
    last = samples[-1]
    seconds = (last.last_began_ms - first.last_began_ms) / 1000
    if seconds <= 0:
        return read_rate
    growth = (last.pending_rows or 0) - (first.pending_rows or 0)
    return max(0.0, (sum(each.rows_in for each in samples[1:]) + growth) / seconds)


def _arrived_meanwhile(last: EpochSample, rate: float) -> float:
    """Rows that arrived during the last epoch. A job that waits between its epochs has read them by now."""
    is_waiting = last.working_ms < _NO_PAUSE * last.duration_ms
    return 0.0 if is_waiting else rate * (last.to_ms - last.last_began_ms) / 1000


def _observed_rate(samples: Sequence[EpochSample], config: AutoscalerConfig) -> float | None:
    """Return the average rate while there was enough backlog to read as fast as possible. None: there were too few such
    samples."""
    rates = []
    for each in samples:
        if not each.rows_in or not each.pending_rows or not each.working_ms:
            continue
        # Over the time in which it worked: that it waited for its trigger or for a sink says nothing about what it can do.
        rate = each.rows_in * 1000 / each.working_ms
        if each.pending_rows >= rate * config.observed_lag_ms / 1000:
            rates.append(rate)
    return sum(rates) / len(rates) if len(rates) >= config.observed_count else None


def _load(level: LevelSample, busy_s: float, seconds: float, growth: float) -> LevelLoad:
    """`growth`: what arrives at the sources, as a multiple of what was read."""
    return LevelLoad(
        level=level.level,
        load=busy_s / seconds,
        true_processing_rate=level.rows_in / busy_s if level.rows_in and busy_s else inf,
        target_data_rate=level.rows_in / seconds * growth,
    )
