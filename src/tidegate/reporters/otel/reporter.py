"""The reporter `otel`: what a job measures and what happens to it, for any collector that takes OTLP over HTTP."""

from __future__ import annotations

import logging

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource

from tidegate.config.reporting import ExporterConfig, ReportingConfig
from tidegate.events.event import (
    CheckpointEvent,
    EpochEvent,
    JobEvent,
    JobFailureEvent,
    JobInitializationEvent,
    JobStatusChangeEvent,
    RescaleEvent,
)
from tidegate.reporters.otel.event_export import EventExport
from tidegate.reporters.otel.metric_export import MetricExport
from tidegate.reporters.otel.span_export import SpanExport
from tidegate.reporters.reporter import ReadSamples, Reporter
from tidegate.reporters.span_tree import SpanTree, checkpoint_span, epoch_span, initialization_span


class OtelReporter(Reporter):
    """Sends each signal whose endpoint is set. A collector that does not answer costs the job nothing but what it misses."""

    def __init__(self, config: ReportingConfig, job: str) -> None:
        self._detail = config.span_detail
        self._metrics: MetricExport | None = None
        self._spans: SpanExport | None = None
        self._events: EventExport | None = None
        # A resource for each signal: service name and variables may differ, as may the collector.
        if config.metrics is not None:
            resource = _resource(config.metrics, job)
            self._metrics = MetricExport(config.metrics, resource, job, config.metrics_interval_ms)
        if config.traces is not None:
            self._spans = SpanExport(config.traces, _resource(config.traces, job), job)
        if config.events is not None:
            self._events = EventExport(config.events, _resource(config.events, job))
        # It would log a traceback for every request that fails. One line each is enough.
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)

    def watch(self, samples: ReadSamples) -> None:
        if self._metrics is not None:
            self._metrics.start(samples)

    def on_epoch(self, event: EpochEvent) -> None:
        self._trace(epoch_span(event))
        self._emit(event)

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        self._trace(checkpoint_span(event, self._detail))
        self._emit(event)

    def on_initialization(self, event: JobInitializationEvent) -> None:
        self._trace(initialization_span(event))
        self._emit(event)

    def on_status_change(self, event: JobStatusChangeEvent) -> None:
        self._emit(event)

    def on_failure(self, event: JobFailureEvent) -> None:
        self._emit(event)

    def on_rescale(self, event: RescaleEvent) -> None:
        self._emit(event)

    def _trace(self, tree: SpanTree) -> None:
        if self._spans is not None:
            self._spans.send(tree)

    def _emit(self, event: JobEvent) -> None:
        if self._events is not None:
            self._events.send(event)

    def close(self) -> None:
        """Send what is left, and the metrics once more."""
        for export in (self._spans, self._events, self._metrics):
            if export is not None:
                export.close()


def _resource(config: ExporterConfig, job: str) -> Resource:
    attributes = {SERVICE_NAME: config.service_name or job, **config.variables}
    if config.service_version is not None:
        attributes[SERVICE_VERSION] = config.service_version
    return Resource.create(attributes)
