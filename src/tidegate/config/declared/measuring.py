"""What is measured. The keys of state accesses are Flink's."""

from __future__ import annotations

from tidegate.config.option import BOOL, FLOAT, INT, Option, at_least
from tidegate.core.storage_cost import LIST_PRICES

TITLE = "Measuring"

TASKS: Option[bool] = Option(
    "metrics.tasks.enabled",
    BOOL,
    True,
    "Measure in tasks: time, bytes, memory, timers, hot keys, and what the state backend reports. If off, the metrics of the "
    "job, of its operators, of checkpoints and of sinks remain.",
)
HOT_KEYS: Option[bool] = Option(
    "metrics.hot-keys.enabled",
    BOOL,
    True,
    "Find the keys with the most rows of each keyed operator, in a sample of at most 256 rows of each batch, and the key of the "
    "longest use of each `ctx.span`.",
)
LATENCY_ENABLED: Option[bool] = Option(
    "state.latency-track.keyed-state-enabled",
    BOOL,
    False,
    "Measure how long accesses to keyed state take. Costs some tens of nanoseconds for each access that is not measured.",
    old_keys=("state.backend.latency-track.keyed-state-enabled",),
)
LATENCY_INTERVAL: Option[int] = Option(
    "state.latency-track.sample-interval",
    INT,
    100,
    "Measure one access in this many, of each state and each kind of access.",
    old_keys=("state.backend.latency-track.sample-interval",),
    check=at_least(1),
)
LATENCY_HISTORY: Option[int] = Option(
    "state.latency-track.history-size",
    INT,
    128,
    "Measurements that quantiles are made of: the last ones of each state and kind of access in an epoch.",
    old_keys=("state.backend.latency-track.history-size",),
    check=at_least(1),
)
LATENCY_BY_STATE: Option[bool] = Option(
    "state.latency-track.state-name-as-variable",
    BOOL,
    True,
    "Label measurements with the name of the state. If off, all states of an operator are measured together.",
    old_keys=("state.backend.latency-track.state-name-as-variable",),
)
SIZE_ENABLED: Option[bool] = Option(
    "state.size-track.keyed-state-enabled",
    BOOL,
    False,
    "Measure how many bytes the keys and values of keyed state have. A measured value is encoded once more.",
)
SIZE_INTERVAL: Option[int] = Option(
    "state.size-track.sample-interval",
    INT,
    100,
    "Measure one access in this many, of each state and each kind of access.",
    check=at_least(1),
)
SIZE_HISTORY: Option[int] = Option(
    "state.size-track.history-size",
    INT,
    128,
    "Measurements that quantiles are made of: the last ones of each state and kind of access in an epoch.",
    check=at_least(1),
)
SIZE_BY_STATE: Option[bool] = Option(
    "state.size-track.state-name-as-variable",
    BOOL,
    True,
    "Label measurements with the name of the state. If off, all states of an operator are measured together.",
)

_PRICE_P = "metrics.storage-price."

PRICE_OF_WRITES: Option[float] = Option(
    _PRICE_P + "million-writes",
    FLOAT,
    LIST_PRICES.per_million_writes,
    "Dollars for a million requests that write or list (PUT, COPY, POST, LIST). Used to estimate what checkpoints and a day cost "
    "on an object store. The defaults are list prices of S3 Standard in us-east-1.",
    check=at_least(0),
)
PRICE_OF_READS: Option[float] = Option(
    _PRICE_P + "million-reads",
    FLOAT,
    LIST_PRICES.per_million_reads,
    "Dollars for a million requests that read (GET, HEAD).",
    check=at_least(0),
)
PRICE_OF_DELETES: Option[float] = Option(
    _PRICE_P + "million-deletes",
    FLOAT,
    LIST_PRICES.per_million_deletes,
    "Dollars for a million requests that delete. Most stores do not charge them.",
    check=at_least(0),
)
PRICE_OF_STORAGE: Option[float] = Option(
    _PRICE_P + "gb-month",
    FLOAT,
    LIST_PRICES.per_gb_month,
    "Dollars for a gigabyte (2^30 bytes) that is stored during 30 days.",
    check=at_least(0),
)
