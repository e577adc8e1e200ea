"""What a listener hears of a real job: everything, in order, once."""

from __future__ import annotations

import threading

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.core.errors import UserCodeError

BATCHES = [[(n, f"k{n % 4}") for n in range(first, first + 5)] for first in range(0, 20, 5)]


class Heard(tg.JobListener):
    def __init__(self):
        self.events = []

    def on_epoch(self, event):
        self.events.append(event)

    on_checkpoint = on_status_change = on_failure = on_rescale = on_initialization = on_epoch

    def close(self):
        self.events.append("closed")

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def statuses(self):
        return [event.new_status for event in self.of(tg.JobStatusChangeEvent)]


class Hanging(tg.JobListener):
    def on_epoch(self, event):
        threading.Event().wait(600)


class Raising(tg.JobListener):
    def on_status_change(self, event):
        raise RuntimeError("broken listener")


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        if row.v < 0:
            raise ValueError("a bad row")
        yield row.k, self.n.value()


def counting(spark, folder, batches=BATCHES, parallelism=2):
    job = tg.Job("heard", parallelism=parallelism)
    rows = job.source("in", stream(spark, folder / "in", "v int, k string", batches))
    rows.key_by("k").process("n", Count(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    return job


def test_a_listener_gets_every_event_once_and_in_order(spark, tmp_path):
    heard, checkpoint = Heard(), tg.Checkpointing(dir=str(tmp_path / "c"), interval="1 h")
    listeners = [Raising(), heard]
    counting(spark, tmp_path).run(spark, checkpoint=checkpoint, trigger="available-now", listeners=listeners)
    assert heard.statuses() == ["INITIALIZING", "RUNNING", "FINISHED"]
    epochs = [tuple(map(int, event.epoch.split("."))) for event in heard.of(tg.EpochEvent)]
    assert epochs == sorted(set(epochs))
    assert sum(event.rows_in for event in heard.of(tg.EpochEvent)) == 20
    checkpoints = [event.checkpoint_id for event in heard.of(tg.CheckpointEvent)]
    assert checkpoints == sorted(set(checkpoints))
    assert len(checkpoints) >= 2
    assert heard.events[-1] == "closed"
    assert isinstance(heard.events[-2], tg.JobStatusChangeEvent)


def test_another_parallelism_is_a_rescale(spark, tmp_path):
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "c"), interval="1 h")
    counting(spark, tmp_path).run(spark, checkpoint=checkpoint, trigger="available-now")
    heard, job = Heard(), counting(spark, tmp_path, parallelism=3)
    job.run(spark, checkpoint=checkpoint, trigger="available-now", listeners=[heard])
    (rescale,) = heard.of(tg.RescaleEvent)
    assert (rescale.old_parallelism, rescale.new_parallelism) == (2, 3)
    (start,) = heard.of(tg.JobInitializationEvent)
    assert start.checkpoint_id is not None


def test_a_failure_is_reported_before_its_status_and_a_hanging_listener_delays_neither(spark, tmp_path):
    heard, batches = Heard(), [*BATCHES, [(-1, "k1")]]
    with pytest.raises(UserCodeError):
        counting(spark, tmp_path, batches).run(spark, trigger="available-now", listeners=[Hanging(), heard])
    (failure,) = heard.of(tg.JobFailureEvent)
    assert (failure.kind, failure.can_restart) == ("user-code", False)
    assert "a bad row" in failure.message
    assert heard.statuses() == ["INITIALIZING", "RUNNING", "FAILED"]
    assert heard.events.index(failure) < heard.events.index(heard.of(tg.JobStatusChangeEvent)[-1])


def test_a_job_on_batch_dataframes_has_events_too(spark):
    heard, job = Heard(), tg.Job("heard", parallelism=2)
    rows = job.source("in", spark.createDataFrame([(1, "a"), (2, "b")], "v int, k string"))
    rows.key_by("k").process("n", Count(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    job.run(spark, listeners=[heard])
    assert heard.statuses() == ["INITIALIZING", "RUNNING", "FINISHED"]
    assert [event.rows_in for event in heard.of(tg.EpochEvent)] == [2]
