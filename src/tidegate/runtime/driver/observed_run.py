"""What can be read from a running job at any time."""

from __future__ import annotations

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.output.release_plan import WaitingOutput
from tidegate.core.ids import TaskId
from tidegate.runtime.driver.notebook import NotebookCell
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.driver.supervisor import Supervisor
from tidegate.runtime.epochs.failover import Counters
from tidegate.runtime.monitoring.rescale_history import Rescale


class ObservedRun(NotebookCell):
    """The figures of a run. Any thread may ask."""

    def __init__(self, job: RunningJob, supervisor: Supervisor) -> None:
        self._job = job
        self._supervisor = supervisor

    @property
    def parallelism(self) -> int:
        return self._job.settings.parallelism

    @property
    def tasks(self) -> list[TaskId]:
        return self._job.description.tasks

    @property
    def query(self) -> StreamingQuery:
        """The Structured Streaming query that delivers the batches."""
        return self._supervisor.attempt.query

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        """The latest report of Spark about the batches, with the state and the sinks of the job; None before the first one."""
        recent = self.recentProgress
        return recent[-1] if recent else None

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        """The last reports of Spark about the batches since the last restart, oldest first, with the state and the sinks of
        the job: what `StreamingQuery.recentProgress` has for a query of Spark. A figure that nobody counts is -1.
        """
        attempt = self._supervisor.attempt
        try:
            reports = attempt.query.recentProgress
        except Exception:  # The session has ended.
            return []
        return attempt.progress.of(reports)

    @property
    def counters(self) -> Counters:
        """How often epochs had to be run again, and why."""
        return self._job.runner.counters

    @property
    def restarts(self) -> int:
        return self._supervisor.restarts

    @property
    def skipped_batches(self) -> int:
        """Batches that Spark delivered twice."""
        return self._job.skipped_batches

    @property
    def held_by(self) -> WaitingOutput | None:
        """The sink for which so much output waits that no batch is read until it has caught up."""
        return self._job.held_by

    @property
    def waiting_output(self) -> tuple[WaitingOutput, ...]:
        """The output of completed checkpoints that is not committed yet, by sink."""
        return () if self._job.loop is None else self._job.loop.waiting_output

    @property
    def checkpoints(self) -> CheckpointStatsTracker | None:
        """The statistics of the checkpoints of this run; None without checkpointing."""
        return None if self._job.loop is None else self._job.loop.statistics

    @property
    def has_ended(self) -> bool:
        return self._supervisor.ended.is_set()

    @property
    def status(self) -> str:
        """The status, in Flink's terms."""
        return self._supervisor.status

    @property
    def rescales(self) -> tuple[Rescale, ...]:
        """The rescales of this run, newest first."""
        return self._supervisor.rescaler.history.rescales
