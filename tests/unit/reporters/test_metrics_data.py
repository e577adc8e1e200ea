"""Samples as OTLP has them."""

from __future__ import annotations

from opentelemetry.sdk.metrics.export import Gauge, Sum
from opentelemetry.sdk.resources import Resource

from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.reporters.otel.metric_export import metrics_data


def test_metrics_keep_their_names_units_and_labels() -> None:
    samples = [
        Sample(catalog.LAST_CHECKPOINT_DURATION, 1_500),
        Sample(catalog.RECORDS_IN, 7, {"operator": "count"}),
        Sample(catalog.RECORDS_IN, 8, {"operator": "other"}),
    ]
    data = metrics_data(samples, "shop", Resource.create({}), started_ns=5, now_ns=9)
    duration, records = data.resource_metrics[0].scope_metrics[0].metrics
    assert (duration.name, duration.unit) == ("tidegate.job.lastCheckpointDuration", "ms")
    assert isinstance(duration.data, Gauge)
    assert [(dict(p.attributes or {}), p.value) for p in duration.data.data_points] == [({"job": "shop"}, 1_500)]
    assert records.name == "tidegate.operator.numRecordsIn"
    assert isinstance(records.data, Sum)
    assert records.data.is_monotonic
    assert [(dict(p.attributes or {})["operator"], p.value) for p in records.data.data_points] == [
        ("count", 7),
        ("other", 8),
    ]
    assert {(p.start_time_unix_nano, p.time_unix_nano) for p in records.data.data_points} == {(5, 9)}


def test_every_metric_of_the_catalog_can_be_sent() -> None:
    samples = [Sample(metric, 1, dict.fromkeys(metric.label_names[1:], "x")) for metric in catalog.METRICS]
    data = metrics_data(samples, "shop", Resource.create({}), 0, 1)
    found = [metric.name for metric in data.resource_metrics[0].scope_metrics[0].metrics]
    assert found == [f"tidegate.{metric.scope}.{metric.name}" for metric in catalog.METRICS]
