"""The autoscaler of a real job: what it sees of its epochs, and that it only recommends."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tests.waiting import eventually
from tidegate.autoscaler.decision import DecisionKind
from tidegate.metrics import catalog

ROWS = 400
OPTIONS = {
    "job.autoscaler.enabled": True,
    "job.autoscaler.stabilization.interval": "0 s",
    "job.autoscaler.metrics.window": "1 s",
}


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()


@pytest.mark.timeout(300)
def test_a_real_job_is_seen_as_it_is_and_left_alone(spark, tmp_path: Path) -> None:
    batches = [[(k,) for k in range(ROWS)] for _ in range(6)]
    job = tg.Job("scaled", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", "k int", batches))
    rows.key_by("k").process("count", Count(), schema="k int, n int").sink("out", tg.DiscardSink())
    run = job.start(spark, options=OPTIONS)
    try:
        scaler = run.autoscaler
        assert scaler is not None
        eventually(lambda: sum(sample.rows_in for sample in scaler.trace.samples) >= 3 * ROWS, "samples of epochs")
        eventually(lambda: scaler.last is not None, "a decision")
        found = {sample.metric: sample.value for sample in run.samples()}
    finally:
        run.cancel()
    samples = scaler.trace.samples
    assert {sample.parallelism for sample in samples} == {2}
    assert all(sample.from_ms <= sample.last_began_ms <= sample.to_ms for sample in samples)
    with_rows = [sample for sample in samples if sample.rows_in]
    assert all(level.busy_max_ms >= level.busy_min_ms for sample in with_rows for level in sample.levels)
    assert any(level.busy_max_ms > 0 for sample in with_rows for level in sample.levels), "tasks measured their time"
    assert scaler.last is not None
    decision, reasons = scaler.last
    assert isinstance(decision.kind, DecisionKind)
    assert reasons
    assert {report.epoch.term for report in run.reports} == {run.reports[0].epoch.term}, "the job was left alone"
    assert (found[catalog.SCALINGS], found[catalog.SCALING_ERRORS], found[catalog.PARALLELISM]) == (0, 0, 2)
