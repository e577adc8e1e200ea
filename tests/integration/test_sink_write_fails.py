"""A sink that cannot write while rows arrive: it is named, and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import tidegate as tg
from tests.integration.inputs import stream, write_batches
from tests.waiting import eventually
from tidegate.runtime.exchange.user_code import SinkWriteFailed


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()


def rows_in(folder: Path) -> list[tuple[str, int]]:
    files = [file for file in folder.rglob("*.json") if not file.name.startswith(".")]
    return sorted(tuple(json.loads(line).values()) for file in files for line in file.read_text().splitlines())


def test_error_names_a_sink_without_its_folder_and_the_job_continues_when_it_is_back(spark, tmp_path: Path):
    out, kept = tmp_path / "out", tmp_path / "kept"
    job = tg.Job("folder-gone", parallelism=2)
    rows = job.source("rows", stream(spark, tmp_path / "in", "k string, v int", [[("a", 1)]]))
    rows.key_by("k").process("count", Count(), schema="k string, n bigint").sink(
        "out", tg.FileSink(str(out), format="json")
    )
    run = job.start(
        spark,
        checkpoint=tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="200 ms"),
        options={"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": "1000"},
    )
    try:
        eventually(lambda: rows_in(out) == [("a", 1)])
        out.rename(kept)
        out.write_text("not a folder")
        write_batches(tmp_path / "in", "k string, v int", [[("a", 2)]], first=1)
        eventually(lambda: run.report().failures)
        failure = run.report().failures[0]
        assert failure.kind == SinkWriteFailed.code.lower()
        assert failure.message.startswith("Sink 'out' cannot write")
        assert str(out) in failure.message
        assert "count" not in failure.message
        assert "pathlib" not in failure.message

        out.unlink()
        kept.rename(out)
        eventually(lambda: rows_in(out) == [("a", 1), ("a", 2)])
    finally:
        run.cancel()
