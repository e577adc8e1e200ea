"""A running job: a Structured Streaming query whose every batch is an epoch of ours; or, on batch DataFrames, one pass."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.core.durations import duration_ms
from tidegate.core.errors import GraphError, PreconditionFailed
from tidegate.graph.model import Graph
from tidegate.graph.parallelism import default_max_parallelism
from tidegate.runtime.driver import Driver, EpochReport
from tidegate.runtime.epoch_frame import combine
from tidegate.runtime.failover import Counters
from tidegate.runtime.positions import Positions, Skip, decide_batch, read_positions
from tidegate.runtime.session import check_session
from tidegate.runtime.settings import Settings
from tidegate.runtime.sources import check_sources
from tidegate.state.backends import DEFAULT, OLDER_TYPE_KEY, TYPE_KEY

log = logging.getLogger("tidegate")


class _Stopping(Exception):
    """The job is stopping or has failed: no further epoch is run."""


class JobRun:
    """A job that runs. `await_termination()` waits for its end and raises what ended it."""

    HISTORY = 1000

    def __init__(self, spark: SparkSession, graph: Graph, settings: Settings, trigger: Any) -> None:
        self._spark, self._graph = spark, graph
        self._trigger = trigger
        self._directory = Path(tempfile.mkdtemp(prefix=f"tidegate-{graph.job}-"))
        self._driver = Driver(spark, graph, settings)
        self._turn = threading.Lock()
        """Held while an epoch runs: batches come on a thread of Spark's, empty epochs on one of ours."""
        self._turn_of: int | None = None
        self._stopping = threading.Event()
        self._done: Positions | None = None
        self._first = True
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None
        self.reports: deque[EpochReport] = deque(maxlen=self.HISTORY)
        self.skipped_batches = 0

    @property
    def counters(self) -> Counters:
        """How often epochs had to be run again, and why."""
        return self._driver.counters

    @property
    def query(self) -> StreamingQuery:
        """The Structured Streaming query that brings the batches."""
        assert self._query is not None
        return self._query

    def start(self) -> JobRun:
        writer = combine(self._graph.sources).writeStream.queryName(self._graph.job)
        writer = writer.option("checkpointLocation", self._directory.as_uri()).foreachBatch(self._on_batch)
        match self._trigger:
            case None:
                pass
            case "available-now" | "availableNow":
                writer = writer.trigger(availableNow=True)
            case int() | float():
                raise GraphError(f"trigger={self._trigger!r} has no unit. Write '5 s', '500 ms' or 'available-now'.")
            case interval:
                writer = writer.trigger(processingTime=f"{duration_ms(interval)} milliseconds")
        self._query = writer.start()
        return self

    def run_empty_epoch(self) -> EpochReport:
        """An epoch without a batch, between two batches."""
        with self._take_turn():
            return self._record(self._driver.run_epoch(None))

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._take_turn():
            self._epoch_of(batch, batch_id)

    @contextmanager
    def _take_turn(self) -> Iterator[None]:
        """One epoch at a time, and none after one that failed: what it left uncommitted must not be overtaken."""
        with self._turn:
            if self._error is not None or self._stopping.is_set():
                raise _Stopping
            self._turn_of = threading.get_ident()
            try:
                yield
            except BaseException as error:
                self._error = error
                raise
            finally:
                self._turn_of = None

    def _epoch_of(self, batch: DataFrame, batch_id: int) -> None:
        end = read_positions(self._directory, batch_id)
        start = read_positions(self._directory, batch_id - 1)
        if isinstance(decide_batch(self._done, start, end, self._first), Skip):
            log.warning("batch %d was delivered again and is skipped", batch_id)
            self.skipped_batches += 1
            return
        self._record(self._driver.run_epoch(batch))
        self._done, self._first = end, False

    def _record(self, report: EpochReport) -> EpochReport:
        self.reports.append(report)
        rate = report.rows_in * 1000 // max(1, report.duration_ms)
        log.info("epoch %s: %d rows in %d ms (%d rows/s)", report.epoch, report.rows_in, report.duration_ms, rate)
        return report

    def await_termination(self, timeout_s: int | None = None) -> bool:
        """Whether the job has ended. Raises the error that ended it, if one did."""
        assert self._query is not None
        try:
            ended = self._query.awaitTermination(timeout_s) if timeout_s is not None else self._wait()
        except Exception as error:
            if self._stopping.is_set() and self._error is None:
                ended = True
            else:
                self._close()
                raise (self._error or error) from None
        if ended:
            self._close()
        return bool(ended)

    def _wait(self) -> bool:
        assert self._query is not None
        self._query.awaitTermination()
        return True

    def stop(self) -> None:
        """End the job after the epoch that is running, if one is."""
        assert self._query is not None
        self._stopping.set()
        if self._turn_of == threading.get_ident():
            # Called from within an epoch, by a callback sink: it must end before the query can.
            threading.Thread(target=self.stop, name="tidegate-stop", daemon=True).start()
            return
        # With the turn taken no epoch runs, and one that Spark starts now is refused: the query is at a boundary.
        with self._turn:
            pass
        self._query.stop()
        try:
            self.await_termination()
        finally:
            self._close()

    def _close(self) -> None:
        self._driver.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def run_job(
    graph: Graph, *, spark: SparkSession | None = None, trigger: str | None = None, **choices: Any
) -> EpochReport | None:
    """Run a job to its end: streaming until it is stopped or fails, bounded until its sources are read."""
    if all(source.bounded for source in graph.sources):
        session = spark or _session_of(graph)
        return run_bounded(graph, session, settings_of(session, **choices))
    run = start_job(graph, spark=spark, trigger=trigger, **choices)
    try:
        run.await_termination()
    except KeyboardInterrupt:
        run.stop()
    return None


def start_job(graph: Graph, *, spark: SparkSession | None = None, trigger: str | None = None, **choices: Any) -> JobRun:
    """Start a job on streaming DataFrames and return at once."""
    session = spark or _session_of(graph)
    check_session(session.conf.get)
    check_sources(graph.sources)
    return JobRun(session, graph, settings_of(session, **choices), trigger).start()


def run_bounded(graph: Graph, spark: SparkSession, settings: Settings) -> EpochReport:
    """Run a job on batch DataFrames once to the end: one pass, no checkpoints; Spark replays what fails."""
    check_session(spark.conf.get)
    driver = Driver(spark, graph, settings)
    try:
        return driver.run_epoch(combine(graph.sources), only=True)
    finally:
        driver.close()


def settings_of(
    spark: SparkSession, *, parallelism: int | None, max_parallelism: int | None, state_backend: str | None = None,
    checkpoint: Any = None, options: Mapping[str, Any] | None = None,
) -> Settings:  # fmt: skip
    """Everything a user may choose, in one frozen place."""
    if checkpoint is not None:
        raise PreconditionFailed(
            "Checkpoints to durable storage are not available in this version. Run without checkpoint=."
        )
    chosen = dict(options or {})
    p = parallelism or 2 * _cores(spark)
    known = {f.name for f in fields(Settings)} - {"parallelism", "max_parallelism", "state_backend", "backend_options"}
    return Settings(
        p,
        max_parallelism or default_max_parallelism(p),
        state_backend or str(chosen.get(TYPE_KEY) or chosen.get(OLDER_TYPE_KEY) or DEFAULT),
        {key: value for key, value in chosen.items() if key not in known},
        **{key: value for key, value in chosen.items() if key in known},
    )


def _session_of(graph: Graph) -> SparkSession:
    session: SparkSession = graph.sources[0].frame.sparkSession
    return session


def _cores(spark: SparkSession) -> int:
    master = spark.conf.get("spark.master", "") or ""
    if master.startswith("local[") and master[6:-1].split(",")[0].isdigit():
        return int(master[6:-1].split(",")[0])
    return os.cpu_count() or 2
