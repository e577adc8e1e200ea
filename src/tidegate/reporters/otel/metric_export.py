"""Metrics over OTLP: all samples of a run, at an interval."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as ExportedMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tidegate.config.reporting import ExporterConfig
from tidegate.core.log_setup import in_this_context
from tidegate.metrics.metric import Kind, Metric, Sample
from tidegate.reporters.otel.connection import connection
from tidegate.reporters.reporter import ReadSamples

log = logging.getLogger("tidegate")

_UNITS = {"ms since 1970": "ms", "ms per s": "ms/s", "bytes": "By", "": "1"}
"""The catalog's units that UCUM, which OTLP uses, writes differently."""


class MetricExport:
    """Reads and sends the samples in a separate thread."""

    def __init__(self, config: ExporterConfig, resource: Resource, job: str, interval_ms: int) -> None:
        self._exporter = OTLPMetricExporter(**connection(config))
        self._resource = resource
        self._job = job
        self._interval_s = interval_ms / 1000
        self._started_ns = time.time_ns()
        # No samples until `start`: the exporter exists before the run does.
        self._samples: ReadSamples = tuple
        self._ended = threading.Event()
        self._thread = threading.Thread(target=in_this_context(self._run), name="tidegate-otel-metrics", daemon=True)
        self._fails = False

    def start(self, samples: ReadSamples) -> None:
        self._samples = samples
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._send()
        self._send()  # The last values: a job that ran shorter than the interval has reported nothing yet.

    def _send(self) -> None:
        try:
            data = metrics_data(self._samples(), self._job, self._resource, self._started_ns, time.time_ns())
            sent = self._exporter.export(data) is MetricExportResult.SUCCESS
        except Exception as error:
            sent = False
            log.debug("metrics could not be sent: %s", error)
        # One line when the collector goes away and one when it is back, not one for each report.
        if sent is self._fails:
            self._fails = not sent
            if sent:
                log.info("metrics are sent again")
            else:
                log.warning("metrics could not be sent over OTLP; the next report tries again")

    def close(self) -> None:
        self._ended.set()
        # A run that fails while it starts never has metrics, and this thread never runs.
        if self._thread.ident is not None:
            self._thread.join()
        self._exporter.shutdown()


def metrics_data(samples: Iterable[Sample], job: str, resource: Resource, started_ns: int, now_ns: int) -> MetricsData:
    """Return samples as OTLP has them: the catalog's names and units, a data point for each combination of labels."""
    by_metric: dict[Metric, list[NumberDataPoint]] = {}
    for sample in samples:
        point = NumberDataPoint(
            attributes={"job": job, **sample.labels},
            start_time_unix_nano=started_ns if sample.metric.kind is Kind.COUNTER else 0,
            time_unix_nano=now_ns,
            value=float(sample.value),
        )
        by_metric.setdefault(sample.metric, []).append(point)
    metrics = [_exported(metric, points) for metric, points in by_metric.items()]
    scope = ScopeMetrics(scope=InstrumentationScope("tidegate"), metrics=metrics, schema_url="")
    return MetricsData(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")])


def _exported(metric: Metric, points: list[NumberDataPoint]) -> ExportedMetric:
    data: Sum | Gauge = Gauge(data_points=points)
    if metric.kind is Kind.COUNTER:
        # Cumulative since the start of the driver, as samples are: a lost report loses nothing.
        data = Sum(data_points=points, aggregation_temporality=AggregationTemporality.CUMULATIVE, is_monotonic=True)
    name = f"tidegate.{metric.scope}.{metric.name}"
    return ExportedMetric(name=name, description=metric.help, unit=_UNITS.get(metric.unit, metric.unit), data=data)
