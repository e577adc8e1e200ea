"""A collector for OTLP over HTTP that decodes what it is sent, and keeps it."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

REQUESTS: dict[str, Any] = {
    "/v1/metrics": ExportMetricsServiceRequest,
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
}


def values(attributes: Any) -> dict[str, Any]:
    """Attributes of a span, a record or a data point as a dict."""
    return {each.key: _value(each.value) for each in attributes if isinstance(each, KeyValue)}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)


class Collector:
    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.heard: list[str] = []
        """The paths of all requests."""

    def spans(self) -> list[Any]:
        found = [each for each in tuple(self.requests) if isinstance(each, ExportTraceServiceRequest)]
        return [
            span for each in found for one in each.resource_spans for scope in one.scope_spans for span in scope.spans
        ]

    def records(self) -> list[Any]:
        found = [each for each in tuple(self.requests) if isinstance(each, ExportLogsServiceRequest)]
        return [
            r for each in found for one in each.resource_logs for scope in one.scope_logs for r in scope.log_records
        ]

    def metrics(self) -> dict[str, dict[tuple[str, ...], float]]:
        """Metric → the values of its labels besides `job` → the last value."""
        latest: dict[str, dict[tuple[str, ...], float]] = {}
        for request in [each for each in tuple(self.requests) if isinstance(each, ExportMetricsServiceRequest)]:
            for resource in request.resource_metrics:
                for metric in [metric for scope in resource.scope_metrics for metric in scope.metrics]:
                    points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
                    for point in points:
                        labels = tuple(v for k, v in values(point.attributes).items() if k != "job")
                        latest.setdefault(metric.name, {})[labels] = point.as_double
        return latest

    def resources(self) -> list[dict[str, Any]]:
        fields = ("resource_spans", "resource_logs", "resource_metrics")
        found = [one for each in tuple(self.requests) for name in fields for one in getattr(each, name, ())]
        return [values(one.resource.attributes) for one in found]

    def wait(self, for_what: Callable[[], Any], within_s: float = 60) -> None:
        until = time.monotonic() + within_s
        while not for_what():
            assert time.monotonic() < until, f"heard only {self.heard}"
            time.sleep(0.05)


@contextmanager
def collector(status: int = 200) -> Iterator[tuple[Collector, str]]:
    """A collector and its address. With another status than 200, it refuses everything."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.heard.append(self.path)
            if status == 200:
                found.requests.append(REQUESTS[self.path].FromString(body))
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield found, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
