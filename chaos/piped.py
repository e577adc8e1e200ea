"""The job of a pipeline: rows from Kafka, numbered per key, to a real target. Started as often as it dies.

`plan.json` in its folder says where rows come from and go, and with which parallelism. A file `stop` there asks for an end with
a savepoint; the answer is a file `stopped`.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path
from typing import Any

import tidegate as tg
from chaos.counted import DELAYS, SPARK

NAME = "piped"
STOP, STOPPED = "stop", "stopped"
STOP_FAILED = 4
ROWS_OF_EPOCH = 500


class Number(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row: Any, ctx: Any) -> Any:
        n = self.n.value() + 1
        self.n.update(n)
        yield row.k, row.i, n


def as_record(row: Any) -> tuple[str, str]:
    return str(row.k), json.dumps({"k": row.k, "i": row.i, "n": row.n})


def jars_of(plan: dict[str, Any]) -> dict[str, str]:
    """Settings of the session, beyond the usual ones."""
    if not plan["connector"]:
        return {}
    from tests.servers.kafka import connector_jars

    return {"spark.jars": ",".join(map(str, connector_jars()))}


def frame_of(spark: Any, plan: dict[str, Any]) -> Any:
    """What is in the topic, by `kafka_source` or by Spark's connector."""
    servers, topic = plan["servers"], plan["source"]
    if not plan["connector"]:
        return tg.kafka_source(spark, servers, topic, max_offsets_per_trigger=ROWS_OF_EPOCH)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", ROWS_OF_EPOCH).load()


def sink_of(stream: Any, target: dict[str, Any]) -> None:
    match target["kind"]:
        case "kafka":
            records = stream.map(as_record, schema="key string, value string")
            records.sink("out", tg.KafkaSink(target["servers"], target["topic"]))
        case "postgres":
            mode = {"mode": "upsert", "key": target["key"]} if "key" in target else {}
            stream.sink("out", tg.PostgresSink(target["conninfo"], target["table"], **mode))
        case "files":
            stream.sink("out", tg.FileSink(target["path"], options=target["options"]))
        case "delta":
            stream.sink("out", tg.DeltaSink(target["path"], create=True, storage_options=target["options"]))


def told(argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """What the harness says to the process of a job: its arguments, and the plan in its folder."""
    parser = argparse.ArgumentParser()
    for name in ("master", "folder"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args(argv)
    return options, json.loads(Path(options.folder, "plan.json").read_text())


def main(argv: list[str]) -> int:
    options, plan = told(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = tg.session("chaos", master=options.master, config=SPARK | jars_of(plan))
    rows = frame_of(spark, plan).selectExpr(
        "cast(cast(key as string) as int) as k", "cast(cast(value as string) as bigint) as i"
    )  # fmt: skip
    job = tg.Job(NAME, parallelism=plan["parallelism"])
    numbered = job.source("rows", rows).key_by("k").process("number", Number(), schema="k int, i bigint, n bigint")
    sink_of(numbered, plan["target"])
    checkpoint = tg.Checkpointing(
        dir=plan["checkpoints"] or f"{options.folder}/checkpoints", interval="1500 ms", incremental=True,
        tolerable_failures=100,
    )  # fmt: skip
    chosen = {
        **DELAYS,
        **{f"s3.{name}": plan["store"][key] for name, key in _STORE.items() if key in plan["store"]},
    }
    try:
        return run(job, Path(options.folder), spark=spark, checkpoint=checkpoint, options=chosen)
    except tg.TidegateError as error:
        print(f"ENDED {error.code}: {error}", file=sys.stderr, flush=True)
        return 3


def run(job: tg.Job, folder: Path, **choices: Any) -> int:
    """Run the job until it ends or is asked to stop with a savepoint. The exit code is 0, or that of a stop that failed."""
    running = job.start(**choices)
    while not running.await_termination(0.2):
        if (folder / STOP).exists():
            (folder / STOP).unlink()
            try:
                answer = {"savepoint": running.stop_with_savepoint(f"file://{folder}/savepoints")}
            except Exception as error:
                answer = {"failure": f"{type(error).__name__}: {error}"}
            draft = folder / f"{STOPPED}.draft"
            draft.write_text(json.dumps(answer))
            draft.rename(folder / STOPPED)
            if "failure" in answer and running.has_ended:
                return STOP_FAILED
    return 0


_STORE = {
    "endpoint": "endpoint",
    "access-key": "access_key_id",
    "secret-key": "secret_access_key",
    "region": "region",
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
