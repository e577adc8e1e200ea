"""Spans over OTLP."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from tidegate.config.reporting import ExporterConfig
from tidegate.reporters.otel.connection import connection
from tidegate.reporters.span_tree import SpanTree


class SpanExport:
    """Collects spans and sends them in batches, in a thread of the library."""

    def __init__(self, config: ExporterConfig, resource: Resource, job: str) -> None:
        self._job = job
        # `close` shuts it down with the job. The exit handler of the library would do it again, for a job long gone.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**connection(config))))
        self._tracer = self._provider.get_tracer("tidegate")

    def send(self, tree: SpanTree) -> None:
        # An empty context: the spans of a job do not belong to a trace of the program that runs it.
        self._start(tree, Context())

    def _start(self, tree: SpanTree, parent: Context) -> None:
        attributes = {"job": self._job, **tree.attributes}
        span = self._tracer.start_span(
            tree.name,
            context=parent,
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=nanoseconds(tree.start_ms),
        )
        if tree.error is not None:
            span.set_status(Status(StatusCode.ERROR, tree.error))
        for child in tree.children:
            self._start(child, set_span_in_context(span, parent))
        span.end(end_time=nanoseconds(tree.end_ms))

    def close(self) -> None:
        self._provider.shutdown()


def nanoseconds(ms: float) -> int:
    # To a microsecond: a float of today's milliseconds holds no more, and a child would begin before its parent.
    return round(ms * 1_000) * 1_000
