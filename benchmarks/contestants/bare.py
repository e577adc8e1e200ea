"""The engine bare: the shuffle, the Python worker and the call per row that any such design pays for, and nothing else.

Same exchange, same conversion of Arrow columns into Python values, same named tuples, same generator function called
for each row, same handling of garbage collection as tidegate's. The counts live in a dict that is dropped with its
epoch: no state, no barriers, no versions.
"""

from __future__ import annotations

import gc
from collections import namedtuple
from typing import TYPE_CHECKING, Any

from benchmarks.streams import Contestant, Dataset, Epoch, run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MAX_PARALLELISM = 128


class Counter:
    """What a user would write: one generator function, called once for each row."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process_element(self, row):
        count = self.counts.get(row.key, 0) + 1
        self.counts[row.key] = count
        yield row.key, count


def call_for_each_row(
    batches: Iterator[pa.RecordBatch], process: Callable[[Any], Iterator[tuple[str, int]]]
) -> Iterator[tuple[int, list[tuple[str, int]]]]:
    """For each batch, its number of rows and what the function yields for them."""
    # A collection in the middle would walk all rows; nothing here makes cycles.
    gc.disable()
    gc.freeze()
    try:
        row_type = namedtuple("Row", ["key", "value"])  # type: ignore[name-match]
        for batch in batches:
            columns = [batch.column(name).to_pylist() for name in ("key", "value")]
            out: list[tuple[str, int]] = []
            for row in map(row_type._make, zip(*columns)):
                out.extend(process(row))
            yield batch.num_rows, out
    finally:
        gc.unfreeze()
        gc.enable()


def count_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task of one epoch: rows in, counts out and dropped, one control row as the result."""
    import pyarrow

    total = emitted = 0
    for rows, out in call_for_each_row(batches, Counter().process_element):
        keys, counts = zip(*out) if out else ((), ())
        total += rows
        emitted += min(len(keys), len(counts))
    yield pyarrow.RecordBatch.from_pydict({"rows": [total], "emitted": [emitted]})


def no_op_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Takes the rows as Spark hands them over, and does nothing with them."""
    import pyarrow

    total = sum(batch.num_rows for batch in batches)
    yield pyarrow.RecordBatch.from_pydict({"rows": [total], "emitted": [total]})


def salts(spark: SparkSession, partitions: int) -> list[int]:
    """For each partition an integer that Spark's hash partitioning sends there: every slot gets a task of its own."""
    found = spark.range(64 * partitions).selectExpr(
        f"pmod(hash(cast(id as int)), {partitions}) part", "cast(id as int) id"
    )
    return [row.id for row in found.groupBy("part").min("id").toDF("part", "id").orderBy("part").collect()]


def to_slots(rows: DataFrame, chosen: list[int], *more: str) -> DataFrame:
    """Rows with the salt of their slot in front: key group by hash, slot by share, as keyed exchanges do it."""
    count = len(chosen)
    slot = f"cast(pmod(hash(key), {MAX_PARALLELISM}) * {count} div {MAX_PARALLELISM} as int)"
    return rows.selectExpr(
        f"element_at(array({','.join(map(str, chosen))}), {slot} + 1) as slot", "key", "value", *more
    )


def contestant(partitions: int) -> Contestant:
    """The engine bare with this many tasks."""
    return _contestant("bare", partitions, count_task)


def no_op(partitions: int) -> Contestant:
    """The exchange alone: what any function pays for before its first row."""
    return _contestant("no-op", partitions, no_op_task)


def _contestant(
    name: str, partitions: int, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        chosen = salts(spark, partitions)
        return run_to_end(dataset.stream(spark).writeStream.foreachBatch(_epoch(chosen, dataset, task)), work)

    return Contestant(name, run)


def _epoch(
    chosen: list[int], dataset: Dataset, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> Callable[[DataFrame, int], None]:
    def epoch(batch: DataFrame, _: int) -> None:
        exchanged = to_slots(batch, chosen).repartition(len(chosen), "slot")
        acks = exchanged.mapInArrow(task, "rows long, emitted long").collect()
        if len(acks) != len(chosen) or any(sum(column) != dataset.rows_per_epoch for column in zip(*acks)):
            raise AssertionError(f"wanted {dataset.rows_per_epoch} rows from {len(chosen)} tasks, got {acks}")

    return epoch
