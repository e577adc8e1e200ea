"""A processor that counts the rows of each key: as a query of Spark, and as the job that continues it. Each is a process."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import tidegate as tg
from chaos.counted import DELAYS, SPARK, run_to_end

FOLDER = "TIDEGATE_CHAOS_FOLDER"
OUT = "k int, i bigint, n bigint, total bigint"
STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Count(StatefulProcessor):
    """Numbers the rows of a key and adds them up. A list and a map hold the same in other forms; every call compares them."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint, total bigint")
        self.last = handle.getListState("last", "i bigint")
        self.by_rest = handle.getMapState("by_rest", "rest int", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        n, total = self.total.get() if self.total.exists() else (0, 0)
        kept = sum(count for (count,) in self.by_rest.values())
        last = [i for (i,) in self.last.get()]
        if kept != n or len(last) != min(n, 2):
            raise ValueError(f"the states of key {key} differ: {n} rows, {kept} by rest, last {last}")
        for row in rows:
            n, total = n + 1, total + row.v
            (before,) = self.by_rest.getValue((row.i % 3,)) or (0,)
            self.by_rest.updateValue((row.i % 3,), (before + 1,))
            last = [*last, row.i][-2:]
            yield Row(k=key[0], i=row.i, n=n, total=total)
        self.total.update((n, total))
        self.last.put([(i,) for i in last])

    def close(self) -> None:
        pass


def rows_of(spark: Any, folder: str) -> Any:
    """One file at a time: a key has at most one row in each, so the order of its rows is fixed on both engines."""
    return spark.readStream.schema("k int, i bigint, v bigint").option("maxFilesPerTrigger", 1).json(f"{folder}/in")


def build(spark: Any) -> tg.Job:
    """The job, also for `tidegate import`."""
    folder = os.environ[FOLDER]
    job = tg.Job("imported", parallelism=4)
    counted = tg.transform_with_state(
        job.source("rows", rows_of(spark, folder)).key_by("k"), Count(), uid="count",
        outputStructType=OUT, outputMode="Append", timeMode="None",
    )  # fmt: skip
    counted.sink("out", tg.FileSink(f"{folder}/out"))
    return job


def run_query(spark: Any, folder: str, name: str) -> None:
    """The query of Spark, until all files are read. It goes on from its last batch. Its output: one file for each batch."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORE)
    spark.conf.set("spark.sql.shuffle.partitions", "4")
    out = Path(folder) / name
    out.mkdir()

    def write(batch: Any, number: int) -> None:
        found = batch.toPandas().to_dict("records")
        (out / f"{number:06d}.json").write_text("".join(json.dumps(row, default=int) + "\n" for row in found))

    counted = rows_of(spark, folder).groupBy("k").transformWithState(Count(), OUT, "Append", "None")
    writer = counted.writeStream.outputMode("append").foreachBatch(write)
    at = f"{folder}/spark-checkpoint"
    writer.option("checkpointLocation", at).trigger(availableNow=True).start().awaitTermination()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--query", help="run the query of Spark instead of the job; its output goes to this folder")
    options = parser.parse_args(argv)
    os.environ[FOLDER] = options.folder
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = tg.session("chaos", master=options.master, config=SPARK)
    if options.query is not None:
        run_query(spark, options.folder, options.query)
        return 0
    checkpoint = tg.Checkpointing(dir=f"{options.folder}/checkpoints", interval="2 s", tolerable_failures=100)
    # Later starts go on from the job's own checkpoints.
    first = not (Path(options.folder) / "checkpoints" / "imported" / "log").exists()
    chosen = {**DELAYS, **({"execution.state-recovery.path": f"{options.folder}/savepoint"} if first else {})}
    return run_to_end(build(spark), spark, checkpoint=checkpoint, state_backend="rocksdb", options=chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
