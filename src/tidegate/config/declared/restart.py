"""What happens after a failure that Spark's own retries of a task did not mend."""

from __future__ import annotations

from tidegate.config.choices import RestartType
from tidegate.config.option import DURATION, FLOAT, INT, Option, above, at_least, enum, within
from tidegate.config.restart_strategy import FOREVER

TITLE = "Restart strategies"
_P = "restart-strategy."

TYPE: Option[RestartType | None] = Option(
    _P + "type",
    enum(RestartType, aliases={"off": RestartType.NONE, "disable": RestartType.NONE}),
    None,
    "`none` (also `off`, `disable`), `fixed-delay`, `failure-rate`, `exponential-delay`, or `fallback`: what the "
    "cluster's configuration says. Unset: exponential-delay if checkpointing is on, otherwise none.",
    old_keys=("restart-strategy",),
)
FIXED_ATTEMPTS: Option[int] = Option(
    _P + "fixed-delay.attempts", INT, 1, "Restarts before the job fails for good.", check=at_least(0)
)
FIXED_DELAY: Option[int] = Option(_P + "fixed-delay.delay", DURATION, 1_000, "Wait before each restart.")
RATE_MAX_FAILURES: Option[int] = Option(
    _P + "failure-rate.max-failures-per-interval",
    INT,
    1,
    "Failures in an interval that are answered by a restart.",
    check=at_least(0),
)
RATE_INTERVAL: Option[int] = Option(
    _P + "failure-rate.failure-rate-interval", DURATION, 60_000, "The interval.", check=at_least(1, "1 ms")
)
RATE_DELAY: Option[int] = Option(_P + "failure-rate.delay", DURATION, 1_000, "Wait before each restart.")
EXP_INITIAL: Option[int] = Option(
    _P + "exponential-delay.initial-backoff",
    DURATION,
    1_000,
    "First wait, and the shortest.",
    check=at_least(1, "1 ms"),
)
EXP_MAX: Option[int] = Option(
    _P + "exponential-delay.max-backoff", DURATION, 60_000, "Longest wait.", check=at_least(1, "1 ms")
)
EXP_MULTIPLIER: Option[float] = Option(
    _P + "exponential-delay.backoff-multiplier", FLOAT, 1.5, "Each wait is this many times the last.", check=above(1)
)
EXP_RESET: Option[int] = Option(
    _P + "exponential-delay.reset-backoff-threshold",
    DURATION,
    3_600_000,
    "After running this long without a failure the wait starts at initial-backoff again.",
    check=at_least(1, "1 ms"),
)
EXP_JITTER: Option[float] = Option(
    _P + "exponential-delay.jitter-factor",
    FLOAT,
    0.1,
    "Share of the wait that is added or taken away at random, so that many jobs do not start at one moment.",
    check=within(0, 1),
)
EXP_ATTEMPTS: Option[int] = Option(
    _P + "exponential-delay.attempts-before-reset-backoff",
    INT,
    FOREVER,
    "Restarts without a reset before the job fails for good.",
    check=at_least(1),
)
