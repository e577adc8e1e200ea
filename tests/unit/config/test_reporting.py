"""Which reporters start, by Flink's keys."""

from __future__ import annotations

import pytest

from tidegate.config import OptionError, read_options
from tidegate.config.choices import SpanDetail
from tidegate.config.reporting import ReportingConfig

ENDPOINT = "metrics.reporter.otel.exporter.endpoint"


def config(**options: str) -> ReportingConfig:
    return ReportingConfig.of(read_options({key.replace("__", "."): value for key, value in options.items()}))


def test_nothing_is_reported_by_default() -> None:
    found = config()
    assert (found.metrics, found.traces, found.events, found.lineage) == (None, None, None, None)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("http://collector:4318", "http://collector:4318/v1/metrics"),
        ("http://collector:4318/", "http://collector:4318/v1/metrics"),
        ("https://otel.example/prefix/v1/metrics", "https://otel.example/prefix/v1/metrics"),
    ],
)
def test_an_address_without_a_path_gets_that_of_the_signal(given: str, address: str) -> None:
    found = ReportingConfig.of(read_options({ENDPOINT: given}))
    assert found.metrics is not None
    assert found.metrics.endpoint == address


def test_events_go_to_the_address_of_logs() -> None:
    found = ReportingConfig.of(read_options({"events.reporter.otel.exporter.endpoint": "http://c:4318"}))
    assert found.events is not None
    assert found.events.endpoint == "http://c:4318/v1/logs"


def test_a_list_of_reporters_chooses() -> None:
    assert ReportingConfig.of(read_options({ENDPOINT: "http://c", "metrics.reporters": "prom"})).metrics is None
    assert (
        ReportingConfig.of(read_options({ENDPOINT: "http://c", "metrics.reporters": "prom, otel"})).metrics is not None
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"traces.reporters": "otel"}, "traces.reporter.otel.exporter.endpoint must say where traces go"),
        ({ENDPOINT: "collector:4318"}, "be an address such as http://127.0.0.1:4318"),
        ({"events.reporter.otel.exporter.protocol": "gRPC"}, "OTLP is sent over HTTP"),
        ({"metrics.reporter.otel.scope.variables.additional": "region"}, "name:value"),
        ({"log.format": "xml"}, "one of text, json"),
        (
            {"metrics.reporter.otel.exporter.endpont": "http://c"},
            "Did you mean metrics.reporter.otel.exporter.endpoint",
        ),
    ],
)
def test_mistakes_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read_options(options)


def test_everything_else_is_read_as_in_flink() -> None:
    options = {
        ENDPOINT: "http://c",
        "metrics.reporter.otel.interval": "2 s",
        "metrics.reporter.otel.exporter.timeout": "3 s",
        "metrics.reporter.otel.exporter.compression": "gzip",
        "metrics.reporter.otel.service.name": "shop",
        "metrics.reporter.otel.scope.variables.additional": "region:eu-west-1, stage:test",
        "traces.checkpoint.span-detail-level": "children_spans_per_task",
        "metrics.reporter.otel.factory.class": "org.apache.flink.metrics.otel.OpenTelemetryMetricReporterFactory",
    }
    read = read_options(options)
    found = ReportingConfig.of(read)
    assert found.metrics is not None
    assert (found.metrics_interval_ms, found.metrics.timeout_ms, found.metrics.gzip) == (2_000, 3_000, True)
    assert found.metrics.variables == {"region": "eu-west-1", "stage": "test"}
    assert found.span_detail is SpanDetail.CHILDREN_SPANS_PER_TASK
    assert ["built in" in note.text for note in read.notes] == [True]
