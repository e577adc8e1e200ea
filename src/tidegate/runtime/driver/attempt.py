"""One attempt of a run: a streaming query with its own directory, from a checkpoint to a failure or to the end."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.checkpoint.coordination.timing import empty_epoch, idle_s
from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.errors import EpochFailed
from tidegate.core.ids import TaskId
from tidegate.core.log_setup import in_this_context
from tidegate.core.times import MAX_WATERMARK
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.driver.attempt_directory import create_directory
from tidegate.runtime.driver.epoch_lock import EpochLock
from tidegate.runtime.driver.running_job import Epochs, RunningJob
from tidegate.runtime.epochs.epoch_frame import combine
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.epochs.streaming_time import StreamingTime
from tidegate.runtime.monitoring.streaming_progress import ProgressLog
from tidegate.runtime.sources.file_log import COMPACT_INTERVAL
from tidegate.runtime.sources.kept_files import check_declared, check_kept
from tidegate.runtime.sources.query_directory import (
    Positions,
    SkipBatch,
    SourceNotes,
    check_commit_log,
    decide_batch,
    read_positions,
    rebuild,
)
from tidegate.runtime.sources.reader_start import ReaderPatience
from tidegate.runtime.sources.source_checks import ignores_positions
from tidegate.state.disk.left_lineages import REFRESH_S

log = logging.getLogger("tidegate")

_PACE_S = 0.05
_LOOK_S = 2.0
"""How often a job that waits for a sink checks that its Spark session is still alive."""
_LOOK_BACK = 2
"""Spark notifies a source that a batch is done when it plans the next one, so two batches later the source has acted on it."""


class Stopping(Exception):
    """The job is stopping, has failed, or continues in another attempt: no further epoch is run."""


class Attempt:
    """Starts at the latest checkpoint, or at the very beginning. The epoch lock is held while it is constructed.

    The query is started first, so that Spark plans its first batch while `restore` restores the state. The batch waits
    for the epoch lock, and is rejected if the state cannot be restored.
    """

    def __init__(self, job: RunningJob, lock: EpochLock) -> None:
        self._job = job
        self._lock = lock
        self.error: BaseException | None = None
        """The error that ended the attempt. No epoch runs after it."""
        self._retired = False
        self._ends: deque[Positions] = deque(maxlen=_LOOK_BACK)
        """Where the last batches of this attempt ended."""
        self._streaming = StreamingTime()
        self.progress = ProgressLog(job.graph, job.runner.plan, job.settings.parallelism)
        """What Spark's reports about the query lack."""
        self._readers = ReaderPatience()
        self._idle_s = idle_s(None)
        """How long no batch must have arrived before uploads get an empty epoch."""
        directory = create_directory(job.name) / "query"
        try:
            self._orders, done, self._pinned = _go_to_checkpoint(job, directory)
            self._input_ended = job.trigger.drain and job.runner.clocks.watermark_ms == MAX_WATERMARK
            """The checkpoint was taken after the drain that ends the job: rows that have arrived since would be late."""
            self.epochs = Epochs(job, directory, done)
            # Before the state is restored: Spark plans the first batch meanwhile, and the batch waits for the epoch lock.
            self.query: StreamingQuery = self._start_query()
        except BaseException:
            shutil.rmtree(directory.parent, ignore_errors=True)
            raise

    def _start_query(self) -> StreamingQuery:
        job = self._job
        writer = combine(job.graph.sources).writeStream.queryName(job.name)
        writer = writer.option("checkpointLocation", self.epochs.directory.as_uri()).foreachBatch(
            # Spark calls it on a thread of its own, whose log lines would not name the job.
            in_this_context(self._on_batch)
        )
        return job.trigger.start(job.spark, writer)

    def start_query_again(self) -> bool:
        """The query has ended because the reader of a source was late. Start it again in its directory, where it continues: a
        batch that it had delivered is skipped. State, epochs and checkpoints are untouched. Return False if that has been tried
        for too long, or the attempt is to end.
        """
        if not self._readers.allows_another(self._job.settings.slot_timeout_ms):
            return False
        with self._lock:  # Whoever stops the job asks for it first, and then stops the query that it finds here.
            if not self._is_running():
                return False
            log.warning(
                "job %s: Spark waited 10 s for the process that plans a source, and not longer; the query is started again (%d)",
                self._job.name,
                self._readers.starts,
            )
            self.query = self._start_query()
        return True

    def restore(self) -> None:
        """Restore the state in the tasks, and start to monitor the attempt. The epoch lock must be held."""
        job, loop, started = self._job, self._job.loop, SYSTEM_CLOCK.now()
        if loop is not None:
            snapshot = loop.ownership.restore_point().snapshot
            job.metrics.ages.rewind(None if snapshot is None else snapshot.epoch)

        if loop is None or not self._orders:
            log.info("job %s starts the Python workers of its %d tasks", job.name, len(job.description.tasks))
            # A version of an earlier attempt may be of an epoch that the return discards.
            job.runner.forget_versions()
            job.runner.place()
            job.events.initialized(started)
        else:
            found = loop.ownership.restore_point().checkpoint_id
            log.info("job %s restores the state of checkpoint %d in %d tasks", job.name, found, len(self._orders))
            report = job.runner.restore(self._orders)
            sizes = {task: order.sizes_bytes() for task, order in self._orders.items()}
            job.events.initialized(started, found, sizes, report.acks)
            job.metrics.restored(report.acks)

        if loop is not None:
            # The state as it was restored: a checkpoint that is requested before the first batch is of this.
            loop.begin_at(self.epochs.snapshot())

        threading.Thread(target=in_this_context(self._pace), name="tidegate-pace", daemon=True).start()

    def retire(self) -> None:
        """Reject all further batches. The epoch lock must be held."""
        self._retired = True

    @contextmanager
    def between_epochs(self) -> Iterator[None]:
        """Wait for the end of the running epoch, and hold the epoch lock. An error in there ends the attempt. Raises
        `Stopping` if it has ended before.
        """
        try:
            with self._epoch():
                yield
        except Stopping:
            raise
        except Exception:
            # The attempt has an error now. Without a batch, nothing else would end its query.
            self._break_off()
            raise

    def discard_directory(self) -> None:
        shutil.rmtree(self.epochs.directory.parent, ignore_errors=True)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def run_empty_epoch(self, *, time_stands: bool = False) -> EpochReport:
        """Run an epoch without a batch, between two batches; also without timers if `time_stands`."""
        with self._epoch():
            return self.epochs.run_empty(time_stands=time_stands)

    def _on_batch(self, batch: DataFrame, batch_id: int) -> None:
        self._readers.reset()
        if self._input_ended:
            self._end_query()
            return
        # Spark calls again when this returns, so the interval passes here (see `trigger`).
        latest = time.monotonic() + self._job.trigger.interval_s
        try:
            self._run_batch(batch, batch_id)
        except Stopping:
            if self.error is not None and not isinstance(self.error, Stopping):
                raise
            self._end_query()
            return
        # Empty epochs for uploads and timers may run meanwhile.
        while self._is_running() and (left_s := latest - time.monotonic()) > 0:
            # In slices: a rescale or a failure may retire the attempt meanwhile.
            self._job.stop.asked.wait(min(left_s, _PACE_S))

    def _end_query(self) -> None:
        """Have the query stopped, and keep a rejected batch until it is.

        A batch that raised would be reported by Spark as a failure of the query. Spark may note this one as done: nobody
        reads that note, because the next attempt starts from a checkpoint, and no source is notified, because no batch follows.
        Usually somebody else stops the query as well, but whoever asked for it may have been interrupted.
        """
        threading.Thread(target=self.stop_query, name="tidegate-stop-query", daemon=True).start()
        while self.query.isActive:
            time.sleep(_PACE_S)

    def stop_query(self) -> None:
        """Stop the query. The epoch lock must not be held: Spark waits for a batch that waits for it."""
        try:
            self.query.stop()
        except Exception:
            log.debug("the query could not be stopped", exc_info=True)

    def _is_running(self) -> bool:
        return not self._retired and not self._job.stop.is_asked() and self.error is None

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        job, epochs = self._job, self.epochs
        with self._epoch():
            end = read_positions(epochs.directory, batch_id)
            # By positions, not by the id of the batch: ids begin at 0 again with every query directory.
            start = read_positions(epochs.directory, batch_id - 1)

            if isinstance(decide_batch(epochs.done, start, end), SkipBatch):
                log.warning("batch %d was delivered again and is skipped", batch_id)
                job.skipped_batches += 1
                return

            if len(self._ends) == 1:
                check_commit_log(epochs.directory, batch_id - 1)
            if job.loop is not None:
                self._check_sources(job.loop, end)
                # Before the epoch, while no row is read: what a batch emits would wait, too, and without a bound.
                self._hold_for_output(job.loop)
                # Last, directly before the epoch, so that the next checkpoint can be announced to it.
                epochs.await_pending_checkpoint(job.loop)

            streaming_ms = self._streaming.ms(self.query)
            self._idle_s = idle_s(streaming_ms)
            report = epochs.run(batch, end, streaming_ms=streaming_ms, pending_rows=self._streaming.pending_rows)
            self.progress.batch(batch_id, report, job.metrics)

            if end is not None:
                self._ends.append(end)

    def _check_sources(self, loop: CheckpointLoop, end: Positions | None) -> None:
        if not self._pinned:
            self._pin_sources(loop)
        if end is not None and not self._ends:
            check_declared(self.epochs.directory, end, self._job.graph.sources)
        if len(self._ends) == _LOOK_BACK:
            check_kept(self.epochs.directory, self._ends[0], self._job.graph.sources)

    def _pin_sources(self, loop: CheckpointLoop) -> None:
        """Take checkpoint 0: the sources have fixed where they begin, and no row has been read. "Latest" means the same from now
        on.

        While the job tolerates failed checkpoints, it is tried again, like any other checkpoint.
        """
        while not self._pinned:
            try:
                self.epochs.run_until(loop, loop.request(awaits_output=False))
            except EpochFailed:
                if not self._job.tolerates_failed_checkpoints:
                    raise
                loop.check()  # raises once more checkpoints in a row have failed than the job tolerates
                if not self._is_running():
                    raise Stopping from None
                time.sleep(_PACE_S)
            else:
                self._pinned = True

    @contextmanager
    def _epoch(self) -> Iterator[None]:
        """Run one epoch at a time, and none after one that failed: what it left uncommitted must not be overtaken."""
        with self._lock:
            if not self._is_running():
                raise Stopping
            try:
                if self._job.loop is not None:
                    self._job.loop.check()
                yield
            except BaseException as error:
                self.error = self.error or error  # A batch that makes way may find that another epoch has failed.
                raise

    def _hold_for_output(self, loop: CheckpointLoop) -> None:
        """Wait while too much output waits for a sink. Checkpoints and recovery continue; the epoch lock must be held.

        Raises `Stopping` if the job is asked to stop: the next start reads the batch again.
        """
        job, holding = self._job, loop.held_by()
        if holding is None:
            return

        # Only batches are held. Epochs without rows continue: uploads need them, and the commits that this waits for, if tasks
        # carry them out.
        log.warning("no batch is read while too much output waits: %s", holding)
        job.metrics.batch_held(holding.sink)

        started = looked = counted = time.monotonic()
        while (now_holding := loop.held_by()) is not None:
            job.held_by = now_holding
            counted, before = time.monotonic(), counted
            job.metrics.held_for(now_holding.sink, counted - before)

            if job.stop.is_asked():
                job.held_by = None
                raise Stopping
            loop.check()

            if job.rescale_waits.is_set():
                # A rescale ends the attempt between two epochs, and this thread has the lock for as long as the sink is down.
                self._lock.yield_for(_PACE_S)
                if not self._is_running():
                    job.held_by = None
                    raise Stopping

            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                # Perhaps no epoch is due for hours, and nothing else would notice.
                if job.is_session_dead():
                    raise EpochFailed(
                        "The Spark session has ended while the job waited for a sink.", session_ended=True
                    )

            found = empty_epoch(loop.uploads.has_work(), job.runner.timers_due(), held=True)
            if found is not None:
                self.epochs.run_empty(time_stands=found.time_stands)
            else:
                time.sleep(_PACE_S)
        job.held_by = None
        log.info("batches are read again after %.1f s", time.monotonic() - started)

    def _pace(self) -> None:
        """Run an empty epoch for pending uploads and due timers when no batch arrives, and for the tasks of a job without
        checkpoints to note that they use their state; end the attempt when no further checkpoint can be written.
        """
        job, loop = self._job, self._job.loop
        failed = job.stop.asked if loop is None else loop.failed
        while self._is_running():
            if failed.wait(_PACE_S):
                if loop is not None:
                    self._break_off()
                return

            if time.monotonic() - job.last_epoch_s <= self._idle_s or self._lock.is_held():
                continue

            # All that is available is read without a break, as Spark does: an epoch in between would make rows late too early.
            # What is due fires at the end.
            held = job.trigger.available_now or (loop is not None and loop.held_by() is not None)

            if loop is None:
                # An executor that was replaced since has noted nothing: another job would take its state for left behind.
                waiting = time.monotonic() - job.last_epoch_s > REFRESH_S
            else:
                waiting = loop.uploads.has_work()

            found = empty_epoch(waiting, job.runner.timers_due(), held)
            if found is not None:
                try:
                    self.run_empty_epoch(time_stands=found.time_stands)
                except Stopping:
                    return
                except Exception:
                    self._break_off()
                    return

    def _break_off(self) -> None:
        """End the query between two batches, because of an error that did not come from one of them."""
        with self._lock:
            if self._retired:
                return
            if self.error is None and self._job.loop is not None:
                try:
                    self._job.loop.check()
                except BaseException as error:
                    self.error = error
        self.query.stop()


def _go_to_checkpoint(job: RunningJob, directory: Path) -> tuple[Mapping[TaskId, RestoreOrder], Positions | None, bool]:
    """Set clocks and positions to those of the latest checkpoint, or to the beginning. Return the state that the tasks have
    to restore, where the checkpoint ends, and whether all sources have fixed where they begin.
    """
    if job.loop is None:
        return {}, None, True
    found, allow = job.loop.ownership.restore_point(), job.allow_non_restored_state
    job.runner.reset_clocks(found.clocks())
    orders = found.orders(job.description, allow, job.renamed_fields)
    stored, batch = found.sources(job.description, allow)
    sources = tuple(
        SourceNotes(None, {}) if ignores_positions(source) else notes
        for source, notes in zip(job.graph.sources, stored)
    )
    # A source that is new to the job begins now, and must begin at the same position again after a failure.
    pinned = all(source.line is not None or source.notes for source in sources)
    if all(source.line is None and not source.notes for source in sources):
        return orders, None, pinned
    compact_every = int(job.spark.conf.get(COMPACT_INTERVAL) or 10)
    return orders, rebuild(directory, sources, batch, compact_every), pinned
