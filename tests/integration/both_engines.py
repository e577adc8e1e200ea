"""The same stateful program on Spark and on tidegate, over files that are one batch, and one epoch, each."""

from __future__ import annotations

import tidegate as tg
from tests.integration.inputs import write_batches


class BothEngines:
    """Input for both, and the rows that each of them emits, sorted."""

    def __init__(self, spark, folder, schema, batches, *, key=("k",), time=None):
        self.spark, self.folder, self.schema, self.key, self.time = spark, folder, schema, key, time
        write_batches(folder / "in", schema, batches)

    def rows(self):
        read = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return read.parquet(str(self.folder / "in"))

    def spark_rows(self, made):
        """`made` returns the DataFrame of grouped data."""
        rows = self.rows() if self.time is None else self.rows().withWatermark(self.time, "10 seconds")
        found = []
        writer = made(rows.groupBy(*self.key)).writeStream.outputMode("update")
        writer = writer.foreachBatch(lambda batch, _: found.extend(batch.collect()))
        query = writer.option("checkpointLocation", str(self.folder / "spark")).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(map(tuple, found))

    def tidegate_rows(self, made, backend="rocksdb"):
        """`made` returns the stream of a job and a keyed stream."""
        job, found = tg.Job("moved", parallelism=2), tg.CollectSink()
        timed = {} if self.time is None else {"event_time": self.time, "out_of_orderness": "10 s"}
        made(job, job.source("in", self.rows(), **timed).key_by(*self.key)).sink("out", found)
        # Without checkpoints, all event time passes at the end of a run, and all timers fire.
        where = tg.Checkpointing(dir=str(self.folder / "checkpoints"), interval="1 h")
        chosen = {"local_dir": str(self.folder / "local")}
        job.run(self.spark, trigger="available-now", state_backend=backend, checkpoint=where, options=chosen)
        return sorted(map(tuple, found.rows))
