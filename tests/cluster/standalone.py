"""What tests do with the standalone cluster beyond its own methods: wait, look where tasks run, put it right again."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.waiting import eventually
from tidegate.testing.cluster import LOCAL_DIR, StandaloneCluster

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


def heal(cluster: StandaloneCluster, *, executors: bool = False) -> None:
    """Every worker running and unpaused; with `executors`, each with an executor of the present application."""
    for worker in cluster.workers:
        cluster.resume(worker.index)
        if worker.daemon is None or worker.daemon.poll() is not None:
            cluster.restart_worker(worker.index)
    if executors:
        eventually(lambda: all(cluster.executors(w.index) for w in cluster.workers), "an executor on every worker")


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


def host_of(cluster: StandaloneCluster, pid: int) -> int:
    """Index of the worker on whose host a Python worker runs."""
    return next(worker.index for worker in cluster.workers if pid in cluster.python_workers(worker.index))


@contextlib.contextmanager
def busy(spark: SparkSession, cluster: StandaloneCluster, worker: int, seconds: float) -> Iterator[None]:
    """Another job of the same application holds every core of one worker; enters when it does, leaves when it has ended."""
    root = str(cluster.workers[worker].local_root)
    begun = cluster.directory / f"busy-{time.monotonic_ns()}"
    begun.mkdir()
    place = str(begun)

    def hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if os.environ.get(LOCAL_DIR) == root:
            with open(os.path.join(place, str(os.getpid())), "w"):
                time.sleep(seconds)
        else:
            time.sleep(0.3)
        yield from batches

    holding = threading.Thread(target=lambda: spark.range(0, 8, 1, 8).mapInArrow(hold, "id long").collect())
    holding.start()
    eventually(lambda: len(list(begun.iterdir())) >= 2, "all cores of the worker are held")
    try:
        yield
    finally:
        holding.join()
