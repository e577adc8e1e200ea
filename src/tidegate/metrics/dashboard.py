"""The dashboard that tidegate ships for Grafana: which panels there are, and what each asks Prometheus.

Queries are made from the catalog, so none can name a metric that does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidegate.metrics import catalog as c
from tidegate.metrics.metric import Metric


class Unit(StrEnum):
    """Grafana's names of units."""

    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    ROWS_PER_SECOND = "rowsps"
    REQUESTS_PER_SECOND = "reqps"
    SHARE = "percentunit"
    DOLLARS = "currencyUSD"
    COUNT = "short"


class Look(StrEnum):
    """Grafana's names of panels."""

    NUMBER = "stat"
    CHART = "timeseries"


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    title: str
    about: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    look: Look = Look.CHART
    limits: tuple[float, float] | None = None
    """Yellow from the first value on, red from the second. Falling limits mean that less is worse."""
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    panels: tuple[Panel, ...]


_JOBS = 'job=~"$job"'
# Grafana chooses at least four scrape intervals: `rate` needs two samples, also when a scrape is missed.
_RANGE = "[$__rate_interval]"


def _now(metric: Metric, labels: str = "") -> str:
    return f"{metric.prometheus_name}{{{_JOBS}{labels and f', {labels}'}}}"


def _rate(metric: Metric, by: str = "job") -> str:
    return f"sum by ({by}) (rate({_now(metric)}{_RANGE}))"


def _number(
    title: str, about: str, expr: str, unit: Unit = Unit.COUNT, limits: tuple[float, float] | None = None
) -> Panel:
    query = Query(expr, "{{job}}")
    return Panel(title=title, about=about, queries=(query,), unit=unit, look=Look.NUMBER, limits=limits)


def _chart(title: str, metric: Metric, unit: Unit, legend: str) -> Panel:
    return Panel(title=title, about=metric.help, queries=(Query(_now(metric), legend),), unit=unit)


# Limits turn red where an alert fires with default settings: see `AlertSettings`.
_HEALTH = Section(
    "Is it healthy?",
    (
        Panel(
            title="Status",
            about="The status of each job.",
            queries=(Query(f"{_now(c.STATE)} == 1", "{{job}}: {{status}}"),),
            look=Look.NUMBER,
        ),
        _number(
            "Work since the last checkpoint",
            c.UNPROTECTED_AGE.help + " In checkpoint intervals.",
            f"{_now(c.UNPROTECTED_AGE)} / {_now(c.CHECKPOINT_INTERVAL)}",
            limits=(2, 3),
        ),
        _number("Rows read", "Over all sources.", _rate(c.SOURCE_RECORDS), Unit.ROWS_PER_SECOND),
        _number("Watermark lag", c.WATERMARK_LAG.help, _now(c.WATERMARK_LAG), Unit.SECONDS),
        _number(
            "Oldest waiting output",
            c.OLDEST_WAITING.help,
            f"max by (job) ({_now(c.OLDEST_WAITING)})",
            Unit.SECONDS,
            limits=(60, 300),
        ),
        _number("Restarts", c.RESTARTS.help, _now(c.RESTARTS), limits=(1, 4)),
    ),
)

_FLOW = Section(
    "Is it keeping up?",
    (
        Panel(
            title="Rows read by source",
            about=c.SOURCE_RECORDS.help,
            unit=Unit.ROWS_PER_SECOND,
            queries=(Query(_rate(c.SOURCE_RECORDS, "job, source"), "{{job}} {{source}}"),),
        ),
        _chart("Rows waiting in Kafka", c.PENDING_RECORDS, Unit.COUNT, "{{job}} {{source}}"),
        _chart("Event-time lag", c.EVENT_TIME_LAG, Unit.SECONDS, "{{job}} {{source}}"),
        Panel(
            title="Rows by operator",
            about="Rows received and emitted.",
            unit=Unit.ROWS_PER_SECOND,
            queries=(
                Query(_rate(c.RECORDS_IN, "job, operator"), "{{job}} {{operator}} in"),
                Query(_rate(c.RECORDS_OUT, "job, operator"), "{{job}} {{operator}} out"),
            ),
        ),
        Panel(
            title="Epoch duration",
            about="The last epoch and its phases.",
            unit=Unit.SECONDS,
            queries=(
                Query(_now(c.EPOCH_DURATION), "{{job}}"),
                Query(_now(c.EPOCH_PHASE), "{{job}} {{phase}}"),
            ),
        ),
        Panel(
            title="Epochs",
            about="Accepted, repeated and rewound epochs.",
            queries=(
                Query(_rate(c.EPOCHS), "{{job}} accepted per second"),
                Query(f"increase({_now(c.EPOCHS_REPEATED)}{_RANGE})", "{{job}} repeated"),
                Query(f"increase({_now(c.REWINDS)}{_RANGE})", "{{job}} rewinds"),
            ),
        ),
    ),
)

_CHECKPOINTS = Section(
    "Checkpoints",
    (
        _chart("Duration", c.LAST_CHECKPOINT_DURATION, Unit.SECONDS, "{{job}}"),
        Panel(
            title="Age and interval",
            about="How old the last checkpoint is, and how often one is taken.",
            unit=Unit.SECONDS,
            queries=(
                Query(f"time() - {_now(c.LAST_CHECKPOINT_COMPLETED)}", "{{job}} age"),
                Query(_now(c.UNPROTECTED_AGE), "{{job}} unprotected work"),
                Query(_now(c.CHECKPOINT_INTERVAL), "{{job}} interval"),
            ),
        ),
        Panel(
            title="Size",
            about="What the last checkpoint uploaded, its full size, and its metadata.",
            unit=Unit.BYTES,
            queries=(
                Query(_now(c.LAST_CHECKPOINT_SIZE), "{{job}} uploaded"),
                Query(_now(c.LAST_CHECKPOINT_FULL_SIZE), "{{job}} full"),
                Query(_now(c.LAST_CHECKPOINT_METADATA_SIZE), "{{job}} metadata"),
            ),
        ),
        Panel(
            title="Completed and failed",
            about="Checkpoints that ended in the interval of the chart.",
            queries=(
                Query(f"increase({_now(c.CHECKPOINTS_COMPLETED)}{_RANGE})", "{{job}} completed"),
                Query(f"increase({_now(c.CHECKPOINTS_FAILED)}{_RANGE})", "{{job}} failed"),
            ),
        ),
        Panel(
            title="Storage requests",
            about=c.STORAGE_REQUESTS.help,
            unit=Unit.REQUESTS_PER_SECOND,
            stacked=True,
            queries=(Query(_rate(c.STORAGE_REQUESTS, "job, kind"), "{{job}} {{kind}}"),),
        ),
        Panel(
            title="Storage traffic",
            about=c.STORAGE_BYTES.help,
            unit=Unit.BYTES_PER_SECOND,
            queries=(Query(_rate(c.STORAGE_BYTES, "job, kind"), "{{job}} {{kind}}"),),
        ),
        _number("Storage cost per day", c.STORAGE_COST.help, _now(c.STORAGE_COST), Unit.DOLLARS),
    ),
)

_OUTPUT = Section(
    "Output",
    (
        Panel(
            title="Rows written by sink",
            about=c.RECORDS_SEND.help,
            unit=Unit.ROWS_PER_SECOND,
            queries=(Query(_rate(c.RECORDS_SEND, "job, sink"), "{{job}} {{sink}}"),),
        ),
        _chart("Epochs that wait for the target", c.OUTPUT_WAITING, Unit.COUNT, "{{job}} {{sink}}"),
        _chart("Bytes that wait for the target", c.OUTPUT_WAITING_BYTES, Unit.BYTES, "{{job}} {{sink}}"),
        _chart("Age of the oldest waiting output", c.OLDEST_WAITING, Unit.SECONDS, "{{job}} {{sink}}"),
        _chart("Commit duration", c.COMMIT_DURATION, Unit.SECONDS, "{{job}} {{sink}}"),
        _chart("Target refuses", c.SEND_ERRORS, Unit.COUNT, "{{job}} {{sink}}"),
    ),
)

_TASKS = Section(
    "Tasks",
    (
        _chart("Busy", c.BUSY, Unit.SHARE, "{{job}} {{task}}"),
        _chart("Idle", c.IDLE, Unit.SHARE, "{{job}} {{task}}"),
        _chart("Held by a later task", c.HELD, Unit.SHARE, "{{job}} {{task}}"),
        _chart("State on local disk", c.STATE_SIZE, Unit.BYTES, "{{job}} {{task}}"),
        _chart("Memory of the Python worker", c.RESIDENT, Unit.BYTES, "{{job}} {{task}}"),
        Panel(
            title="Memory in use",
            about="Share of the tightest limit around the task.",
            unit=Unit.SHARE,
            queries=(Query(f"{_now(c.MEMORY_USED)} / {_now(c.MEMORY_BUDGET)}", "{{job}} {{task}}"),),
            limits=(0.8, 0.9),
        ),
        Panel(
            title="Free disk",
            about="Share of the disk on which the task keeps its state.",
            unit=Unit.SHARE,
            queries=(Query(f"{_now(c.DISK_FREE)} / {_now(c.DISK_SIZE)}", "{{job}} {{task}}"),),
            limits=(0.2, 0.1),
        ),
        Panel(
            title="Rows dropped",
            about="Too late for their windows, or passed over because a function raised.",
            unit=Unit.ROWS_PER_SECOND,
            queries=(
                Query(_rate(c.LATE_DROPPED), "{{job}} late"),
                Query(_rate(c.RECORDS_IN_ERRORS), "{{job}} failed"),
            ),
        ),
    ),
)

SECTIONS: tuple[Section, ...] = (_HEALTH, _FLOW, _CHECKPOINTS, _OUTPUT, _TASKS)
