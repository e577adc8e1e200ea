"""Start, watch, change and restart a job in one process, as the cells of a notebook do. Nothing is left behind."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.speed import Limit
from tests.waiting import eventually
from tidegate.errors import PreconditionFailed

SCHEMA = "user string, amount double"
CELL = """
class Totals(tg.KeyedProcessFunction):
    total = tg.ValueState(float, default=0.0)

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.amount)
        yield row.user, self.total.value(), {version}
"""


def totals(version: int) -> Any:
    """A class defined by running a cell: `version` is what changes in its code."""
    cell: dict[str, Any] = {"tg": tg, "__name__": "__main__"}
    exec(CELL.format(version=version), cell)
    return cell["Totals"]()


class Notebook:
    """One job, declared again by each cell."""

    def __init__(self, spark, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.out = tg.CollectSink()
        self._files = 0

    def orders(self, *rows: tuple[str, float]) -> None:
        write_batches(self.folder / "in", SCHEMA, [rows], self._files)
        self._files += 1

    def job(self, version: int = 1) -> tg.Job:
        job = tg.Job("notebook", parallelism=2)
        read = self.spark.readStream.schema(SCHEMA).parquet(str(self.folder / "in"))
        made = job.source("in", read).key_by("user").process("totals", totals(version), schema=f"{SCHEMA}, version int")
        self.out = tg.CollectSink()
        made.sink("out", self.out)
        return job

    def start(
        self, version: int = 1, *, durable: bool = True, job: tg.Job | None = None, **choices: Any
    ) -> tg.JobRun:  # fmt: skip
        job = job or self.job(version)
        where = (
            {"checkpoint": tg.Checkpointing(dir=str(self.folder / "checkpoints"), interval="200 ms")} if durable else {}
        )
        return job.start(self.spark, options={"local_dir": str(self.folder / "local")}, **where, **choices)

    def start_and_work(self, **choices: Any) -> None:
        """A cell that starts the job and does something else."""
        self.start(**choices)
        time.sleep(10)

    def shown(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.out.rows]


LEFT_BY_OTHERS: set[threading.Thread] = set()


@pytest.fixture(scope="module", autouse=True)
def _others() -> None:
    """Tests before these leave threads on purpose, such as that of a listener that hangs."""
    LEFT_BY_OTHERS.update(threading.enumerate())


@pytest.fixture
def notebook(spark, tmp_path):
    made = Notebook(spark, tmp_path)
    made.orders(("ann", 0.0))
    yield made
    for query in spark.streams.active:
        query.stop()


def own_threads() -> list[str]:
    return sorted(
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith("tidegate") and thread not in LEFT_BY_OTHERS
    )


def descriptors() -> Counter[str]:
    """Open file descriptors by what they are, the numbers of sockets and pipes left out."""
    found: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        try:
            found[os.readlink(f"/proc/self/fd/{number}").split(":[")[0]] += 1
        except OSError:
            continue  # The one that lists them.
    return found


class Census:
    """What a run could leave behind in this process."""

    def __init__(self, spark) -> None:
        # Heartbeats and uploads look every few seconds whether their run has ended.
        eventually(lambda: own_threads() == [], f"threads are left: {own_threads()}", timeout_s=15)
        self.queries = len(spark.streams.active)
        self.cached = spark._sc._jsc.getPersistentRDDs().size()
        self.threads = threading.active_count()
        self.descriptors = descriptors()
        self.directories = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("tidegate-notebook")}


@pytest.mark.budget(280)
@pytest.mark.parametrize("durable", [True, False])
def test_ten_restarts_leave_nothing_behind(notebook, spark, durable):
    def cell(version: int) -> None:
        notebook.orders(("ann", 1.0))
        run = notebook.start(version, durable=durable)
        eventually(lambda: len(notebook.out.rows) > 0)
        assert "RUNNING" in repr(run)
        assert run.metrics()["numRestarts"] == 0
        run.stop()
        assert {row[2] for row in notebook.shown()} == {version}

    cell(0)
    before = Census(spark)
    for version in range(1, 11):
        cell(version)
    after = Census(spark)
    if durable:
        assert notebook.shown() == [("ann", 11.0, 10)]
    assert (after.queries, after.cached, after.directories) == (0, before.cached, before.directories)
    # PySpark keeps the thread and the socket on which a streaming query has called Python, also without tidegate; and its pool of
    # connections to the JVM has one for each thread that ever called at the same time as others. One more per start would be 20.
    assert after.threads - before.threads <= 10
    more = after.descriptors - before.descriptors
    assert set(more) <= {"socket"}
    assert more["socket"] <= 10 + 4


def test_a_cell_that_runs_again_is_refused_while_the_job_runs(notebook, spark):
    run = notebook.start()
    limit = Limit(5)
    with pytest.raises(PreconditionFailed, match=r"already running in this process.*restart=True"):
        notebook.start()
    assert not limit.passed()
    assert run.status == "RUNNING"
    run.stop()
    notebook.start().stop()


@pytest.mark.parametrize("durable", [True, False])
def test_a_cell_that_restarts_stops_the_old_run_first(notebook, spark, durable):
    notebook.orders(("ann", 5.0))
    old = notebook.start(1, durable=durable)
    eventually(lambda: len(notebook.out.rows) == 2)
    notebook.orders(("ann", 2.0))
    new = notebook.start(2, durable=durable, restart=True)
    assert old.status == "CANCELED"
    eventually(lambda: ("ann", 7.0, 2) in notebook.shown())
    assert len(spark.streams.active) == 1
    del new, old
    notebook.start(3, durable=durable, restart=True).stop()
    assert spark.streams.active == []


def test_a_restart_after_a_failure_starts(notebook, spark):
    class Fails(tg.KeyedProcessFunction):
        def process_element(self, row, ctx):
            raise ValueError("not yet")

    job = tg.Job("notebook", parallelism=2)
    read = spark.readStream.schema(SCHEMA).parquet(str(notebook.folder / "in"))
    job.source("in", read).key_by("user").process("totals", Fails(), schema=SCHEMA).sink("out", tg.CollectSink())
    failed = job.start(spark)
    with pytest.raises(tg.TidegateError, match="not yet"):
        failed.await_termination(60)
    run = notebook.start(durable=False)
    eventually(lambda: len(notebook.out.rows) == 1)
    run.stop()


def interrupt_after(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@pytest.mark.parametrize("delay_s", [0.02, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("durable", [True, False])
def test_an_interrupted_start_leaves_nothing_behind(notebook, spark, durable, delay_s):
    notebook.start(durable=durable).stop()
    before = Census(spark)
    # Declared first: PySpark's own handler breaks a call to Spark that it interrupts, such as the schema of a source.
    job = notebook.job()
    timer = interrupt_after(delay_s)
    with pytest.raises(KeyboardInterrupt):
        notebook.start_and_work(durable=durable, job=job)
    timer.join()
    for query in spark.streams.active:
        # Only if the start was done: then the interrupt hit the cell behind it, and the job runs on.
        assert query.name == "notebook"
        notebook.start(durable=durable, restart=True).stop()
    after = Census(spark)
    assert (after.queries, after.cached, after.directories) == (0, before.cached, before.directories)
    limit = Limit(10)
    notebook.start(durable=durable).stop()
    assert not limit.passed(), "the claim of the interrupted start was in the way"


def test_an_interrupt_ends_the_waiting_and_not_the_job(notebook, spark):
    run = notebook.start()
    eventually(lambda: len(notebook.out.rows) == 1)
    for _ in range(3):
        timer = interrupt_after(0.3)
        with pytest.raises(KeyboardInterrupt):
            run.await_termination()
        timer.join()
    notebook.orders(("ann", 3.0))
    eventually(lambda: len(notebook.out.rows) == 2)
    assert (run.status, run.restarts) == ("RUNNING", 0)
    run.stop()


def test_a_server_is_replaced_by_that_of_the_next_run(notebook, spark):
    first = notebook.start()
    port = tg.serve(first, port=0).port
    tg.serve(first, port=port + 1)
    tg.serve(first, port=port + 1)
    first.stop()
    second = notebook.start()
    with tg.serve(second, port=port + 1) as server:
        assert server.port == port + 1
    tg.serve(second, port=0).close()
    second.stop()
    eventually(lambda: own_threads() == [], f"{own_threads()}", timeout_s=15)


def test_a_running_session_is_reused_and_never_changed(spark):
    running = tg.session("another name")
    assert running.sparkContext is spark.sparkContext
    key = "spark.sql.adaptive.enabled"
    running.conf.set(key, "true")
    try:
        with pytest.raises(
            PreconditionFailed, match=r'Change these settings:\n    spark.conf.set\("spark.sql.adaptive'
        ):
            tg.session("another name")
        assert running.conf.get(key) == "true"
    finally:
        running.conf.set(key, "false")
    assert spark.range(1).count() == 1
