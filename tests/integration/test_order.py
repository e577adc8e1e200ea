"""Rows of one source partition reach one key in the order they were written, two levels deep."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.integration.inputs import write_batches

SCHEMA = "part int, seq bigint, filler string"
OUT = "part int, seq bigint, filler string, wrong int"


class InOrder(tg.KeyedProcessFunction):
    """Remembers the last number of each source partition; a number that does not follow is counted."""

    last = tg.MapState(int, int)

    def process_element(self, row, ctx):
        before = self.last.get(row.part)
        self.last.put(row.part, row.seq)
        yield row.part, row.seq, row.filler, (0 if before is None or row.seq > before else 1) + getattr(row, "wrong", 0)


@pytest.mark.feature("C8")
def test_order_is_kept_per_channel_over_two_shuffles_with_spills(spark, tmp_path):
    files, rows = 6, 4_000
    batches = [[(part, seq, f"{seq % 7}" * 50) for seq in range(rows)] for part in range(files)]
    path = write_batches(tmp_path / "in", SCHEMA, batches)
    spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 30))
    sink = tg.CollectSink()
    job = tg.Job("order", parallelism=3)
    # All files in one epoch: several map tasks write to every channel, each in its own order.
    source = job.source("rows", spark.readStream.schema(SCHEMA).parquet(path))
    first = source.key_by("filler").process("first", InOrder(), schema=OUT)
    second = first.key_by("filler").process("second", InOrder(), schema=OUT)
    second.filter(lambda r: r.wrong > 0).sink("wrong", sink)
    counted = tg.CollectSink()
    second.filter(lambda r: r.seq == rows - 1).sink("last", counted)
    try:
        job.run(spark, trigger="available-now")
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
    assert sink.rows == []
    assert len(counted.rows) == files
