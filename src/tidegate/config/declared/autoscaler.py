"""Whether [another parallelism would be better](autoscaling.md). The keys are those of Flink's Kubernetes operator."""

from __future__ import annotations

from tidegate.config.choices import BusyTimeAggregator, ParallelismAlignment
from tidegate.config.option import BOOL, DURATION, FLOAT, INT, Option, above, at_least, enum, within

TITLE = "Autoscaler"
_P = "job.autoscaler."
_MINUTE = 60_000

ENABLED: Option[bool] = Option(
    _P + "enabled",
    BOOL,
    False,
    "Measure what the autoscaler needs, and decide after each part of the window whether another parallelism would be better.",
)
SCALING_ENABLED: Option[bool] = Option(
    _P + "scaling.enabled",
    BOOL,
    False,
    "Act on decisions. Off, it only recommends: metrics, REST and `tidegate autoscale explain` show what it would do. Off by "
    "default, because a wrong decision interrupts the job and a recommendation does not.",
    flink_default="true",
)
WINDOW: Option[int] = Option(
    _P + "metrics.window",
    DURATION,
    15 * _MINUTE,
    "Decisions are made from averages over this time.",
    check=at_least(1_000, "1 s"),
)
STABILIZATION: Option[int] = Option(
    _P + "stabilization.interval",
    DURATION,
    5 * _MINUTE,
    "After a start or restart, epochs do not count for this long.",
    check=at_least(0),
)
TARGET: Option[float] = Option(
    _P + "utilization.target",
    FLOAT,
    0.7,
    "The share of the time in which tasks should be busy.",
    old_keys=(_P + "target.utilization",),
    check=within(0.01, 1),
)
BOUNDARY: Option[float] = Option(
    _P + "target.utilization.boundary",
    FLOAT,
    0.3,
    "How far utilization may be from its target, where `utilization.min` or `utilization.max` is not set.",
    check=at_least(0),
)
MAX_UTILIZATION: Option[float | None] = Option(
    _P + "utilization.max",
    FLOAT,
    None,
    "The job is not scaled up while its utilization is below this. Unset: the target plus its boundary.",
    check=within(0, 1),
)
MIN_UTILIZATION: Option[float | None] = Option(
    _P + "utilization.min",
    FLOAT,
    None,
    "The job is not scaled down while its utilization is above this. Unset: the target minus its boundary.",
    check=within(0, 1),
)
SCALE_DOWN_INTERVAL: Option[int] = Option(
    _P + "scale-down.interval",
    DURATION,
    60 * _MINUTE,
    "The job is scaled down only if that has been right for this long, and then to the greatest parallelism that was wanted "
    "meanwhile. 0: at once.",
    old_keys=(_P + "scale-up.grace-period",),
    check=at_least(0),
)
MIN_PARALLELISM: Option[int] = Option(
    _P + "vertex.min-parallelism", INT, 1, "The least parallelism that it chooses.", check=at_least(1)
)
MAX_PARALLELISM: Option[int] = Option(
    _P + "vertex.max-parallelism",
    INT,
    200,
    "The greatest parallelism that it chooses. The number of key groups is a limit as well (`pipeline.max-parallelism`).",
    check=at_least(1),
)
SCALE_DOWN_FACTOR: Option[float] = Option(
    _P + "scale-down.max-factor",
    FLOAT,
    0.6,
    "The share of the parallelism that one step may remove: 0.6 leaves at least 40 %, 1 sets no limit.",
    check=within(0, 1),
)
SCALE_UP_FACTOR: Option[float] = Option(
    _P + "scale-up.max-factor",
    FLOAT,
    100_000.0,
    "How much one step may add, as a multiple of the parallelism: 2 allows three times as much.",
    check=above(0),
)
CATCH_UP: Option[int] = Option(
    _P + "catch-up.duration",
    DURATION,
    30 * _MINUTE,
    "After a change of parallelism, any backlog should be processed within this time. 0: backlog does not count.",
    check=at_least(0),
)
RESTART_TIME: Option[int] = Option(
    _P + "restart.time",
    DURATION,
    5 * _MINUTE,
    "How long a change of parallelism is expected to interrupt the job.",
    check=at_least(0),
)
RESTART_TRACKING: Option[bool] = Option(
    _P + "restart.time-tracking.enabled",
    BOOL,
    False,
    "Expect the longest interruption by a change of parallelism that was observed, instead of `restart.time`.",
)
RESTART_LIMIT: Option[int] = Option(
    _P + "restart.time-tracking.limit",
    DURATION,
    15 * _MINUTE,
    "The longest interruption that is expected, whatever was observed.",
    check=at_least(0),
)
BACKLOG_THRESHOLD: Option[int] = Option(
    _P + "backlog-processing.lag-threshold",
    DURATION,
    5 * _MINUTE,
    "If the backlog is more than what arrives in this time, the job is catching up: it may be busy all the time, and is not "
    "scaled down.",
    check=at_least(0),
)
OBSERVED_LAG: Option[int] = Option(
    _P + "observed-true-processing-rate.lag-threshold",
    DURATION,
    30_000,
    "If the backlog is more than what is read in this time, the rate at which the job reads is all it can do, and is measured.",
    check=at_least(0),
)
OBSERVED_SWITCH: Option[float] = Option(
    _P + "observed-true-processing-rate.switch-threshold",
    FLOAT,
    0.15,
    "Use the measured rate if the one computed from busy time exceeds it by more than this share.",
    check=at_least(0),
)
OBSERVED_COUNT: Option[int] = Option(
    _P + "observed-true-processing-rate.min-observations",
    INT,
    2,
    "How many measurements that takes.",
    check=at_least(1),
)
EFFECTIVENESS: Option[bool] = Option(
    _P + "scaling.effectiveness.detection.enabled",
    BOOL,
    False,
    "Do not scale up again if the last time did not help. If off, it only says so.",
)
EFFECTIVENESS_THRESHOLD: Option[float] = Option(
    _P + "scaling.effectiveness.threshold",
    FLOAT,
    0.1,
    "Scaling up has helped if the processing rate grew by at least this share of what was expected.",
    check=within(0, 1),
)
HISTORY_COUNT: Option[int] = Option(
    _P + "history.max.count", INT, 3, "How many changes of parallelism it remembers.", check=at_least(1)
)
HISTORY_AGE: Option[int] = Option(
    _P + "history.max.age", DURATION, 24 * 60 * _MINUTE, "For how long it remembers them.", check=at_least(1)
)
AGGREGATOR: Option[BusyTimeAggregator] = Option(
    _P + "metrics.busy-time.aggregator",
    enum(BusyTimeAggregator),
    BusyTimeAggregator.MAX,
    "How busy a level is: as its slowest task, which respects skew (MAX), as the average, or as the quickest (MIN).",
)
ALIGNMENT: Option[ParallelismAlignment] = Option(
    _P + "scaling.parallelism-alignment.mode",
    enum(ParallelismAlignment),
    ParallelismAlignment.BALANCED,
    "How a parallelism is fitted to the key groups. EVENLY_SPREAD: the next one that divides their number, so that all tasks "
    "have as many. BALANCED: the next one that divides it or gives tasks fewer of them. OFF: as computed.",
)
