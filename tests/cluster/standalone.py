"""What tests do with the standalone cluster beyond its own methods: wait, look where tasks run, put it right again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tidegate.testing.cluster import LOCAL_DIR, StandaloneCluster

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def eventually(what: str, holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
    """Return when `holds()` does; fail with `what` when it never did."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


def heal(cluster: StandaloneCluster, *, executors: bool = False) -> None:
    """Every worker running and unpaused; with `executors`, each with an executor of the present application."""
    for worker in cluster.workers:
        cluster.resume(worker.index)
        if worker.daemon is None or worker.daemon.poll() is not None:
            cluster.restart_worker(worker.index)
    if executors:
        eventually("an executor on every worker", lambda: all(cluster.executors(w.index) for w in cluster.workers))


def places(spark: SparkSession, tasks: int = 4, hold_s: float = 0.3) -> list[tuple[str, int]]:
    """(local root, process id) of each task of a small job. Tasks wait a little, so that they spread over all cores."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        for _ in batches:
            pass
        time.sleep(hold_s)
        yield pyarrow.RecordBatch.from_pydict({"root": [os.environ.get(LOCAL_DIR, "")], "pid": [os.getpid()]})

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(look, "root string, pid long").collect()
    return [(row.root, row.pid) for row in rows]
