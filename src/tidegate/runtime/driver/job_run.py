"""A running job: a Structured Streaming query whose every batch is an epoch of ours; or, on batch DataFrames, one pass.

With checkpoints, a run outlives its failures: it goes back to the newest checkpoint and on from there, in the same process
as long as that lives. Every such attempt has a query and a directory of its own.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.checkpoint.assignment import RestoreError
from tidegate.checkpoint.completed_store import CheckpointUnreadable
from tidegate.checkpoint.entry import CheckpointRef, LogCorrupt
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.log import ClaimLost
from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.checkpoint.operators import declared, describe
from tidegate.checkpoint.release_plan import WaitingOutput
from tidegate.checkpoint.retained import resolve
from tidegate.checkpoint.start import Start, StartRefused
from tidegate.checkpoint.statistics import CheckpointStatistics
from tidegate.checkpoint.version_restore import RestoreOrder
from tidegate.config import restart_strategy as restart
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.choices import CheckpointingMode, ClaimMode, JobEnd
from tidegate.config.errors import OptionError
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.durations import duration_ms
from tidegate.core.errors import (
    EpochFailed,
    GraphError,
    PreconditionFailed,
    RestoreFailed,
    StateLost,
    TidegateError,
    UserCodeError,
)
from tidegate.core.ids import Lineage, TaskId
from tidegate.core.log_setup import speak
from tidegate.core.times import MAX_WATERMARK
from tidegate.graph import state_ids
from tidegate.graph.levels import plan as plan_levels
from tidegate.graph.model import Graph
from tidegate.runtime.driver.checkpoint_loop import CheckpointLoop
from tidegate.runtime.driver.committers import Committers
from tidegate.runtime.driver.empty_epochs import empty_epoch
from tidegate.runtime.driver.ending import STOP_WITHIN, Ending
from tidegate.runtime.driver.epoch_frame import combine
from tidegate.runtime.driver.epoch_reports import EpochReports
from tidegate.runtime.driver.epoch_runner import EpochReport, EpochRunner, Identity
from tidegate.runtime.driver.epoch_snapshot import EpochSnapshot
from tidegate.runtime.driver.epoch_trigger import EpochTrigger
from tidegate.runtime.driver.failover import Counters
from tidegate.runtime.driver.job_description import JobDescription, task_sinks
from tidegate.runtime.driver.job_history import JobHistory, Origin
from tidegate.runtime.driver.output_release import OutputNotPublished
from tidegate.runtime.driver.ownership import Ownership
from tidegate.runtime.driver.progress import Progress
from tidegate.runtime.driver.restore_point import plan_return
from tidegate.runtime.driver.session import check_session
from tidegate.runtime.driver.settings import Durability, Settings, read_settings
from tidegate.runtime.driver.sink_threads import OutputStopped, SinkThreads
from tidegate.runtime.sources.file_log import COMPACT_INTERVAL
from tidegate.runtime.sources.kafka_source import recognise
from tidegate.runtime.sources.kept_files import check_declared, check_kept
from tidegate.runtime.sources.query_directory import (
    Positions,
    SkipBatch,
    SourceNotes,
    decide_batch,
    read_positions,
    rebuild,
)
from tidegate.runtime.sources.source_checks import begins_anew, check_sources
from tidegate.runtime.sources.source_notes import check_claimed
from tidegate.savepoint.compatibility import JobNow
from tidegate.savepoint.compatibility import VerdictKind as Verdict
from tidegate.savepoint.restore_compatibility import shown
from tidegate.savepoint.snapshot import CANONICAL, NATIVE
from tidegate.storage import RoutedStorage, open_storage, probe

log = logging.getLogger("tidegate")

_IDLE_S = 0.5
"""How long no batch must have come before uploads get an epoch of their own."""
_PACE_S = 0.05
_LOOK_S = 2.0
"""How often a job that waits for a sink looks whether its Spark session is still there."""
_LOOK_BACK = 2
"""Spark tells a source that a batch is done when it plans the next one; so two batches later it has acted on it."""
_HOPELESS = (
    RestoreError, RestoreFailed, PreconditionFailed, GraphError,
    ClaimLost, StartRefused, LogCorrupt, CheckpointUnreadable, OutputStopped,
)  # fmt: skip
"""What would go wrong in the same way again, or what a restart must not undo: another driver has the job."""


class _Stopping(Exception):
    """The job is stopping, has failed, or goes on in another attempt: no further epoch is run."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that ended an attempt of a run."""

    at_ms: int
    kind: str
    """`user-code`, `state-lost`, `engine`, or the code of the error in lower case."""
    message: str
    restarted: bool


class JobRun:
    """A job that runs. `await_termination()` waits for its end and raises what ended it."""

    HISTORY = 1000

    def __init__(
        self, spark: SparkSession, graph: Graph, settings: Settings, trigger: Any, durability: Durability | None = None
    ) -> None:
        self._spark, self._graph, self._settings, self._durability = spark, graph, settings, durability
        self._trigger = EpochTrigger.parse(trigger)
        self._progress = Progress(graph.job)
        archive = None if durability is None else durability.archive
        self._storage = (
            None if archive is None else RoutedStorage(open_storage(archive.url, **archive.options), archive.options)
        )
        self._committers = Committers(graph, self._storage)
        self._loop: CheckpointLoop | None = None
        self._epoch_lock = threading.Lock()
        """Held while an epoch runs: batches come on a thread of Spark's, empty epochs on one of ours."""
        self._epoch_thread: int | None = None
        self._attempt = 0
        self._stopping = threading.Event()
        self._cancelled = False
        self._last_target: tuple[str | None, str] | None = None
        """Where the savepoint goes that ends the job, if one is to, and its format."""
        self._draining = False
        self._last_savepoint: str | None = None
        self._output_latest: float | None = None
        self.held_by: WaitingOutput | None = None
        """The sink for which so much output waits that no batch is read until it has caught up."""
        self._done: Positions | None = None
        self._pinned = True
        self._error: BaseException | None = None
        self._outcome: BaseException | None = None
        self._ended = threading.Event()
        self._query: StreamingQuery | None = None
        self._directory: Path | None = None
        self._ends: deque[Positions] = deque(maxlen=_LOOK_BACK)
        """Where the last batches of this attempt ended."""
        self._last_epoch = time.monotonic()
        self.reports = EpochReports(self.HISTORY)
        self.failures: deque[Failure] = deque(maxlen=self.HISTORY)
        self.skipped_batches = 0
        self.restarts = 0

    @property
    def counters(self) -> Counters:
        """How often epochs had to be run again, and why."""
        return self._runner.counters

    @property
    def query(self) -> StreamingQuery:
        """The Structured Streaming query that brings the batches."""
        assert self._query is not None
        return self._query

    @property
    def name(self) -> str:
        return self._graph.job

    @property
    def lineage(self) -> Lineage:
        return self._runner.lineage

    @property
    def parallelism(self) -> int:
        return self._settings.parallelism

    @property
    def max_parallelism(self) -> int:
        return self._settings.max_parallelism

    @property
    def state_backend(self) -> str:
        return self._settings.state_backend

    @property
    def tasks(self) -> list[TaskId]:
        return self._job.tasks

    @property
    def checkpoint_config(self) -> CheckpointConfig | None:
        return None if self._durability is None else self._durability.checkpoints

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    @property
    def status(self) -> str:
        """Flink's word for it."""
        if self._ended.is_set():
            if self._outcome is not None:
                return "FAILED"
            if self._last_savepoint is not None or not self._stopping.is_set():
                return "FINISHED"
            return "CANCELED"
        if self._stopping.is_set():
            return "CANCELLING"
        return "RUNNING" if self._error is None else "RESTARTING"

    def trigger_checkpoint(self, *, full: bool | None = None) -> Future[CheckpointRef]:
        """Take a checkpoint now, whatever the interval says. `full=True` stores every file anew, `full=False` only what earlier
        checkpoints do not have; without it, the configuration decides."""
        return self._kept().request(full=full)

    @property
    def checkpoints(self) -> CheckpointStatistics | None:
        """What became of the checkpoints of this run; None without checkpointing."""
        return None if self._loop is None else self._loop.statistics

    # -- beginning ---------------------------------------------------------------------------------------------------

    def start(self) -> JobRun:
        """Claim the job, see that its newest checkpoint fits, and begin. Raises before anything runs if it cannot."""
        self._progress.begin()
        owned = None if self._durability is None else self._claim(self._durability)
        try:
            self._runner = EpochRunner(self._spark, self._graph, self._settings, self._identity(owned))
            by_tasks = self._durability is not None and self._durability.checkpoints.publishes_in_tasks
            self._job = _described(self._runner, self._spark.version, by_tasks)
            if owned is not None and self._storage is not None:
                sinks = SinkThreads(self._committers.committers, self._storage)
                self._loop = CheckpointLoop(owned, self._job, sinks)
            with self._new_attempt():
                self._begin_attempt()
        except BaseException:
            self._discard_directory()
            if self._loop is not None:
                self._loop.leave()
            elif owned is not None:
                owned.stop()
            raise
        log.info(
            "job %s started: parallelism %d, %s, %s", self._graph.job, self.parallelism, self.state_backend, self._origin(),
            extra={"job": self._graph.job},
        )  # fmt: skip
        threading.Thread(target=self._supervise, name="tidegate-run", daemon=True).start()
        return self

    def _origin(self) -> str:
        """Where the run begins, in words."""
        if self._loop is None:
            return "without checkpoints"
        found = self._loop.ownership.restore_point().checkpoint_id
        return f"goes on from checkpoint {found}" if found else "begins with no checkpoint"

    def _claim(self, chosen: Durability) -> Ownership:
        storage = self._storage
        assert storage is not None
        layout = JobLayout(self._graph.job)
        probe(storage, f"{layout.root}/probe")
        path = chosen.recovery.path
        source, given = (None, None) if path is None else resolve(storage, layout, path)
        history = JobHistory(storage, layout, chosen.checkpoints, chosen.recovery.uids)
        if not (chosen.fresh and source is None):
            self._check_fits(history.peek(source))
        origin: Origin | None = None
        if source is not None and given is not None:
            claim = chosen.recovery.claim_mode is ClaimMode.CLAIM
            history.check_origin(source, given, chosen.fresh, claim)
            origin = history.take(source, given, claim)
        start = Start(None if origin is None else origin.ref, chosen.fresh)
        owned = Ownership.claim(history, start, chosen.force, None if origin is None else origin.pin)
        try:
            owned.check_output(self._committers.committers, self._allow)
        except BaseException:
            owned.stop()
            raise
        return owned

    def _identity(self, owned: Ownership | None) -> Identity:
        if owned is None or self._durability is None:
            return Identity.ephemeral()
        found = owned.restore_point()
        numbers = {} if found.snapshot is None else {(n.uid, n.name): n.id for n in found.snapshot.state_numbers}
        return Identity(found.lineage, found.term, self._durability.archive, numbers)

    def _check_fits(self, snapshot: CheckpointMetadata | None) -> None:
        """Before anything is written: a start that cannot be is refused, and leaves the job as it was."""
        if snapshot is None:
            return
        s, levels = self._settings, plan_levels(self._graph)
        numbers = {(n.uid, n.name): n.id for n in snapshot.state_numbers}
        numbered = state_ids.assign(numbers, declared(self._graph))
        operators = describe(self._graph, levels, s.parallelism, s.state_backend, numbered)
        sources = tuple(source.uid for source in self._graph.sources)
        now = JobNow(operators, sources, renames=self._renames)
        _, fitted = plan_return(snapshot, now, s.parallelism, s.max_parallelism, self._allow)
        check_claimed(snapshot, sources, self._allow)
        if snapshot.watermark_ms == MAX_WATERMARK:
            log.warning("the snapshot was taken after a drain: all event time has passed, and every row comes late")
        for verdict in fitted.compatibility.verdicts:
            level = logging.WARNING if verdict.outcome is Verdict.DROPPED else logging.INFO
            log.log(level, "state of the snapshot, %s", shown(verdict), extra={"job": self._graph.job})

    @property
    def _renames(self) -> Mapping[tuple[str, str], Mapping[str, str]]:
        return {} if self._durability is None else self._durability.recovery.renamed_fields

    @property
    def _allow(self) -> bool:
        return self._durability is not None and self._durability.recovery.allow_non_restored_state

    @contextmanager
    def _new_attempt(self) -> Iterator[None]:
        """Hold the epoch lock while an attempt begins. If it cannot begin, its batches are refused, and its query is stopped:
        without the lock, since one of its batches may be waiting for it, and Spark waits for its batches."""
        before = self._query
        try:
            with self._epoch_lock:
                try:
                    yield
                except BaseException:
                    self._attempt += 1
                    raise
        except BaseException:
            if self._query is not None and self._query is not before:
                self._query.stop()
            raise

    def _begin_attempt(self) -> None:
        """Go on from the newest checkpoint, or from the beginning. The epoch lock must be held.

        The query is started first, so that Spark plans its first batch while the state is brought back. The batch waits for
        the epoch lock, and is refused if the state cannot be restored.
        """
        self._attempt += 1
        attempt = self._attempt
        self._ends.clear()
        orders = self._go_to_checkpoint()
        assert self._directory is not None
        writer = combine(self._graph.sources).writeStream.queryName(self._graph.job)
        writer = writer.option("checkpointLocation", self._directory.as_uri())
        writer = writer.foreachBatch(lambda batch, batch_id: self._on_batch(attempt, batch, batch_id))
        self._query = self._trigger.start(self._spark, writer)
        self._bring_back(orders)
        self._error = None
        if self._loop is not None:
            self._loop.begin_at(self._snapshot())
        if self._loop is not None or self._runner.has_timers:
            threading.Thread(target=self._pace, args=(attempt,), name="tidegate-pace", daemon=True).start()

    def _go_to_checkpoint(self) -> Mapping[TaskId, RestoreOrder]:
        """Set clocks and positions to where the newest checkpoint has them, or to the beginning. Answer: which state the tasks
        have to bring back."""
        loop = self._loop
        if loop is None:
            self._pinned = True
            self._directory, self._done = self._new_directory(), None
            return {}
        found = loop.ownership.restore_point()
        self._runner.reset_clocks(found.clocks())
        orders = found.orders(self._job, self._allow, self._renames)
        sources, batch = found.sources(self._job, self._allow)
        sources = tuple(
            SourceNotes(None, {}) if begins_anew(source) else notes
            for source, notes in zip(self._graph.sources, sources)
        )
        # A source that is new to the job begins now, and must begin there again after a failure.
        self._pinned = all(source.line is not None or source.notes for source in sources)
        self._directory = self._new_directory()
        self._done = _rebuilt(self._spark, self._directory, sources, batch)
        return orders

    def _bring_back(self, orders: Mapping[TaskId, RestoreOrder]) -> None:
        about = {"job": self._graph.job}
        if self._loop is None or not orders:
            log.info("job %s starts the Python workers of its %d tasks", self._graph.job, len(self.tasks), extra=about)
            self._runner.forget_versions()
            self._runner.place()
            return
        found = self._loop.ownership.restore_point().checkpoint_id
        log.info(
            "job %s brings back the state of checkpoint %d in %d tasks",
            self._graph.job,
            found,
            len(orders),
            extra=about,
        )
        started = time.monotonic()
        report = self._runner.restore(orders)
        log.info(
            "state of checkpoint %d is back after %.1f s", found, time.monotonic() - started,
            extra=about | {"epoch": str(report.epoch)},
        )  # fmt: skip

    def _new_directory(self) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"tidegate-{self._graph.job}-")) / "query"

    # -- epochs ------------------------------------------------------------------------------------------------------

    def run_empty_epoch(self, attempt: int | None = None, *, time_stands: bool = False) -> EpochReport:
        """An epoch without a batch, between two batches; without timers, too, if `time_stands`."""
        with self._hold_epoch_lock(self._attempt if attempt is None else attempt):
            return self._epoch(None, self._done, time_stands=time_stands)

    def _on_batch(self, attempt: int, batch: DataFrame, batch_id: int) -> None:
        latest = time.monotonic() + self._trigger.interval_s
        self._run_batch(attempt, batch, batch_id)
        # Empty epochs for uploads and timers may run meanwhile.
        while self._goes_on(attempt) and (left_s := latest - time.monotonic()) > 0:
            self._stopping.wait(min(left_s, _PACE_S))

    def _goes_on(self, attempt: int) -> bool:
        return attempt == self._attempt and not self._stopping.is_set() and self._error is None

    def _run_batch(self, attempt: int, batch: DataFrame, batch_id: int) -> None:
        with self._hold_epoch_lock(attempt):
            assert self._directory is not None
            end = read_positions(self._directory, batch_id)
            start = read_positions(self._directory, batch_id - 1)
            if isinstance(decide_batch(self._done, start, end), SkipBatch):
                log.warning("batch %d was delivered again and is skipped", batch_id)
                self.skipped_batches += 1
                return
            if not self._pinned:
                self._pin()
            if self._loop is not None and end is not None and not self._ends:
                check_declared(self._directory, end, self._graph.sources)
            if self._loop is not None and len(self._ends) == _LOOK_BACK:
                check_kept(self._directory, self._ends[0], self._graph.sources)
            self._hold_for_output()
            self._epoch(batch, end)
            if end is not None:
                self._ends.append(end)

    @contextmanager
    def _hold_epoch_lock(self, attempt: int) -> Iterator[None]:
        """One epoch at a time, and none after one that failed: what it left uncommitted must not be overtaken."""
        with self._epoch_lock:
            if not self._goes_on(attempt):
                raise _Stopping
            self._epoch_thread = threading.get_ident()
            try:
                if self._loop is not None:
                    self._loop.check()
                yield
            except BaseException as error:
                self._error = error
                raise
            finally:
                self._epoch_thread = None

    def _pin(self) -> None:
        """Checkpoint 0: the sources have fixed where they begin and no row was read. "Latest" means the same ever after."""
        assert self._loop is not None
        self._run_empty_epochs_until(self._loop.request(published=False))
        self._pinned = True

    def _hold_for_output(self) -> None:
        """Wait as long as too much output waits for a sink. Checkpoints and recovery go on; the epoch lock must be held.

        Raises `_Stopping` when the job is to stop: the batch is read again by the next start.
        """
        loop = self._loop
        holding = None if loop is None else loop.held_by()
        if loop is None or holding is None:
            return
        log.warning("no batch is read while too much output waits: %s", holding, extra={"job": self._graph.job})
        started = looked = time.monotonic()
        while (now_holding := loop.held_by()) is not None:
            self.held_by = now_holding
            if self._stopping.is_set():
                self.held_by = None
                raise _Stopping
            loop.check()
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                if _is_dead(self._spark):
                    raise EpochFailed("The Spark session has ended while the job waited for a sink.")
            found = empty_epoch(loop.uploads.has_work(), self._runner.timers_due(), held=True)
            if found is not None:
                self._epoch(None, self._done, time_stands=found.time_stands)
            else:
                time.sleep(_PACE_S)
        self.held_by = None
        log.info("batches are read again after %.1f s", time.monotonic() - started, extra={"job": self._graph.job})

    def _run_empty_epochs_until(self, answer: Future[Any]) -> Any:
        """Run empty epochs, as long as uploads ask for them, until an answer is there. The epoch lock must be held."""
        found = self._run_empty_epochs_for(answer, self._timeout_s())
        if not found:
            raise EpochFailed(
                "A checkpoint that the job waits for did not complete within "
                f"{self._timeout_s():g} s (execution.checkpointing.timeout)."
            )
        return answer.result()

    def _run_empty_epochs_for(self, answer: Future[Any], timeout_s: float, time_stands: bool = False) -> bool:
        """The same, for a limited time, in which no timer fires if `time_stands`. Answer: whether the answer is there."""
        loop = self._loop
        assert loop is not None
        latest = time.monotonic() + timeout_s
        while not answer.done():
            if time.monotonic() > latest:
                return False
            loop.check()
            if loop.uploads.has_work():
                self._epoch(None, self._done, time_stands=time_stands)
            else:
                time.sleep(0.01)
        return True

    def _await_output(self, place: str) -> None:
        """Return when all output is published. The epoch lock must be held."""
        loop = self._loop
        assert loop is not None
        assert self._durability is not None
        timeout_s = self._durability.checkpoints.stop_timeout_ms / 1000
        if self._output_latest is not None:
            timeout_s = max(0.0, min(timeout_s, self._output_latest - time.monotonic()))
        answer = loop.published()
        try:
            # What a timer emitted now would come after the end.
            if self._run_empty_epochs_for(answer, timeout_s, time_stands=True):
                answer.result()
                return
        except OutputStopped as stopped:
            asked = self._stopping.is_set()
            raise OutputNotPublished(place, loop.waiting_output, str(stopped), asked) from stopped
        raise OutputNotPublished.in_time(place, loop.waiting_output, timeout_s, self._stopping.is_set())

    def _epoch(
        self, batch: DataFrame | None, end: Positions | None, *, final: bool = False, time_stands: bool = False
    ) -> EpochReport:
        loop = self._loop
        before = dict(self._runner.versions)
        work = loop.uploads.work(batch is None) if loop is not None else None
        report = self._runner.run_epoch(batch, work=work, final=final, time_stands=time_stands)
        self._done = end
        if loop is None or self._at_least_once:
            if loop is not None and loop.waiting_output and report.committables:
                self._await_restored_output(loop)
            self._committers.commit(report.committables, for_good=loop is None)
        if loop is not None:
            moved = batch is not None or bool(report.committables) or before != self._runner.versions
            loop.epoch_finished(report, self._snapshot(), moved, output=not self._at_least_once)
        self._last_epoch = time.monotonic()
        self.reports.append(report)
        self._progress.epoch(report, self.checkpoints)
        rate = report.rows_in * 1000 // max(1, report.duration_ms)
        log.info(
            "epoch %s: %d rows in %d ms (%d rows/s)", report.epoch, report.rows_in, report.duration_ms, rate,
            extra={"job": self._graph.job, "epoch": str(report.epoch)},
        )  # fmt: skip
        return report

    def _await_restored_output(self, loop: CheckpointLoop) -> None:
        """Output that an earlier run, in mode EXACTLY_ONCE, left in its checkpoints comes before that of this one."""
        answer, latest = loop.published(), time.monotonic() + self._timeout_s()
        while not answer.done() and time.monotonic() < latest:
            loop.check()
            wait([answer], timeout=_PACE_S)
        if answer.done():
            answer.result()
        else:
            waiting = "; ".join(str(each) for each in loop.waiting_output)
            raise EpochFailed(f"Output of the checkpoint that the job started from is not published: {waiting}.")

    @property
    def _at_least_once(self) -> bool:
        chosen = self._durability
        return chosen is not None and chosen.checkpoints.mode is CheckpointingMode.AT_LEAST_ONCE

    def _snapshot(self) -> EpochSnapshot:
        assert self._directory is not None
        versions = {task: ref.version for task, ref in self._runner.versions.items()}
        return EpochSnapshot(
            epoch=self._runner.epoch,
            versions=versions,
            positions=self._done,
            directory=self._directory,
            clocks=self._runner.clocks,
        )

    def _pace(self, attempt: int) -> None:
        """Run an empty epoch for pending uploads and due timers when no batch arrives; end the attempt when the history
        cannot go on."""
        loop = self._loop
        failed = self._stopping if loop is None else loop.failed
        while self._goes_on(attempt):
            if failed.wait(_PACE_S):
                if loop is not None:
                    self._break_off(attempt)
                return
            if time.monotonic() - self._last_epoch <= _IDLE_S or self._epoch_lock.locked():
                continue
            held = loop is not None and loop.held_by() is not None
            waiting = loop is not None and loop.uploads.has_work()
            found = empty_epoch(waiting, self._runner.timers_due(), held)
            if found is not None:
                try:
                    self.run_empty_epoch(attempt, time_stands=found.time_stands)
                except _Stopping:
                    return
                except Exception:
                    self._break_off(attempt)
                    return

    def _break_off(self, attempt: int) -> None:
        """End the query at a boundary, because of an error that did not come from one of its batches."""
        with self._epoch_lock:
            query = self._query
            if attempt != self._attempt or query is None:
                return
            if self._error is None and self._loop is not None:
                try:
                    self._loop.check()
                except BaseException as error:
                    self._error = error
        query.stop()

    # -- the life of the run -----------------------------------------------------------------------------------------

    def _supervise(self) -> None:
        """One attempt after the other, until the job ends."""
        try:
            while True:
                try:
                    self._wait_for_query()
                    self._conclude()
                    return
                except Exception as error:
                    if self._stopping.is_set() and isinstance(error, _Stopping):
                        self._conclude()
                        return
                    self._go_back(error)
        except BaseException as error:
            self._outcome = error
        finally:
            with self._epoch_lock:
                self._attempt += 1  # Nobody runs an epoch any more.
            try:
                self._close()
                self._progress.end()
            finally:
                self._ended.set()

    def _wait_for_query(self) -> None:
        assert self._query is not None
        try:
            self._query.awaitTermination()
        except Exception as error:
            if self._stopping.is_set() and (self._error is None or isinstance(self._error, _Stopping)):
                return
            raise (self._error or recognise(error)) from None
        if self._error is not None:
            raise self._error

    def _go_back(self, error: Exception) -> None:
        """After a failure: wait as the restart strategy says, bring everything back, begin anew. Or raise.

        From the failure on no epoch is run; and nobody runs one beside the return to the checkpoint, which holds the epoch lock.
        """
        with self._epoch_lock:
            self._error = self._error or error
        while True:
            loop = self._loop
            kind = _kind(error)
            if loop is None or self._stopping.is_set() or _is_hopeless(error) or _is_dead(self._spark):
                self._give_up(error, kind)
            assert self._durability is not None
            if isinstance(loop.broken, _HOPELESS):
                self._give_up(loop.broken, kind)
            now_ms = SYSTEM_CLOCK.now().monotonic_ms
            self._memory, decision = restart.on_failure(self._durability.restart, self._memory, now_ms, random.uniform)
            if isinstance(decision, restart.GiveUp):
                log.error("the job fails for good: %s", decision.reason)
                self._give_up(error, kind)
            assert isinstance(decision, restart.Restart)
            self._note(error, kind, restarted=True)
            last = loop.ownership.restore_point().checkpoint_id
            log.warning(
                "the job goes back to checkpoint %s in %d ms: %s", last or "(none)", decision.delay_ms, error,
                extra={"job": self._graph.job},
            )  # fmt: skip
            if self._stopping.wait(decision.delay_ms / 1000):
                raise error
            try:
                with self._new_attempt():
                    if loop.broken is None:
                        loop.rewind()
                    else:
                        self._loop = self._claim_again(loop)
                    self._discard_directory()
                    self._begin_attempt()
                    self.restarts += 1
                return
            except Exception as again:
                error = again

    def _claim_again(self, broken: CheckpointLoop) -> CheckpointLoop:
        """The thread that wrote checkpoints is gone, perhaps in the middle of a write whose outcome nobody knows. Claiming the
        job under a new term settles it: the log has the entry, or never will."""
        log.warning("the job is claimed again: %s", broken.broken, extra={"job": self._graph.job})
        owned = broken.claim_again()
        try:
            owned.check_output(self._committers.committers, self._allow)
            self._runner.continue_under(owned.restore_point().term)
            return CheckpointLoop(owned, self._job, broken.sinks, broken.statistics)
        except BaseException:
            owned.stop()
            raise

    _memory = restart.FailureHistory()

    def _give_up(self, error: BaseException, kind: str) -> NoReturn:
        self._note(error, kind, restarted=False)
        raise error

    def _note(self, error: BaseException, kind: str, restarted: bool) -> None:
        self.failures.append(Failure(SYSTEM_CLOCK.now().wall_ms, kind, str(error), restarted))

    def _conclude(self) -> None:
        """The sources are exhausted, or the job was asked to stop: a last checkpoint shows what is still waiting."""
        if not self._stopping.is_set():
            self._run_out()
        if self._loop is None or self._cancelled:
            return
        if self._draining:
            self._drain()
        last = self._last_target
        with self._epoch_lock:
            if last is None:
                ref = self._run_empty_epochs_until(self._loop.request(published=False))
                self._await_output(f"checkpoint {ref.id}")
            else:
                answer = self._loop.savepoint(last[0], terminal=True, format=last[1])
                # From here on the log says that the job has ended with it.
                self._last_savepoint = self._run_empty_epochs_until(answer)
                self._await_output(f"the savepoint {self._last_savepoint}")

    def _run_out(self) -> None:
        """The sources are exhausted. Fire what is due by what they brought; and where no later run can go on from here,
        that is the end of event time too."""
        latest = time.monotonic() + self._timeout_s()
        with self._epoch_lock:
            while self._runner.timers_due() and time.monotonic() < latest:
                self._epoch(None, self._done)
            if self._loop is None and self._runner.timers_pending():
                self._epoch(None, self._done, final=True)

    def _drain(self) -> None:
        """Let all event time pass: event-time timers fire, windows close, and what they emit belongs to the savepoint."""
        latest = time.monotonic() + self._timeout_s()
        with self._epoch_lock:
            while True:
                self._epoch(None, self._done, final=True)
                if not self._runner.timers_pending():
                    return
                if time.monotonic() > latest:
                    raise EpochFailed(
                        f"The job still has event-time timers {self._timeout_s():g} s after the end of event time: a function "
                        "sets a new one whenever one fires. Stop the job without drain."
                    )

    def _timeout_s(self) -> float:
        return 600.0 if self._durability is None else self._durability.checkpoints.timeout_ms / 1000

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Whether the job has ended. Raises the error that ended it, if one did."""
        if not self._ended.wait(timeout_s):
            return False
        if self._outcome is not None:
            raise self._outcome
        return True

    def stop(self) -> None:
        """End the job after the epoch that is running, if one is. What waits for a checkpoint gets one."""
        self._stopping.set()
        own = self._loop is not None and self._loop.is_own_thread()
        if own or self._epoch_thread == threading.get_ident():
            # Called by a callback sink, within an epoch or by the history: that must go on before the job can end.
            threading.Thread(target=self.stop, name="tidegate-stop", daemon=True).start()
            return
        # While the epoch lock is held no epoch runs, and one that Spark starts now is refused: the query is at a boundary.
        with self._epoch_lock:
            query = self._query
        if query is not None:
            query.stop()
        self.await_termination()

    def savepoint(self, target: str | None = None, *, format: str = CANONICAL) -> Future[str]:
        """Take a savepoint of the running job, into a new folder below `target`. The answer is its path.

        `format` is `"CANONICAL"`, tables that any backend restores from and anything can read, or `"NATIVE"`, the backend's own
        files: quicker to write and to restore.
        """
        loop, chosen = self._kept(), _format(format)
        loop.check_target(target)
        return loop.savepoint(target, terminal=False, format=chosen)

    def stop_with_savepoint(self, target: str | None = None, *, drain: bool = False, format: str = CANONICAL) -> str:
        """End the job with a savepoint, from which the next start goes on. Answer: its path.

        With `drain` all event time passes first: timers fire and windows close, for a job that is not to go on. To one that
        does, every row comes late.
        """
        self._kept().check_target(target)
        self._last_target = (target, _format(format))
        self._draining = drain
        self.stop()
        assert self._last_savepoint is not None
        return self._last_savepoint

    def _kept(self) -> CheckpointLoop:
        if self._loop is None:
            raise PreconditionFailed("A job without checkpoints has no savepoints. Start it with checkpoint=….")
        return self._loop

    def stop_within(self, seconds: float) -> None:
        """Whoever stops the job has so much time only: do not wait longer for targets, whatever the options say."""
        self._output_latest = time.monotonic() + seconds

    @property
    def left_behind(self) -> str:
        """What a stop that is cut off has reached, for people: its savepoint, and output that waits."""
        loop, place = self._loop, self._last_savepoint
        waiting = () if loop is None else loop.waiting_output
        said = [] if place is None else [f"it resumes from the savepoint {place}"]
        said += [f"output waits: {'; '.join(map(str, waiting))}"] if waiting else []
        return "; ".join(said)

    def cancel(self) -> None:
        """End the job without a last checkpoint: the next start goes on from the one before."""
        self._cancelled = True
        self.stop()

    def _close(self) -> None:
        error = self._outcome
        try:
            if self._loop is None or (not isinstance(error, ClaimLost) and self._loop.is_owner()):
                # Local versions of the line are only ours to remove while the job is.
                self._runner.close()
            if self._loop is not None:
                self._end(error)
        finally:
            self._committers.close()
            self._runner.release()
            self._discard_directory()

    def _end(self, error: BaseException | None) -> None:
        assert self._loop is not None
        end = JobEnd.FAILED if error is not None else JobEnd.CANCELED if self._stopping.is_set() else JobEnd.SUSPENDED
        try:
            if isinstance(error, ClaimLost) or self._last_savepoint is not None:
                self._loop.leave()  # The savepoint in the log has said it already.
            else:
                self._loop.finish(end)
        except Exception as problem:
            log.warning("the end of the run could not be written into its log: %s", problem)
            self._loop.leave()
            if self._outcome is None:
                self._outcome = problem

    def _discard_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory.parent, ignore_errors=True)


def run_job(
    graph: Graph, *, spark: SparkSession | None = None, trigger: str | None = None, **choices: Any
) -> EpochReport | None:
    """Run a job to its end: streaming until it is stopped or fails, bounded until its sources are read."""
    speak()
    if all(source.bounded for source in graph.sources):
        session = spark or _session_of(graph)
        settings, durability = read_settings(_cores(session), **choices)
        if durability is not None:
            raise PreconditionFailed(
                "A job on batch DataFrames runs once, to the end, and takes no checkpoints: what fails is run again by Spark. "
                "Run it without checkpoint=, or read its sources as streams (spark.readStream) with trigger='available-now'."
            )
        return run_bounded(graph, session, settings)
    run = start_job(graph, spark=spark, trigger=trigger, **choices)
    with Ending(
        run=run, within_s=duration_ms(STOP_WITHIN) / 1000, second_sigint=signal.default_int_handler
    ).listening():
        run.await_termination()
    log.info("job %s is %s", graph.job, run.status, extra={"job": graph.job})
    return None


def start_job(graph: Graph, *, spark: SparkSession | None = None, trigger: str | None = None, **choices: Any) -> JobRun:
    """Start a job on streaming DataFrames and return at once."""
    speak()
    session = spark or _session_of(graph)
    check_session(session.conf.get, session.version)
    settings, durability = read_settings(_cores(session), **choices)
    check_sources(graph.sources, durable=durability is not None)
    return JobRun(spark=session, graph=graph, settings=settings, trigger=trigger, durability=durability).start()


def run_bounded(graph: Graph, spark: SparkSession, settings: Settings) -> EpochReport:
    """Run a job on batch DataFrames once to the end: one pass, no checkpoints; Spark replays what fails."""
    check_session(spark.conf.get, spark.version)
    # Made before the rows: a committer checks its target, and may have to make it.
    committers = Committers(graph, None)
    runner = EpochRunner(spark, graph, settings, Identity.ephemeral())
    try:
        report = runner.run_epoch(combine(graph.sources), only=True, final=True)
        committers.commit(report.committables, for_good=True)
        return report
    finally:
        runner.close()
        runner.release()


def _format(given: str) -> str:
    if given.upper() not in (CANONICAL, NATIVE):
        raise OptionError((f"There is no savepoint format {given!r}. Use {CANONICAL} or {NATIVE}.",))
    return given.upper()


def _described(runner: EpochRunner, spark_version: str, by_tasks: bool) -> JobDescription:
    settings, graph = runner.settings, runner.graph
    p, backend = settings.parallelism, settings.state_backend
    return JobDescription(
        job=graph.job,
        parallelism=p,
        max_parallelism=settings.max_parallelism,
        backend=backend,
        levels=runner.levels,
        sources=tuple(source.uid for source in graph.sources),
        operators=describe(graph, runner.plan, p, backend, runner.state_ids),
        state_ids=runner.state_ids,
        spark_version=spark_version,
        task_sinks=task_sinks(graph, runner.plan) if by_tasks else {},
    )


def _rebuilt(spark: SparkSession, directory: Path, sources: tuple[SourceNotes, ...], batch: str) -> Positions | None:
    if all(source.line is None and not source.notes for source in sources):
        return None
    return rebuild(directory, sources, batch, int(spark.conf.get(COMPACT_INTERVAL) or 10))


def _is_hopeless(error: BaseException) -> bool:
    return isinstance(error, _HOPELESS) or (isinstance(error, UserCodeError) and error.fatal)


def _is_dead(spark: SparkSession) -> bool:
    """Whether the session was stopped: then no restart helps."""
    try:
        spark.conf.get("spark.app.name")
        spark.range(0)
    except Exception:
        return True
    return False


def _kind(error: BaseException) -> str:
    match error:
        case UserCodeError():
            return "user-code"
        case StateLost():
            return "state-lost"
        case TidegateError():
            return error.code.lower()
    return "engine"


def _session_of(graph: Graph) -> SparkSession:
    session: SparkSession = graph.sources[0].frame.sparkSession
    return session


def _cores(spark: SparkSession) -> int:
    master = spark.conf.get("spark.master", "") or ""
    if master.startswith("local[") and master[6:-1].split(",")[0].isdigit():
        return int(master[6:-1].split(",")[0])
    return os.cpu_count() or 2
