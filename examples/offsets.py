"""Keep local variables in operator state: each task remembers the last offset of every partition it has seen.

    python examples/offsets.py

The example does this once with `CheckpointedFunction` and once with the shorter `ListCheckpointed`. The second run of the job
has another parallelism and continues with the offsets of the first, redistributed among its tasks.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import tidegate as tg

COLUMNS = "partition int, offset bigint"


class Offsets(tg.MapFunction, tg.CheckpointedFunction):
    """Keep pairs (partition, offset) in operator state, and emit the number of known partitions."""

    kept = tg.ListState(tuple[int, int], operator=True)

    def initialize_state(self, ctx) -> None:
        self.last = dict(self.kept.get()) if ctx.is_restored() else {}

    def snapshot_state(self, ctx) -> None:
        self.kept.clear()
        self.kept.add_all(sorted(self.last.items()))

    def map(self, row) -> tuple[int, int, int]:
        self.last[row.partition] = row.offset
        return row.partition, row.offset, len(self.last)


class ShortOffsets(tg.MapFunction, tg.ListCheckpointed, element=tuple[int, int]):
    """The same with less code."""

    def open(self, ctx) -> None:
        self.last = getattr(self, "last", {})

    def restore_state(self, state) -> None:
        self.last = dict(state)

    def snapshot_state(self, checkpoint_id, timestamp) -> list[tuple[int, int]]:
        return sorted(self.last.items())

    def map(self, row) -> tuple[int, int, int]:
        self.last[row.partition] = row.offset
        return row.partition, row.offset, len(self.last)


def build(rows, parallelism: int, out=None, short=None) -> tg.Job:
    job = tg.Job("offsets", parallelism=parallelism, max_parallelism=8)
    source = job.source("rows", rows)
    schema = "partition int, offset bigint, known int"
    source.map(Offsets(), schema=schema, uid="offsets").sink("out", out or tg.PrintSink(prefix="long  "))
    source.map(ShortOffsets(), schema=schema, uid="short").sink("short-out", short or tg.PrintSink(prefix="short "))
    return job


def main() -> None:
    spark = tg.session("offsets")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "in").mkdir()
        for run, parallelism in enumerate((2, 1)):
            lines = [{"partition": 3 * run + n, "offset": 10 * run + n} for n in range(3)]
            (Path(folder) / "in" / f"{run}.json").write_text("\n".join(map(json.dumps, lines)))
            rows = spark.readStream.schema(COLUMNS).json(f"{folder}/in")
            checkpoint = tg.Checkpointing(dir=f"{folder}/checkpoints", interval="1 s")
            build(rows, parallelism).run(trigger="available-now", checkpoint=checkpoint)
    spark.stop()


if __name__ == "__main__":
    main()
