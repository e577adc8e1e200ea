"""Maps and filters in mode AT_LEAST_ONCE: after a failure rows are shown again, but state has counted each of them once.

    python examples/maps_at_least_once.py

The job drops every fifth row and numbers the others. It fails once, in its fourth epoch, and goes back to the checkpoint that it
began with. The number of rows that the map has seen goes back with it.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections import Counter
from pathlib import Path

import tidegate as tg

ROWS = 50
EPOCH = 10
"""Rows per file, and files per epoch: one."""
FAILS_AT = 36


class Numbered(tg.MapFunction, tg.CheckpointedFunction):
    """Number the rows, from 1 to the last. The count is kept in operator state."""

    kept = tg.ListState(int, operator=True)

    def __init__(self, failures: Path) -> None:
        self.failures = str(failures)

    def initialize_state(self, ctx) -> None:
        self.n = sum(self.kept.get())

    def snapshot_state(self, ctx) -> None:
        self.kept.update([self.n])

    def map(self, row) -> tuple[int, int]:
        self.n += 1
        # A failed epoch is tried once more. After the second failure the job goes back to its checkpoint.
        if row.i == FAILS_AT and len(list(Path(self.failures).iterdir())) < 2:
            (Path(self.failures) / uuid.uuid4().hex).touch()
            raise ConnectionError("something is away")
        return row.i, self.n


def build(rows, failures: Path, out) -> tg.Job:
    job = tg.Job("maps-at-least-once", parallelism=1)
    kept = job.source("rows", rows).filter(lambda row: row.i % 5 != 4)
    kept.map(Numbered(failures), schema="i bigint, n bigint", uid="numbered").sink("out", out)
    return job


def run(spark, folder: Path, mode: str) -> Counter[tuple[int, int]]:
    """Run the job to the end of its files. Return how often each row was shown."""
    for name in ("in", "failures"):
        (folder / name).mkdir(parents=True)
    for number, first in enumerate(range(0, ROWS, EPOCH)):
        path = folder / "in" / f"{number}.json"
        path.write_text("\n".join(json.dumps({"i": i}) for i in range(first, first + EPOCH)))
        os.utime(path, (number + 1, number + 1))  # Spark reads files in the order of their modification times
    rows = spark.readStream.schema("i bigint").option("maxFilesPerTrigger", 1).json(str(folder / "in"))
    job = build(rows, folder / "failures", tg.FileSink(str(folder / "out")))
    checkpoint = tg.Checkpointing(dir=str(folder / "checkpoints"), interval="1 h", mode=mode)
    retries = {"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.delay": "100 ms"}
    job.run(spark, trigger="available-now", checkpoint=checkpoint, options=retries)
    lines = [line for path in (folder / "out").glob("*.json") for line in path.read_text().splitlines()]
    return Counter((row["i"], row["n"]) for row in map(json.loads, lines))


def main() -> None:
    spark = tg.session("maps-at-least-once")
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("AT_LEAST_ONCE", "EXACTLY_ONCE"):
            shown = run(spark, Path(folder) / mode, mode)
            numbers = sorted(n for _, n in shown)
            counted = "each counted once" if numbers == list(range(1, len(shown) + 1)) else "counted WRONG"
            print(f"{mode}: {len(shown)} different rows, {counted}; {shown.total() - len(shown)} shown again")
    spark.stop()


if __name__ == "__main__":
    main()
