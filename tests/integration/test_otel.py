"""What a collector for OpenTelemetry hears of a real job."""

from __future__ import annotations

import time

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tests.servers.otlp import collector, values
from tidegate.metrics import catalog

BATCHES = [[(n, f"k{n % 4}") for n in range(first, first + 5)] for first in range(0, 20, 5)]


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        with ctx.span("count"):
            self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()


def counting(spark, folder, name="watched"):
    job = tg.Job(name, parallelism=2)
    rows = job.source("in", stream(spark, folder / "in", "v int, k string", BATCHES))
    rows.key_by("k").process("n", Count(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    return job


def otel(address, **more):
    signals = {f"{signal}.reporter.otel.exporter.endpoint": address for signal in ("metrics", "traces", "events")}
    return {**signals, "metrics.reporter.otel.interval": "200 ms", **more}


def test_a_job_reports_metrics_spans_and_events(spark, tmp_path):
    options = {
        "traces.checkpoint.span-detail-level": "CHILDREN_SPANS_PER_SUBTASK",
        "events.reporter.otel.service.name": "shop",
        "traces.reporter.otel.scope.variables.additional": "region:eu-west-1",
        "metrics.reporter.otel.exporter.compression": "gzip",
    }
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "c"), interval="1 h")
    with collector() as (heard, address):
        counting(spark, tmp_path).run(
            spark, checkpoint=checkpoint, trigger="available-now", options=otel(address, **options)
        )

    metrics = heard.metrics()
    assert metrics["tidegate.operator.numRecordsIn"]["n",] == 20
    assert metrics["tidegate.operator.numSpans"]["n", "count"] == 20
    assert metrics["tidegate.job.numberOfCompletedCheckpoints"][()] >= 1
    assert set(metrics) <= {f"tidegate.{metric.scope}.{metric.name}" for metric in catalog.METRICS}

    spans = heard.spans()
    by_id = {span.span_id: span for span in spans}
    epochs = [span for span in spans if span.name == "Epoch"]
    assert sum(values(span.attributes)["rowsIn"] for span in epochs) == 20
    counted = [span for span in spans if span.name == "count"]
    assert sum(values(span.attributes)["count"] for span in counted) == 20
    assert {by_id[by_id[span.parent_span_id].parent_span_id].name for span in counted} == {"Epoch"}
    (checkpointed,) = {values(s.attributes)["checkpointStatus"] for s in spans if s.name == "Checkpoint"}
    assert checkpointed == "COMPLETED"
    uploads = [span for span in spans if span.name == "Upload"]
    assert {by_id[span.parent_span_id].name for span in uploads} <= {"Checkpoint_Subtask"}
    assert len([span for span in spans if span.name == "JobInitialization"]) == 1
    for span in spans:
        parent = by_id.get(span.parent_span_id, span)
        assert parent.trace_id == span.trace_id
        assert parent.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano

    events = [(record.event_name, values(record.attributes)) for record in heard.records()]
    statuses = [found["newJobStatus"] for name, found in events if name == "JobStatusChangeEvent"]
    assert statuses == ["INITIALIZING", "RUNNING", "FINISHED"]
    assert {found["job"] for _, found in events} == {"watched"}
    assert len([name for name, _ in events if name == "EpochEvent"]) == len(epochs)
    assert {each["service.name"] for each in heard.resources()} == {"watched", "shop"}
    assert {each.get("region") for each in heard.resources()} == {None, "eu-west-1"}


def test_a_restart_is_a_span_with_what_was_restored(spark, tmp_path):
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "c"), interval="1 h", inline_threshold=0)
    one, another = ({"local_dir": str(tmp_path / host)} for host in ("one", "another"))
    counting(spark, tmp_path).run(spark, checkpoint=checkpoint, trigger="available-now", options=one)
    with collector() as (heard, address):
        options = {**otel(address), **another}
        counting(spark, tmp_path).run(spark, checkpoint=checkpoint, trigger="available-now", options=options)
    (span,) = [span for span in heard.spans() if span.name == "JobInitialization"]
    found = values(span.attributes)
    assert 0 < found["SumRestoredStateSizeBytes.REMOTE"] == found["fullSize"]
    assert found["checkpointId"] >= 1
    assert 0 <= found["MaxDownloadStateDurationMs"] <= found["MaxInitializeStateDurationMs"]


@pytest.mark.parametrize("address", ["nobody", "refusing"])
def test_a_collector_that_takes_nothing_does_not_stop_the_job(spark, tmp_path, address):
    with collector(status=500) as (heard, refusing):
        target = refusing if address == "refusing" else "http://127.0.0.1:9"
        started = time.monotonic()
        counting(spark, tmp_path).run(spark, trigger="available-now", options=otel(target))
        assert time.monotonic() - started < 60
    assert heard.requests == []
