"""What Spark's monitoring shows of a real job: progress with state and sinks, and jobs with names."""

from __future__ import annotations

from pyspark.sql.streaming import StreamingQueryListener

import tidegate as tg
from tests.integration.test_listeners import counting


class Heard(StreamingQueryListener):
    def __init__(self):
        self.events = []

    def onQueryStarted(self, event):
        self.events.append(("started", event.name))

    def onQueryProgress(self, event):
        self.events.append((event.progress.batchId, event.progress.stateOperators[0].customMetrics["numRecordsIn"]))

    def onQueryIdle(self, event):
        self.events.append("idle")

    def onQueryTerminated(self, event):
        self.events.append(("terminated", event.exception))


def jobs_of(spark):
    """Description and tags of every job, as `GET /api/v1/applications/APP/jobs` has them."""
    jobs = spark._jsc.sc().statusStore().jobsList(None)
    for place in range(jobs.size()):
        job = jobs.apply(place)
        if job.description().isDefined():
            yield job.description().get(), job.jobTags().mkString(" ")


def test_spark_shows_state_sinks_and_names(spark, tmp_path):
    heard = Heard()
    run = counting(spark, tmp_path).start(spark, trigger="available-now", listeners=[tg.SparkProgressListener(heard)])
    run.await_termination()

    recent = run.recentProgress
    assert [(each.batchId, each.numInputRows) for each in recent] == [(0, 5), (1, 5), (2, 5), (3, 5)]
    last = run.lastProgress
    assert last is not None
    assert [each.operatorName for each in last.stateOperators] == ["n"]
    assert last.stateOperators[0].numStateStoreInstances == 2
    assert (last.sink.numOutputRows, last.sink.metrics) == (5, {"out.numRecordsSend": "5"})
    assert last.sources[0].numInputRows == 5, "Spark's own part"
    assert heard.events == [("started", "heard"), (0, 5), (1, 5), (2, 5), (3, 5), ("terminated", None)]

    jobs = list(jobs_of(spark))
    assert any(text == "heard: place tasks on executors" for text, _ in jobs)
    epochs = [
        (text, tags) for text, tags in jobs if text.startswith("heard: epoch ") and text.endswith("; level 1: n, out")
    ]
    assert len(epochs) >= 4
    assert all(f"tidegate-heard-epoch-{text.split()[2].rstrip(';')}" in tags for text, tags in epochs)
    assert spark.conf.get("spark.job.description", None) is None
