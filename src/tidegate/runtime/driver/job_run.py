"""A running job, as its user sees it: its progress, its checkpoints and savepoints, and how to stop it."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future

from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.layout import JobLayout
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.choices import MetricNaming
from tidegate.config.errors import OptionError
from tidegate.core.errors import PreconditionFailed
from tidegate.core.ids import Lineage
from tidegate.core.log_setup import in_this_context
from tidegate.metrics.metric import Sample
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.driver.autoscaling import Autoscaler
from tidegate.runtime.driver.failure_response import Failure
from tidegate.runtime.driver.interrupts import interrupts_spare_spark
from tidegate.runtime.driver.observed_run import ObservedRun
from tidegate.runtime.driver.recorder import RunRecorder
from tidegate.runtime.driver.reporter import RunReporter
from tidegate.runtime.driver.run_figures import RunFigures
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.driver.supervisor import Supervisor
from tidegate.runtime.epochs.reports import EpochReport, EpochReports
from tidegate.runtime.monitoring.rescale_history import Rescale
from tidegate.runtime.monitoring.run_report import RunReport
from tidegate.savepoint.snapshot import CANONICAL, NATIVE
from tidegate.storage import Storage

_LAST_RECORD_S = 5.0
"""How long the end of a run waits until its record says so."""


class JobRun(ObservedRun):
    """A running job. `await_termination()` waits for its end and raises the error that ended it."""

    HISTORY = 1000
    """How many epoch reports, and how many failures, are kept."""

    def __init__(self, job: RunningJob) -> None:
        """Start the first attempt. Raises before any epoch runs if it cannot start."""
        super().__init__(job, Supervisor(job, self.HISTORY))
        settings = job.settings
        self.name: str = job.name
        self.lineage: Lineage = job.runner.lineage
        self.max_parallelism: int = settings.max_parallelism
        self.state_backend: str = settings.state_backend
        self.metric_naming: MetricNaming = settings.metric_naming
        self.checkpoint_config: CheckpointConfig | None = None if job.durability is None else job.durability.checkpoints
        self.autoscaler: Autoscaler | None = job.autoscaler
        """What recommends a parallelism; None if it is off."""
        self.reports: EpochReports = job.reports
        """The reports of the last epochs."""
        self.failures: deque[Failure] = self._supervisor.failures
        """The failures that ended attempts of this run."""
        self._figures = RunFigures(job, self._supervisor)
        self._reporter = RunReporter(job, self._supervisor, self._figures, lambda: self.status)
        self._recorder = self._record()

    def follow(self) -> None:
        """Keep the job running, in a thread, until it ends."""
        self._supervisor.start()
        if self._recorder is not None:
            self._recorder.start()

    def _record(self) -> RunRecorder | None:
        """A run with checkpoints is recorded beside them."""
        reporter, place = self._reporter, self.place
        if place is None:
            return None  # A job without checkpoints has nowhere to keep a record.
        storage, layout = place
        return RunRecorder(
            storage, layout, report=reporter.report, notable=reporter.notable, ended=self._supervisor.ended
        )

    @property
    def place(self) -> tuple[Storage, JobLayout] | None:
        """Where the job keeps its checkpoints; None without checkpointing."""
        if self._job.loop is None:
            return None
        history = self._job.loop.ownership.history
        return history.storage, history.layout

    def report(self) -> RunReport:
        """Everything that is known about the run now. `GET /jobs/ID/report` answers with it."""
        return self._reporter.report()

    def samples(self) -> list[Sample]:
        """The current value of every metric."""
        found, scaler = self._job.metrics.samples(self, self._figures), self.autoscaler
        return found if scaler is None else [*found, *scaler.samples()]

    def metrics(self) -> dict[str, float]:
        """The current values of the metrics of the job, by Flink's names: `run.metrics()["lastCheckpointDuration"]`. Those of
        tasks, operators, sources and sinks have labels, and are in `samples`.
        """
        return {sample.metric.name: sample.value for sample in self.samples() if not sample.labels}

    def run_empty_epoch(self) -> EpochReport:
        """Run an epoch without a batch, between two batches."""
        return self._supervisor.attempt.run_empty_epoch()

    # -- checkpoints and savepoints ----------------------------------------------------------------------------------

    def trigger_checkpoint(self, *, full: bool | None = None) -> Future[CheckpointRef]:
        """Take a checkpoint now, whatever the interval says.

        Args:
            full: True stores every file again, False only those that earlier checkpoints do not have. By default, the
                configuration decides.
        """
        return self._checkpointed().request(full=full)

    def savepoint(self, target: str | None = None, *, format: str = CANONICAL) -> Future[str]:
        """Take a savepoint of the running job. The result is its path.

        Args:
            target: The directory in which the savepoint gets a new folder. By default, that of the options.
            format: `"CANONICAL"`, tables that any backend can restore and any tool can read, or `"NATIVE"`, the backend's own
                files: faster to write and to restore.
        """
        loop, chosen = self._checkpointed(), _format(format)
        loop.check_target(target)
        return loop.savepoint(target, terminal=False, format=chosen)

    def rescale(self, parallelism: int) -> Future[Rescale]:
        """Continue with another parallelism, from a checkpoint of the running epoch, in the same driver and session.

        The future completes when the job runs again. Raises `RescaleRefused` if it is impossible.

        Args:
            parallelism: The new number of tasks of every level.
        """
        return self._supervisor.rescaler.ask(parallelism)

    def _checkpointed(self) -> CheckpointLoop:
        if self._job.loop is None:
            raise PreconditionFailed("A job without checkpoints has no savepoints. Start it with checkpoint=….")
        return self._job.loop

    # -- the end -----------------------------------------------------------------------------------------------------

    def await_termination(self, timeout_s: float | None = None) -> bool:
        """Wait, and return whether the job has ended. Raises the error that ended it, if there is one.

        An interrupt ends the waiting, and not the job.

        Args:
            timeout_s: How long to wait. By default, until the job has ended.
        """
        with interrupts_spare_spark():
            if not self._supervisor.ended.wait(timeout_s):
                return False
        if self._recorder is not None:
            # So that whoever looks at storage right after this finds how the run ended.
            self._recorder.join(_LAST_RECORD_S)
        if self._supervisor.outcome is not None:
            raise self._supervisor.outcome
        return True

    def stop(self) -> None:
        """End the job after the current epoch. Output that waits for a checkpoint gets one."""
        # First: from here no new epoch begins, and a pause before a restart ends.
        self._job.stop.asked.set()
        self._supervisor.announce_status()
        loop, lock = self._job.loop, self._supervisor.lock
        if lock.is_held_here() or (loop is not None and loop.is_own_thread()):
            # A callback sink stops the job, within an epoch or on its own thread, which must continue before the job can end.
            threading.Thread(target=in_this_context(self.stop), name="tidegate-stop", daemon=True).start()
            return
        # While the epoch lock is held no epoch runs, and one that Spark starts now is rejected:
        # the query is between two batches.
        with lock:
            query = self.query
        query.stop()
        self.await_termination()

    def stop_with_savepoint(self, target: str | None = None, *, drain: bool = False, format: str = CANONICAL) -> str:
        """End the job with a savepoint, from which the next start continues, and return its path.

        Args:
            target: The directory in which the savepoint gets a new folder. By default, that of the options.
            drain: Let all event time pass first: timers fire and windows close, for a job that will not continue. If you do
                restore from a drained savepoint, every row is late. Without it, the call is refused (`PreconditionFailed`) while
                a run with `trigger="available-now", drain=True` closes its windows at the end of its input.
            format: `"CANONICAL"` or `"NATIVE"`, as for `savepoint`.
        """
        self._checkpointed().check_target(target)
        self._job.stop.end_with_savepoint(target, _format(format), drain=drain)
        self.stop()
        if self._supervisor.last_savepoint is None:
            raise PreconditionFailed(
                "The job has not taken its last savepoint: it ended before, or a callback of its own stopped it."
            )
        return self._supervisor.last_savepoint

    def stop_within(self, seconds: float) -> None:
        """Limit the time of a stop: it does not wait longer for targets, whatever the options say.

        Args:
            seconds: The longest time to wait.
        """
        self._job.stop.limit_output_wait(seconds)

    def cancel(self) -> None:
        """End the job without a last checkpoint: the next start continues from the previous one."""
        # Before `stop`, which wakes those that read it.
        self._job.stop.cancelled = True
        self.stop()

    @property
    def left_behind(self) -> str:
        """Describe how far an interrupted stop got: its savepoint, and output that waits."""
        place, waiting = self._supervisor.last_savepoint, self.waiting_output
        said = [] if place is None else [f"it resumes from the savepoint {place}"]
        said += [f"output waits: {'; '.join(map(str, waiting))}"] if waiting else []
        return "; ".join(said)


def _format(given: str) -> str:
    if given.upper() not in (CANONICAL, NATIVE):
        raise OptionError((f"There is no savepoint format {given!r}. Use {CANONICAL} or {NATIVE}.",))
    return given.upper()
