"""What all attempts of a run share: the session, the graph, the epoch runner, and the checkpoint loop."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidegate.checkpoint.job_log.entry import Entry
from tidegate.checkpoint.output.release_plan import WaitingOutput
from tidegate.config.choices import CheckpointingMode, JobEnd
from tidegate.core.errors import EpochFailed
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId
from tidegate.graph.model import Graph
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.output import OutputNotPublished
from tidegate.runtime.checkpoints.rescale import HeldEpochs
from tidegate.runtime.checkpoints.sink_threads import OutputStopped
from tidegate.runtime.driver.autoscaling import Autoscaler
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.epochs.deadline import is_dead
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.epochs.reports import EpochReport, EpochReports
from tidegate.runtime.epochs.runner import EpochRunner
from tidegate.runtime.epochs.settings import Durability, Settings
from tidegate.runtime.epochs.trigger import EpochTrigger
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.runtime.monitoring.job_metrics import JobMetrics
from tidegate.runtime.monitoring.progress import Progress
from tidegate.runtime.monitoring.run_report import FailureLine
from tidegate.runtime.sources.query_directory import Positions

_PACE_S, _POLL_S = 0.05, 0.01


@dataclass(kw_only=True)
class RunningJob:
    """A job with everything it needs to run epochs. `loop` is replaced when the job is claimed again."""

    spark: SparkSession
    graph: Graph
    settings: Settings
    durability: Durability | None
    """None: without checkpoints. Then `loop` is None as well."""
    trigger: EpochTrigger
    committers: Committers
    runner: EpochRunner
    description: JobDescription
    loop: CheckpointLoop | None
    reports: EpochReports
    metrics: JobMetrics
    progress: Progress
    stop: StopRequest
    events: JobEvents
    autoscaler: Autoscaler | None = None
    """None: it is off."""
    skipped_batches: int = 0
    held_by: WaitingOutput | None = None
    """The sink for which so much output waits that no batch is read until it has caught up."""
    last_epoch_s: float = field(default_factory=time.monotonic)
    """When the last epoch ended, in monotonic time."""
    rescale_waits: Event = field(default_factory=Event)
    """Set while a rescale waits for the end of the running epoch."""
    has_drained: bool = False
    """Whether the log has the checkpoint after the drain that ends the job."""
    lost_driver: FailureLine | None = None
    """What is known of the driver before this one, if it ended without a word."""

    @property
    def name(self) -> str:
        return self.graph.job

    @property
    def tolerates_failed_checkpoints(self) -> bool:
        return self.durability is not None and self.durability.checkpoints.tolerable_failures > 0

    @property
    def timeout_s(self) -> float:
        """How long a checkpoint may take."""
        return 600.0 if self.durability is None else self.durability.checkpoints.timeout_ms / 1000

    @property
    def graceful_end(self) -> JobEnd:
        """How the job ends unless it fails. No run follows a drain; the next one resumes if the sources are only exhausted."""
        if self.stop.is_asked() and not self.has_drained:
            return JobEnd.CANCELED
        return JobEnd.FINISHED if self.trigger.drain else JobEnd.SUSPENDED

    @property
    def at_least_once(self) -> bool:
        chosen = self.durability
        return chosen is not None and chosen.checkpoints.mode is CheckpointingMode.AT_LEAST_ONCE

    @property
    def allow_non_restored_state(self) -> bool:
        return self.durability is not None and self.durability.recovery.allow_non_restored_state

    @property
    def renamed_fields(self) -> Mapping[tuple[str, str], Mapping[str, str]]:
        return {} if self.durability is None else self.durability.recovery.renamed_fields

    def change_parallelism(self, parallelism: int) -> None:
        """Run with so many slots from the next attempt on. No epoch runs meanwhile."""
        self.settings = replace(self.settings, parallelism=parallelism)
        self.description = self.description.at(parallelism)
        self.runner.change_parallelism(parallelism)
        self.metrics.forget_slots(parallelism)

    def continue_under(self, claim: Entry) -> None:
        """Use the term of a new claim from the next attempt on, and compare the markers in targets with its history."""
        self.runner.continue_under(claim.term, claim.history)
        self.committers.history = claim.history

    def is_session_dead(self) -> bool:
        """Whether the Spark session was stopped: then no restart helps."""
        return is_dead(self.spark)


class Epochs:
    """Runs the epochs of one attempt and reports them. The caller holds the epoch lock."""

    def __init__(self, job: RunningJob, directory: Path, done: Positions | None) -> None:
        """`directory` is that of the streaming query, `done` where the checkpoint ends that the attempt started from."""
        self._job = job
        self.directory = directory
        self.done = done
        self.loop = job.loop
        self._last_ms = 0
        """How long the last epoch with a batch took."""
        if job.autoscaler is not None:
            job.autoscaler.started(job.settings.parallelism)
        self._moved: EpochId | None = None
        """The last epoch that changed something."""
        self.drains = False
        """Whether all event time passes: the job ends."""

    def run(
        self,
        batch: DataFrame | None,
        end: Positions | None,
        *,
        final: bool = False,
        time_stands: bool = False,
        streaming_ms: int | None = None,
        pending_rows: int | None = None,
    ) -> EpochReport:
        """Run one epoch on a batch (None: an empty epoch) that ends at `end`. `streaming_ms` is what Structured Streaming takes
        between two epochs, and `pending_rows` what the last batch left in its sources, if known."""
        job, loop = self._job, self.loop
        before = dict(job.runner.versions)
        # Read when the epoch begins, as late as possible: what the loop asks for after this waits for the next epoch.
        work = loop.uploads.work(batch is None) if loop is not None else None

        job.metrics.times.began()
        try:
            report = job.runner.run_epoch(batch, work=work, final=final, time_stands=time_stands)
        finally:
            job.metrics.times.over()

        if streaming_ms is not None:
            report = replace(report, phases={**report.phases, "streaming": streaming_ms})

        # Without checkpoints, and in mode AT_LEAST_ONCE, nothing holds output back: it is committed now, and again if the epoch's
        # rows are read again after a crash.
        self.done = end
        if loop is None or job.at_least_once:
            if loop is not None and loop.waiting_output and report.committables:
                self._await_restored_output(loop)
            job.committers.commit(report.committables, for_good=loop is None)
        if loop is not None:
            moved = batch is not None or bool(report.committables) or before != job.runner.versions
            snapshot = replace(self.snapshot(), announced=_announced(work))
            loop.epoch_finished(report, snapshot, moved, output=not job.at_least_once, drains=self.drains)

        self._last_ms = self._last_ms if batch is None else report.duration_ms

        # From here the pace counts: an epoch that reported first could be followed by an empty one at once.
        job.last_epoch_s = time.monotonic()
        job.reports.append(report)
        job.metrics.epoch(report, report.acks)

        if job.autoscaler is not None:
            job.autoscaler.epoch(report, pending_rows)
        if loop is not None:
            self._note_age(report.epoch, loop, moved)

        job.progress.epoch(report, None if loop is None else loop.statistics)
        job.events.epoch(report)
        return report

    def _note_age(self, epoch: EpochId, loop: CheckpointLoop, moved: bool) -> None:
        """Remember which epoch changed something, and when, until a checkpoint contains it and its output is committed."""
        ages, last = self._job.metrics.ages, loop.statistics.latest_completed
        if moved:
            self._moved = epoch
            ages.ended(epoch)
        since = min((each.since for each in loop.waiting_output), default=None)
        ages.forget(None if last is None else last.epoch, since)

    def run_empty(self, *, final: bool = False, time_stands: bool = False) -> EpochReport:
        """Run an epoch without rows; also without timers if `time_stands`."""
        return self.run(None, self.done, final=final, time_stands=time_stands)

    def snapshot(self) -> EpochSnapshot:
        runner = self._job.runner
        return EpochSnapshot(
            epoch=runner.epoch,
            versions={task: ref.version for task, ref in runner.versions.items()},
            positions=self.done,
            directory=self.directory,
            clocks=runner.clocks,
        )

    def held(self, loop: CheckpointLoop) -> HeldEpochs:
        """Return what the attempt has changed, and the checkpoint that may contain it."""
        return HeldEpochs(self._moved, loop.ownership.store.entry.base)

    def take_last_checkpoint(self, loop: CheckpointLoop) -> BaseException | None:
        """Take a checkpoint of the last epoch. Return why it failed."""
        answer = loop.request(awaits_output=False)
        if not self._run_for(loop, answer, self._job.timeout_s, time_stands=True):
            return self._too_late()
        return answer.exception()

    def run_until(self, loop: CheckpointLoop, answer: Future[Any]) -> Any:
        """Run empty epochs, as long as uploads need them, until the answer is available."""
        if not self._run_for(loop, answer, self._job.timeout_s):
            raise self._too_late()
        return answer.result()

    def _too_late(self) -> EpochFailed:
        return EpochFailed(
            "A checkpoint that the job waits for did not complete within "
            f"{self._job.timeout_s:g} s (execution.checkpointing.timeout)."
        )

    def _run_for(self, loop: CheckpointLoop, answer: Future[Any], timeout_s: float, time_stands: bool = False) -> bool:
        """The same, for a limited time, in which no timer fires if `time_stands`. Return whether the answer is available."""
        latest = time.monotonic() + timeout_s
        while not answer.done():
            if time.monotonic() > latest:
                return False
            loop.check()
            if loop.uploads.has_work():
                self.run_empty(time_stands=time_stands)
                wait([answer], timeout=_PACE_S)  # The loop has to see the epoch first: another one may not be needed.
            else:
                time.sleep(_POLL_S)
        return True

    def await_pending_checkpoint(self, loop: CheckpointLoop) -> None:
        """Before an epoch that is probably slow: give the checkpoint in progress, if there is one, a moment to complete, and an
        empty epoch for its uploads. Then the next one is announced to the slow epoch, whose tasks then store theirs at once."""
        uploads = loop.uploads
        latest = time.monotonic() + loop.timing.pause_ms(self._last_ms) / 1000
        helped = False
        while not uploads.announcements.is_decided and time.monotonic() < latest:
            loop.check()
            if uploads.has_work() and not helped:
                helped = True
                self.run_empty(time_stands=True)
            else:
                time.sleep(_POLL_S)

    def await_output(self, loop: CheckpointLoop, place: str) -> None:
        """Wait until all output is committed. `place` names the snapshot that the job ends with."""
        config, stop = loop.ownership.history.config, self._job.stop
        timeout_s = stop.output_timeout_s(config.stop_timeout_ms / 1000)
        answer = loop.output_committed()
        try:
            # A timer that fired now would emit rows after the end.
            if self._run_for(loop, answer, timeout_s, time_stands=True):
                answer.result()
                return
        except OutputStopped as stopped:
            raise OutputNotPublished(place, loop.waiting_output, str(stopped), stop.is_asked()) from stopped
        raise OutputNotPublished.in_time(place, loop.waiting_output, timeout_s, stop.is_asked())

    def notify_of_last_checkpoint(self, loop: CheckpointLoop) -> None:
        """Tell functions of the snapshot that the job ends with, unless an epoch has done so. No timer fires."""
        if loop.uploads.notices.are_waiting():
            self.run_empty(time_stands=True)

    def run_out(self) -> None:
        """Finish after the sources are exhausted. Fire the timers that are due by their rows; if no later run can continue
        from here, that is also the end of event time.
        """
        job, latest = self._job, time.monotonic() + self._job.timeout_s
        # Limited, because a function may register a timer whenever one fires.
        while job.runner.timers_due() and time.monotonic() < latest:
            self.run_empty()
        if job.loop is None and job.runner.timers_pending():
            self.run_empty(final=True)

    def drain(self) -> None:
        """Let all event time pass: event-time timers fire, windows close, and their output belongs to the snapshot that the job
        ends with.

        1. From now on, only that snapshot is taken. A crash leaves a checkpoint of before: rows that the next start reads are
           on time, and it drains again.
        2. Epochs at the end of event time run until no event-time timer is left. A crash leaves the same.
        """
        job, latest = self._job, time.monotonic() + self._job.timeout_s
        self.drains = True
        reach("drain.1-begun")
        while True:
            self.run_empty(final=True)
            if not job.runner.timers_pending():
                break
            if time.monotonic() > latest:
                raise EpochFailed(
                    f"The job still has event-time timers {job.timeout_s:g} s after the end of event time: a function "
                    "sets a new one whenever one fires. End the job without drain."
                )
        reach("drain.2-passed")

    def _await_restored_output(self, loop: CheckpointLoop) -> None:
        """Output that an earlier run, in mode EXACTLY_ONCE, left in its checkpoints is committed before that of this one."""
        answer, latest = loop.output_committed(), time.monotonic() + self._job.timeout_s
        while not answer.done() and time.monotonic() < latest:
            loop.check()
            wait([answer], timeout=_PACE_S)
        if answer.done():
            answer.result()
        else:
            waiting = "; ".join(str(each) for each in loop.waiting_output)
            raise EpochFailed(f"Output of the checkpoint that the job started from is not published: {waiting}.")


def _announced(work: Mapping[int, CheckpointWork] | None) -> int | None:
    """Return the checkpoint that was announced to the tasks of an epoch."""
    early = next((each.early for each in (work or {}).values() if each.early is not None), None)
    return None if early is None else early.checkpoint_id
