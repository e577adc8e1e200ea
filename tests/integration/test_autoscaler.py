"""The autoscaler of a real job: what it sees of its epochs, that it only recommends, and that it acts if it may."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import httpx

import tidegate as tg
from tests.integration.inputs import stream, write_batches
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


class Slow(Count):
    """Each row takes a while, which more tasks share."""

    def process_element(self, row, ctx):
        time.sleep(0.005)
        yield from super().process_element(row, ctx)


class Load:
    """Writes a file every half second: a few rows, and from `rise` on ten times as many."""

    KEYS = 16

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.rows = folder, 0, Counter[int]()
        self.rise, self.over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.write()

    def write(self) -> None:
        keys = [i % self.KEYS for i in range(160 if self.rise.is_set() else self.KEYS)]
        write_batches(self.folder, "k int", [[(k,) for k in keys]], first=self.files)
        self.files += 1
        self.rows.update(keys)

    def _write(self) -> None:
        while not self.over.wait(0.5):
            self.write()

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self._thread.join()


def test_a_job_whose_load_rises_is_rescaled_by_its_own_autoscaler(spark, tmp_path: Path) -> None:
    """Output is exact, and REST tells who asked for the rescale."""
    load = Load(tmp_path / "in")
    job = tg.Job("rising", parallelism=1, max_parallelism=16)
    rows = job.source("rows", spark.readStream.schema("k int").parquet(str(tmp_path / "in")))
    slow = rows.key_by("k").process("count", Slow(), schema="k int, n int")
    slow.sink("out", tg.FileSink(str(tmp_path / "out")))
    acts = {
        **OPTIONS, "job.autoscaler.scaling.enabled": True, "job.autoscaler.metrics.window": "10 s",
        "job.autoscaler.vertex.max-parallelism": 4, "job.autoscaler.restart.time": "5 s",
        "job.autoscaler.scale-down.interval": "1 h",
    }  # fmt: skip
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="2 s")
    run = job.start(spark, checkpoint=checkpoint, options=acts)
    scaler = run.autoscaler
    assert scaler is not None
    try:
        with load:
            eventually(lambda: scaler.last is not None and scaler.last[0].evaluation is not None, "a decision", 300)
            assert run.parallelism == 1
            load.rise.set()
            eventually(lambda: run.parallelism > 1 and run.rescales[0].reason is not None, "a rescale", 300)
            eventually(lambda: scaler.trace.samples[-1].parallelism > 1, "epochs after it", 300)
        with tg.serve(run, port=0) as server, httpx.Client(base_url=server.url) as client:
            client.headers["Authorization"] = f"Bearer {server.token}"
            history = client.get(f"/jobs/{run.lineage}/rescales/history").json()
        eventually(lambda: sum(report.rows_in for report in list(run.reports)) >= load.rows.total(), "all rows", 300)
        (tmp_path / "trace.json").write_bytes(scaler.trace.to_bytes())
        run.stop()
    finally:
        if not run.has_ended:
            run.cancel()
    first = history[-1]
    assert (first["requestedBy"], first["triggerCause"], first["terminalState"]) == (
        "AUTOSCALER", "UPDATE_REQUIREMENT", "COMPLETED",
    )  # fmt: skip
    lines = [line for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()]
    seen = sorted((row["k"], row["n"]) for row in map(json.loads, lines))
    assert seen == sorted((k, n + 1) for k, count in load.rows.items() for n in range(count))
    assert run.restarts == 0
