"""A call of a service for each row: with an async function, with a plain function, and as users of plain Spark make it."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import tidegate as tg
from benchmarks.call_server import ERROR, CallServer
from benchmarks.streams import Contestant, Dataset, Epoch, epochs_of, run_to_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd
    from pyspark.sql import SparkSession

OUT = "key string, answer string"
RETRIES = 5


class AskAsync(tg.AsyncFunction):
    """Asks over one connection for each call in progress, which later calls use again."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def open(self, ctx: Any) -> None:
        self.connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def async_invoke(self, row: Any) -> Any:
        free = self.connections.pop() if self.connections else await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = free
        writer.write(f"{row.key}\n".encode())
        answer = (await reader.readline()).decode().strip()
        self.connections.append(free)
        if answer == ERROR:
            raise ConnectionError(row.key)
        return row.key, answer

    async def close(self) -> None:
        for _, writer in self.connections:
            writer.close()


class AskInTurn(tg.MapFunction):
    """Asks for one row after the other."""

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self, ctx: Any) -> None:
        self.connection = socket.create_connection(("127.0.0.1", self.port))
        self.lines = self.connection.makefile("rw")

    def map(self, row: Any) -> Any:
        for _ in range(1 + RETRIES):
            self.lines.write(f"{row.key}\n")
            self.lines.flush()
            answer = self.lines.readline().strip()
            if answer != ERROR:
                return row.key, answer
        raise ConnectionError(row.key)

    def close(self) -> None:
        self.lines.close()
        self.connection.close()


def asynchronous(server: CallServer, capacity: int, *, ordered: bool) -> Contestant:
    retry = tg.FixedDelayRetry(RETRIES, "1 ms")
    options: dict[str, Any] = {"capacity": capacity, "ordered": ordered, "retry": retry, "timeout": "30 s"}
    name = f"async, {capacity} at a time, {'ordered' if ordered else 'unordered'}"

    def declared(rows: Any) -> Any:
        return rows.async_map("ask", AskAsync(server.port), schema=OUT, **options)

    return _tidegate(name, declared)


def in_turn(server: CallServer) -> Contestant:
    return _tidegate("map, one at a time", lambda rows: rows.map(AskInTurn(server.port), schema=OUT, name="ask"))


def _tidegate(name: str, declared: Any) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        job = tg.Job("calls", parallelism=dataset.files_per_epoch)
        # A key follows, so the calls are made before the shuffle: by one task for each file.
        answers = declared(job.source("rows", dataset.stream(spark)))
        answers.key_by("key").aggregate("count", n=tg.count()).sink("out", tg.DiscardSink())
        running = job.start(spark, trigger="available-now", options={"local_dir": str(work)})
        running.await_termination()
        assert running.counters == type(running.counters)(), f"epochs were repeated: {running.counters}"
        for report in running.reports:
            assert report.operators.get("ask", (0, 0)) == (report.rows_in, report.rows_in), report.operators
        return epochs_of(running.query)

    return Contestant(name, run)


def plain_spark(server: CallServer) -> Contestant:
    def run(spark: SparkSession, dataset: Dataset, work: Path) -> list[Epoch]:
        port = server.port

        def ask(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            asking = AskInTurn(port)
            asking.open(None)
            for frame in frames:
                frame["answer"] = [asking.map(row)[1] for row in frame.itertuples()]
                yield frame[["key", "answer"]]
            asking.close()

        return run_to_end(dataset.stream(spark).mapInPandas(ask, OUT).writeStream.format("noop"), work)

    return Contestant("mapInPandas, one at a time", run)
