"""The job that is tormented: two keyed levels, files in, files out, and results that can be checked to the last row.

Level 1 numbers the rows of each key, level 2 adds values up by another key. Started by the harness as a process of its own,
as often as it dies.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import uuid
from typing import Any

import numpy as np

import tidegate as tg
from chaos.spark_functions import BUCKETS, OUT_OF_ORDERNESS, TIME, numbered


class Number(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def __init__(self, unique: bool) -> None:
        self.unique = unique

    def process_element(self, row: Any, ctx: Any) -> Any:
        n = self.n.value() + 1
        self.n.update(n)
        yield row.i % BUCKETS, row.i, row.v, row.k, n, uuid.uuid4().hex if self.unique else ""


class Add(tg.KeyedProcessFunction):
    m = tg.ValueState(int, default=0)
    total = tg.ValueState(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        m, total = self.m.value() + 1, self.total.value() + row.v
        self.m.update(m)
        self.total.update(total)
        yield row.b, row.i, row.k, row.n, m, total, row.mark


class Ask(tg.AsyncFunction):
    """Passes rows on after some milliseconds, as a service would answer; one answer in twenty is an error."""

    async def async_invoke(self, row: Any) -> Any:
        await asyncio.sleep(random.expovariate(1 / 0.01))
        if random.random() < 0.05:
            raise ConnectionError("the service is away")
        return row


class NumberBatches(tg.KeyedBatchFunction):
    """As `Number`, over whole batches."""

    n = tg.ValueState(int, default=0)

    def __init__(self, unique: bool) -> None:
        self.unique = unique

    def process_batch(self, batch: Any, keys: Any, ctx: Any) -> Any:
        before = self.n.values(keys)
        self.n.update_all(keys, before + keys.counts())
        n = before[keys.index] + running(keys.index, np.ones(len(keys.index), np.int64))
        mark = [uuid.uuid4().hex if self.unique else "" for _ in n]
        i = batch["i"].to_numpy()
        yield {"b": i % BUCKETS, "i": i, "v": batch["v"], "k": batch["k"], "n": n, "mark": mark}


class AddBatches(tg.KeyedBatchFunction):
    """As `Add`, over whole batches."""

    m = tg.ValueState(int, default=0)
    total = tg.ValueState(int, default=0)

    def process_batch(self, batch: Any, keys: Any, ctx: Any) -> Any:
        m, total = self.m.values(keys), self.total.values(keys)
        values = batch["v"].to_numpy()
        out = {
            **{name: batch[name] for name in ("b", "i", "k", "n", "mark")},
            "m": m[keys.index] + running(keys.index, np.ones(len(values), np.int64)),
            "total": total[keys.index] + running(keys.index, values),
        }
        np.add.at(total, keys.index, values)
        self.m.update_all(keys, m + keys.counts())
        self.total.update_all(keys, total)
        yield out


def running(index: Any, values: Any) -> Any:
    """The sum of the values of a row's key up to and with the row."""
    order = np.argsort(index, kind="stable")
    sums = np.cumsum(values[order])
    starts = np.flatnonzero(np.diff(index[order], prepend=-1))
    before = np.repeat(sums[starts] - values[order][starts], np.diff(starts, append=len(order)))
    found = np.empty_like(sums)
    found[order] = sums - before
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    for name in ("master", "folder", "backend"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--unique", action="store_true")
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--changelog", action="store_true")
    parser.add_argument("--function")
    parser.add_argument("--interval", default="2 s")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = tg.session("chaos", master=options.master, config=SPARK)
    job = declare(
        spark, options.folder, options.unique, options.batches, calls=options.calls, function=options.function
    )
    checkpoint = tg.Checkpointing(
        dir=f"{options.folder}/checkpoints", interval=options.interval, incremental=True, inline_threshold=0,
        tolerable_failures=100,
    )  # fmt: skip
    chosen = {**DELAYS, **(CHANGELOG if options.changelog else {})}
    return run_to_end(job, spark, checkpoint=checkpoint, state_backend=options.backend, options=chosen)


def asked(stream: Any, uid: str, *, ordered: bool) -> Any:
    """The same rows, each after a call."""
    retry = tg.ExponentialBackoffDelayRetry(20, "5 ms", "100 ms")
    return stream.async_map(uid, Ask(), timeout="1 min", capacity=20, ordered=ordered, retry=retry)


def declare(
    spark: Any, folder: str, unique: bool, batches: bool = False, *, calls: bool = False, function: str | None = None,
    name: str = "counted", out: str = "out",
) -> tg.Job:  # fmt: skip
    """`calls`: rows pass an async function before the first level, between the levels, and before the sink. `function`: level 1
    is a function of Spark's, of the kind that `chaos.spark_functions` knows. `out`: the folder of the sink."""
    rows = spark.readStream.schema("k int, i bigint, v bigint").option("maxFilesPerTrigger", 5).json(f"{folder}/in")
    job = tg.Job(name, parallelism=4)
    number, add = (NumberBatches, AddBatches) if batches else (Number, Add)
    if function is None:
        source = job.source("rows", rows)
        if calls:
            source = asked(source, "ask-first", ordered=False)
        one = source.key_by("k").process(
            "number", number(unique), schema="b bigint, i bigint, v bigint, k int, n bigint, mark string"
        )
    else:
        timed = rows.selectExpr("k", "i", "v", TIME)
        keyed = job.source("rows", timed, event_time="t", out_of_orderness=OUT_OF_ORDERNESS).key_by("k")
        one = numbered(function, keyed, unique)
    if calls:
        one = asked(one, "ask-between", ordered=True)
    two = one.key_by("b").process(
        "add", add(), schema="b bigint, i bigint, k int, n bigint, m bigint, total bigint, mark string"
    )
    if calls:
        two = asked(two, "ask-last", ordered=False)
    two.sink("out", tg.FileSink(f"{folder}/{out}"))
    return job


def run_to_end(job: tg.Job, spark: Any, **choices: Any) -> int:
    """The exit code of the process: 3 if the job ended by itself."""
    try:
        job.run(spark, **choices)
    except tg.TidegateError as error:
        print(f"ENDED {error.code}: {error}", file=sys.stderr, flush=True)
        return 3
    return 0


CHANGELOG = {
    "state.changelog.enabled": True,
    "state.changelog.periodic-materialize.interval": "5 s",
    "execution.checkpointing.interval": "300 ms",
}
DELAYS = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 1000,
    "restart-strategy.fixed-delay.delay": "200 ms",
    "host_timeout_ms": 12_000,
    "epoch_timeout_ms": 60_000,
}


SPARK = {
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "10s",
    "spark.rpc.askTimeout": "10s",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "768m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "ERROR",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
