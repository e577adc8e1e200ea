"""The job of a pipeline written with Spark alone, to count what it repeats.

Into Kafka by Spark's own sink, into PostgreSQL by `foreachBatch` and Spark's JDBC writer, as its guide shows them. Rows are not
numbered per key: what a sink repeats does not depend on state.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from chaos.counted import SPARK
from chaos.piped import told
from tests.servers.kafka import connector_jars, jdbc_jars


def append(conninfo: str, table: str) -> Any:
    """A function for `foreachBatch`."""
    told = dict(part.split("=", 1) for part in conninfo.split())
    url = f"jdbc:postgresql://{told['host']}:{told['port']}/{told['dbname']}"
    properties = {"user": told["user"], "driver": "org.postgresql.Driver", "socketTimeout": "10", "connectTimeout": "5"}

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.jdbc(url, table, mode="append", properties=properties)

    return write


def main(argv: list[str]) -> int:
    options, plan = told(argv)
    builder = SparkSession.builder.appName("plain").master(options.master)
    settings = SPARK | {
        "spark.jars": ",".join(map(str, [*connector_jars(), *jdbc_jars()])),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    servers, target = plan["servers"], plan["target"]
    source = (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", plan["source"])
    )
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 500)
    rows = source.load().selectExpr(
        "cast(cast(key as string) as int) as k", "cast(cast(value as string) as bigint) as i"
    )  # fmt: skip
    numbered = rows.selectExpr("k", "i", "cast(0 as bigint) as n")
    if target["kind"] == "kafka":
        records = numbered.selectExpr("cast(k as string) as key", "to_json(struct(k, i, n)) as value")
        writer = records.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
        writer = writer.option("topic", target["topic"])
    else:
        writer = numbered.writeStream.foreachBatch(append(target["conninfo"], target["table"]))
    query = writer.option("checkpointLocation", f"{options.folder}/checkpoints/plain").outputMode("append").start()
    query.awaitTermination()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
