"""How the autoscaler decides, read from its options."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.config.choices import BusyTimeAggregator, ParallelismAlignment
from tidegate.config.declared import autoscaler as a
from tidegate.config.reading import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerConfig:
    """The options `job.autoscaler.*`, with their defaults."""

    enabled: bool = a.ENABLED.default
    scaling_enabled: bool = a.SCALING_ENABLED.default
    window_ms: int = a.WINDOW.default
    stabilization_ms: int = a.STABILIZATION.default
    target: float = a.TARGET.default
    """Utilizations are shares from 0 to 1."""
    min_utilization: float = a.TARGET.default - a.BOUNDARY.default
    max_utilization: float = a.TARGET.default + a.BOUNDARY.default
    scale_down_interval_ms: int = a.SCALE_DOWN_INTERVAL.default
    min_parallelism: int = a.MIN_PARALLELISM.default
    max_parallelism: int = a.MAX_PARALLELISM.default
    scale_down_factor: float = a.SCALE_DOWN_FACTOR.default
    scale_up_factor: float = a.SCALE_UP_FACTOR.default
    catch_up_ms: int = a.CATCH_UP.default
    restart_ms: int = a.RESTART_TIME.default
    tracks_restarts: bool = a.RESTART_TRACKING.default
    restart_limit_ms: int = a.RESTART_LIMIT.default
    backlog_threshold_ms: int = a.BACKLOG_THRESHOLD.default
    observed_lag_ms: int = a.OBSERVED_LAG.default
    observed_switch: float = a.OBSERVED_SWITCH.default
    observed_count: int = a.OBSERVED_COUNT.default
    blocks_ineffective: bool = a.EFFECTIVENESS.default
    effectiveness: float = a.EFFECTIVENESS_THRESHOLD.default
    history_count: int = a.HISTORY_COUNT.default
    history_age_ms: int = a.HISTORY_AGE.default
    aggregator: BusyTimeAggregator = a.AGGREGATOR.default
    alignment: ParallelismAlignment = a.ALIGNMENT.default

    @classmethod
    def of(cls, options: Options) -> AutoscalerConfig:
        target, boundary = options[a.TARGET], options[a.BOUNDARY]
        # As in Flink's operator, explicit bounds win over the target's boundary. A utilization is a share, so 0 and 1 are limits.
        least, most = options[a.MIN_UTILIZATION], options[a.MAX_UTILIZATION]
        return cls(
            enabled=options[a.ENABLED],
            scaling_enabled=options[a.SCALING_ENABLED],
            window_ms=options[a.WINDOW],
            stabilization_ms=options[a.STABILIZATION],
            target=target,
            min_utilization=max(0.0, target - boundary) if least is None else least,
            max_utilization=min(1.0, target + boundary) if most is None else most,
            scale_down_interval_ms=options[a.SCALE_DOWN_INTERVAL],
            min_parallelism=options[a.MIN_PARALLELISM],
            max_parallelism=options[a.MAX_PARALLELISM],
            scale_down_factor=options[a.SCALE_DOWN_FACTOR],
            scale_up_factor=options[a.SCALE_UP_FACTOR],
            catch_up_ms=options[a.CATCH_UP],
            restart_ms=options[a.RESTART_TIME],
            tracks_restarts=options[a.RESTART_TRACKING],
            restart_limit_ms=options[a.RESTART_LIMIT],
            backlog_threshold_ms=options[a.BACKLOG_THRESHOLD],
            observed_lag_ms=options[a.OBSERVED_LAG],
            observed_switch=options[a.OBSERVED_SWITCH],
            observed_count=options[a.OBSERVED_COUNT],
            blocks_ineffective=options[a.EFFECTIVENESS],
            effectiveness=options[a.EFFECTIVENESS_THRESHOLD],
            history_count=options[a.HISTORY_COUNT],
            history_age_ms=options[a.HISTORY_AGE],
            aggregator=options[a.AGGREGATOR],
            alignment=options[a.ALIGNMENT],
        )
