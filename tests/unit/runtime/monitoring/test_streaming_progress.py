"""Spark's reports about a query, with the state and the sinks of the job. No JVM."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

import tidegate as tg
from tests.unit.runtime.monitoring.test_job_metrics import ack, report
from tidegate.graph.levels import plan
from tidegate.metrics.catalog import WRITE_BUFFER_USAGE
from tidegate.runtime.exchange.messages import TaskMetrics
from tidegate.runtime.monitoring.job_metrics import JobMetrics
from tidegate.runtime.monitoring.streaming_progress import MOST_BATCHES, UNKNOWN, ProgressLog

ID, RUN_ID = "4f9a1a52-6b0e-4a8e-9d0f-000000000001", "4f9a1a52-6b0e-4a8e-9d0f-000000000002"


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        yield row.k, self.n.value()


def log_of(levels: int = 1, each: int = 1) -> ProgressLog:
    """Of a job with so many levels, and so many operators on each."""
    job = tg.Job("counts", parallelism=2)
    rows = job.source("rows", tg.testing.frame("k string"))
    for level in range(levels):
        stream = rows.key_by("k")
        for n in range(each):
            rows = stream.process(
                "count" if not (level or n) else f"count_{level}_{n}", Count(), schema="k string, n bigint"
            )
    rows.sink("out", tg.DiscardSink())
    graph = job.graph()
    return ProgressLog(graph, plan(graph), 2)


def sparks(batch_id: int, **more: Any) -> StreamingQueryProgress:
    """A report as Spark writes it about a query whose sink is a function."""
    written = {
        "id": ID, "runId": RUN_ID, "name": "counts", "timestamp": "2026-11-19T22:00:00.000Z", "batchId": batch_id,
        "batchDuration": 500, "numInputRows": 20, "inputRowsPerSecond": 40.0, "processedRowsPerSecond": 40.0,
        "durationMs": {"addBatch": 400, "triggerExecution": 500}, "stateOperators": [],
        "sources": [{
            "description": "FileStreamSource[file:/in]", "startOffset": None, "endOffset": {"logOffset": 0},
            "latestOffset": None, "numInputRows": 20, "inputRowsPerSecond": 40.0, "processedRowsPerSecond": 40.0,
        }],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
    }  # fmt: skip
    return StreamingQueryProgress.fromJson({**written, **more})


def after(log: ProgressLog, *acks: Any, **more: Any) -> dict[str, Any]:
    """The JSON of the report about a batch with these acknowledgements."""
    metrics, epoch = JobMetrics(()), report(1, acks=acks, **more)
    metrics.epoch(epoch, acks)
    log.batch(0, epoch, metrics)
    [found] = log.of([sparks(0)])
    return json.loads(found.json)


def test_a_report_has_the_sinks_and_the_rows_of_the_epoch_and_keeps_what_spark_knows():
    found = after(log_of(), ack(0), operators={"count": (10, 4), "out": (4, 0)})
    assert (found["id"], found["runId"], found["batchId"]) == (ID, RUN_ID, 0)
    assert found["durationMs"] == {"addBatch": 400, "triggerExecution": 500}
    assert found["sources"][0]["description"] == "FileStreamSource[file:/in]"
    assert (found["numInputRows"], found["processedRowsPerSecond"]) == (10, 20.0)
    assert found["sink"]["numOutputRows"] == 4
    assert found["sink"]["metrics"] == {"out.numRecordsSend": "4"}
    assert found["sink"]["description"].startswith("tidegate[")


def test_an_operator_with_state_has_its_uid_and_what_its_level_knows():
    first = TaskMetrics(
        seal_ms=3, pending_timers={"count": 2}, store={"estimate-num-keys": 40.0}, memory={WRITE_BUFFER_USAGE.name: 100.0},
        state_sizes={"count": {"n": 7}},
    )  # fmt: skip
    second = TaskMetrics(seal_ms=4, store={"estimate-num-keys": 2.0}, memory={WRITE_BUFFER_USAGE.name: 11.0})
    found = after(
        log_of(), ack(0, metrics=first, state_bytes=600, late_dropped=1), ack(1, metrics=second, state_bytes=400)
    )
    assert found["stateOperators"] == [
        {
            "operatorName": "count", "numRowsTotal": 42, "numRowsUpdated": UNKNOWN, "allUpdatesTimeMs": UNKNOWN,
            "numRowsRemoved": UNKNOWN, "allRemovalsTimeMs": UNKNOWN, "commitTimeMs": 7, "memoryUsedBytes": 111,
            "numRowsDroppedByWatermark": 1, "numShufflePartitions": 2, "numStateStoreInstances": 2,
            "customMetrics": {
                "numRecordsIn": 10, "numRecordsOut": 4, "pendingTimers": 2,
                "estimatedStateSize": 1000, "estimatedStateSize.n": 1000,
            },
        }
    ]  # fmt: skip


def test_what_nobody_counts_is_unknown_and_not_nothing():
    [found] = after(log_of(), ack(0))["stateOperators"]
    assert (found["numRowsTotal"], found["memoryUsedBytes"]) == (UNKNOWN, UNKNOWN)
    assert found["customMetrics"] == {"numRecordsIn": 10, "numRecordsOut": 4}


def test_what_operators_of_a_level_share_is_not_counted_for_each():
    task = TaskMetrics(seal_ms=3, store={"estimate-num-keys": 40.0})
    one, two = after(log_of(each=2), ack(0, metrics=task, late_dropped=5))["stateOperators"]
    for found in (one, two):
        shared = (found["numRowsTotal"], found["commitTimeMs"], found["numRowsDroppedByWatermark"])
        assert shared == (UNKNOWN, UNKNOWN, UNKNOWN)


def test_every_level_has_its_own_figures():
    one, two = TaskMetrics(seal_ms=3), TaskMetrics(seal_ms=30)
    found = after(log_of(levels=2), ack(0, level=1, metrics=one), ack(0, level=2, metrics=two))["stateOperators"]
    assert [(each["operatorName"], each["commitTimeMs"]) for each in found] == [("count", 3), ("count_1_0", 30)]


def test_the_watermark_is_written_as_spark_writes_it_if_there_is_one():
    assert after(log_of(), ack(0), watermark_ms=1_700_000_000_123)["eventTime"] == {
        "watermark": "2023-11-14T22:13:20.123Z"
    }
    assert after(log_of(), ack(0))["eventTime"] == {}


def test_pyspark_reads_the_report():
    log = log_of()
    after(log, ack(0))
    [found] = log.of([sparks(0)])
    assert found.stateOperators[0].operatorName == "count"
    assert found.sink.numOutputRows == 0
    assert str(found.runId) == RUN_ID


def test_a_batch_that_was_not_run_has_sparks_own_report():
    assert log_of().of([sparks(5)]) == [sparks(5)]


def test_figures_of_old_batches_are_forgotten():
    log, metrics = log_of(), JobMetrics(())
    for number in range(MOST_BATCHES + 1):
        log.batch(number, report(number), metrics)
    found = log.of([sparks(0), sparks(1)])
    assert [len(each.stateOperators) for each in found] == [0, 1]


@pytest.mark.parametrize("listens", [True, False])
def test_a_listener_of_sparks_is_notified_of_each_report_once_and_of_the_end(listens):
    class Listener:
        def __init__(self):
            self.heard: list[Any] = []

        def onQueryStarted(self, event):
            self.heard.append(("started", str(event.runId), event.name))

        def onQueryProgress(self, event):
            self.heard.append(event.progress.batchId)

        def onQueryTerminated(self, event):
            self.heard.append(("terminated", str(event.runId), event.exception))

    class Run:
        name = "counts"
        recentProgress: ClassVar[list[StreamingQueryProgress]] = []

    spark_listener, run = Listener(), Run()
    listener = tg.SparkProgressListener(spark_listener)  # type: ignore[arg-type]
    event: Any = None
    listener.on_epoch(event)  # The first epoch may end before the start has returned.
    if listens:
        listener.watch(run)
    run.recentProgress = [sparks(0), sparks(1)]
    listener.on_epoch(event)
    run.recentProgress = [sparks(1), sparks(2)]
    listener.on_epoch(event)
    listener.close()
    expected = [("started", RUN_ID, "counts"), 0, 1, 2, ("terminated", RUN_ID, None)]
    assert spark_listener.heard == (expected if listens else [])
