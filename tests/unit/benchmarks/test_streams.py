"""Data that benchmarks are run on."""

from __future__ import annotations

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.streams import FIRST_US, prepare_timed


def test_timed_rows_advance_epoch_by_epoch_within_the_declared_disorder(tmp_path):
    dataset = prepare_timed(
        tmp_path / "rows", rows_per_epoch=400, files_per_epoch=2, epochs=3, warm_up=1, keys=7, epoch_seconds=60,
        disorder_seconds=5,
    )  # fmt: skip
    files = sorted(dataset.directory.iterdir())
    assert (len(files), dataset.rows_per_epoch, dataset.warm_up) == (6, 400, 1)
    for number, file in enumerate(files):
        table = pq.read_table(file)
        assert (table.num_rows, table.column_names) == (200, ["key", "ts", "value"])
        bounds = pc.min_max(table["ts"].cast("int64")).as_py()
        start = FIRST_US + number * 30_000_000
        assert start - 5_000_000 <= bounds["min"] <= bounds["max"] < start + 30_000_000
