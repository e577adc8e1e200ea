"""A checkpoint takes what its upload takes, however long the epochs take that run meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.checkpoint.coordination.statistics import CheckpointStatus
from tidegate.runtime.epochs import watcher

SCHEMA = "k int, slow boolean"
TIMEOUT_S = 6
SLOW_S = 9
KEYS = range(24)


class Count(tg.KeyedProcessFunction):
    """Counts rows. Some take a long time, as a call to a slow service does."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        if row.slow:
            time.sleep(SLOW_S)
        self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()


def started(spark, folder: Path, out: tg.Sink, batches, *, parallelism: int, interval: str) -> tg.JobRun:
    job = tg.Job("slow-rows", parallelism=parallelism)
    rows = job.source("rows", stream(spark, folder / "in", SCHEMA, batches))
    rows.key_by("k").process("count", Count(), schema="k int, n int").sink("out", out)
    chosen = tg.Checkpointing(dir=str(folder / "checkpoints"), interval=interval, timeout=f"{TIMEOUT_S} s")
    return job.start(spark, trigger="available-now", checkpoint=chosen)


@pytest.mark.feature("C37")
@pytest.mark.parametrize("parallelism", [2, 4])
def test_no_checkpoint_expires_while_rows_take_longer_than_its_timeout(spark, tmp_path: Path, parallelism: int) -> None:
    """Four tasks share two cores: two of them start when the others have ended."""
    quick = [(k, False) for k in KEYS]
    slow = [*quick, (0, True), (1, True), (2, True)]
    out = tg.CollectSink()
    batches = [quick, slow, slow, quick]
    run = started(spark, tmp_path, out, batches, parallelism=parallelism, interval="100 ms")
    run.await_termination()

    history = run.checkpoints.history()
    assert [each.failure for each in history if each.status is not CheckpointStatus.COMPLETED] == []
    slow_epochs = [report for report in run.reports if report.rows_in == len(slow)]
    assert min(report.duration_ms for report in slow_epochs) > 1000 * SLOW_S
    assert max(each.end_to_end_ms for each in history) < 1000 * TIMEOUT_S
    with_rows = {report.epoch.number for report in run.reports if report.rows_in}
    assert with_rows <= {each.epoch.number for each in history}, "each epoch has a checkpoint"
    assert len(out.rows) == 4 * len(KEYS) + 6
    # An upload may store its acknowledgement although the epoch brings it. It is deleted when the next checkpoint completes.
    left = {path.parent.name for path in (tmp_path / "checkpoints").glob("*/acks/*/*/*")}
    assert left <= {f"chk-{history[0].id}"}, "acknowledgements were left behind"


@pytest.mark.feature("C37")
def test_no_checkpoint_expires_that_becomes_due_in_a_sudden_slow_epoch(spark, tmp_path: Path) -> None:
    """The epochs before were short, so nobody expected a checkpoint at the end of this one."""
    quick = [(k, False) for k in KEYS]
    batches = [quick, quick, [*quick, (0, True), (1, True)], quick, quick, [*quick, (2, True)], quick]
    out = tg.CollectSink()
    run = started(spark, tmp_path, out, batches, parallelism=4, interval=f"{SLOW_S - 1} s")
    run.await_termination()
    history = run.checkpoints.history()
    assert [each.failure for each in history if each.status is not CheckpointStatus.COMPLETED] == []
    slow_epochs = {report.epoch.number for report in run.reports if report.rows_in > len(quick)}
    assert slow_epochs <= {each.epoch.number for each in history}, "each slow epoch ended with a checkpoint"
    assert max(each.end_to_end_ms for each in history) < 1000 * TIMEOUT_S
    assert run.restarts == 0
    assert len(out.rows) == sum(map(len, batches))


SILENCE_S = 5
UNHEARD = 3
"""How many times longer an epoch may be silent before its first row, instead of six times: the epoch need not be so long."""


class Pausing(tg.KeyedProcessFunction):
    """Each row takes a second: less than an epoch may be silent."""

    def process_element(self, row, ctx):
        time.sleep(1)
        yield row.k, 1


def test_an_epoch_that_moves_is_not_interrupted_however_long_it_takes(spark, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(watcher, "UNHEARD", UNHEARD)
    rows = [(0, False)] * (SILENCE_S * UNHEARD + 5)
    job = tg.Job("long-epoch", parallelism=2)
    out = tg.CollectSink()
    source = job.source("rows", stream(spark, tmp_path / "in", SCHEMA, [rows]))
    source.key_by("k").process("pause", Pausing(), schema="k int, n int").sink("out", out)
    chosen = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 h")
    options = {"execution.epoch.progress-timeout": f"{SILENCE_S} s"}
    run = job.start(spark, trigger="available-now", checkpoint=chosen, options=options)
    run.await_termination()
    (report,) = (report for report in run.reports if report.rows_in)
    assert report.duration_ms > 1000 * SILENCE_S * UNHEARD
    assert (report.tries, run.restarts) == (1, 0)
    assert len(out.rows) == len(rows)
