"""The options of reporters as reporters want them: frozen, and only those that are to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.config.choices import Compression, SpanDetail
from tidegate.config.declared import reporting as r
from tidegate.config.reading import Options


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterConfig:
    """How one signal is sent over OTLP."""

    endpoint: str
    """The full address of the signal."""
    timeout_ms: int
    gzip: bool = False
    service_name: str | None = None
    service_version: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageConfig:
    url: str
    path: str
    namespace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportingConfig:
    """What is reported, and where to. None: not at all."""

    metrics: ExporterConfig | None = None
    metrics_interval_ms: int = 10_000
    traces: ExporterConfig | None = None
    span_detail: SpanDetail = SpanDetail.SPAN_PER_CHECKPOINT
    events: ExporterConfig | None = None
    lineage: LineageConfig | None = None

    @staticmethod
    def of(options: Options) -> ReportingConfig:
        url = options[r.LINEAGE_URL]
        return ReportingConfig(
            metrics=_exporter(options, "metrics", "metrics"),
            metrics_interval_ms=options[r.METRICS_INTERVAL],
            traces=_exporter(options, "traces", "traces"),
            span_detail=options[r.SPAN_DETAIL],
            events=_exporter(options, "events", "logs"),
            lineage=None
            if url is None
            else LineageConfig(url=url, path=options[r.LINEAGE_PATH], namespace=options[r.LINEAGE_NAMESPACE]),
        )


def _exporter(options: Options, signal: str, path: str) -> ExporterConfig | None:
    """The exporter of a signal, `metrics`, `traces` or `events`, whose address ends with `path`."""
    found = r.EXPORTERS[signal]
    endpoint, listed = options[found.endpoint], options[found.reporters]
    # An endpoint alone starts the reporter. A list of reporters can only leave it out.
    if endpoint is None or (listed is not None and r.OTEL not in listed):
        return None
    return ExporterConfig(
        endpoint=_address(endpoint, path),
        timeout_ms=options[found.timeout],
        gzip=options[found.compression] is Compression.GZIP,
        service_name=options[found.service],
        service_version=options[found.version],
        variables=options[found.variables],
    )


def _address(endpoint: str, signal: str) -> str:
    """The address of a signal: an endpoint with a path is used as it is."""
    host = endpoint.partition("://")[2]
    return endpoint if host.rstrip("/") != host.partition("/")[0] else f"{endpoint.rstrip('/')}/v1/{signal}"
