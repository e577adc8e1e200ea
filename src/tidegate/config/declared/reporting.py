"""Where a job reports to: its log, and collectors for metrics, spans and events. Reporters are extras: `otel`, `openlineage`.

As in Flink, a reporter starts if its endpoint is set, unless a list of reporters leaves it out. The one reporter for OTLP is
called `otel`; metrics for Prometheus need no reporter ([metrics](metrics.md)).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tidegate.config.choices import Compression, ExporterProtocol, LogFormat, SpanDetail
from tidegate.config.option import DURATION, LIST, NAMED, TEXT, Option, at_least, enum

TITLE = "Logs, metrics, traces and events"
OTEL = "otel"
"""The name of the reporter."""

LOG_FORMAT: Option[LogFormat] = Option(
    "log.format",
    enum(LogFormat),
    LogFormat.TEXT,
    "`text` or `json`: how the job writes its log, unless the program has configured `logging`. Also `--log-format` of "
    "`tidegate run` and the environment variable TIDEGATE_LOG_FORMAT.",
)


def _url(value: str) -> str | None:
    return None if value.startswith(("http://", "https://")) else "be an address such as http://127.0.0.1:4318"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterOptions:
    """The options of the reporter `otel` for one signal."""

    reporters: Option[tuple[str, ...] | None]
    endpoint: Option[str | None]
    protocol: Option[ExporterProtocol]
    timeout: Option[int]
    compression: Option[Compression]
    service: Option[str | None]
    version: Option[str | None]
    variables: Option[Mapping[str, str]]


def _exporter(signal: str, path: str) -> ExporterOptions:
    prefix = f"{signal}.reporter.otel."
    # One function for three signals, because Flink has the same keys for the reporter of each.
    return ExporterOptions(
        reporters=Option(
            f"{signal}.reporters", LIST, None, f"Names of the reporters of {signal} to start. Unset: all."
        ),
        endpoint=Option(
            prefix + "exporter.endpoint",
            TEXT,
            None,
            f"Address of the collector for {signal}. `/v1/{path}` is appended to one without a path.",
            check=_url,
        ),
        protocol=Option(
            prefix + "exporter.protocol",
            enum(ExporterProtocol, hints={"grpc": "OTLP is sent over HTTP; collectors listen on port 4318 for it"}),
            ExporterProtocol.HTTP,
            "Only `HTTP`: a second library for gRPC would bring nothing else.",
            flink_default="gRPC",
        ),
        timeout=Option(
            prefix + "exporter.timeout",
            DURATION,
            10_000,
            "How long one request may take.",
            check=at_least(1, "1 ms"),
        ),
        compression=Option(prefix + "exporter.compression", enum(Compression), Compression.NONE, "`none` or `gzip`."),
        service=Option(prefix + "service.name", TEXT, None, "`service.name` of the resource. Unset: the job's name."),
        version=Option(prefix + "service.version", TEXT, None, "`service.version` of the resource."),
        variables=Option(
            prefix + "scope.variables.additional",
            NAMED,
            {},
            "Attributes that everything gets, such as `region:eu-west-1,environment:test`.",
        ),
    )


EXPORTERS = {
    "metrics": _exporter("metrics", "metrics"),
    "traces": _exporter("traces", "traces"),
    "events": _exporter("events", "logs"),
}
METRICS_INTERVAL: Option[int] = Option(
    "metrics.reporter.otel.interval", DURATION, 10_000, "Time between two reports.", check=at_least(1, "1 ms")
)
SPAN_DETAIL: Option[SpanDetail] = Option(
    "traces.checkpoint.span-detail-level",
    enum(SpanDetail),
    SpanDetail.SPAN_PER_CHECKPOINT,
    "`SPAN_PER_CHECKPOINT`: one span with sums and maxima over the tasks; `SPAN_PER_CHECKPOINT_WITH_TASKS`: also their values "
    "by level; `CHILDREN_SPANS_PER_TASK`: a child span for each level; `CHILDREN_SPANS_PER_SUBTASK`: below those, one for each "
    "task, with its phases.",
)
LINEAGE_URL: Option[str | None] = Option(
    "openlineage.transport.url", TEXT, None, "Address of the service that takes OpenLineage's run events.", check=_url
)
LINEAGE_PATH: Option[str] = Option("openlineage.transport.endpoint", TEXT, "api/v1/lineage", "Path of that service.")
LINEAGE_NAMESPACE: Option[str] = Option(
    "openlineage.namespace", TEXT, "default", "Namespace of the job in OpenLineage."
)

OPTIONS: tuple[Option[Any], ...] = (
    LOG_FORMAT,
    *(getattr(found, field.name) for found in EXPORTERS.values() for field in fields(found)),
    METRICS_INTERVAL,
    SPAN_DETAIL,
    LINEAGE_URL,
    LINEAGE_PATH,
    LINEAGE_NAMESPACE,
)
"""All of them: those of exporters are not names of this module."""
