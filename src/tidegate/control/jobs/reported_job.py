"""A job seen through its last report and its storage: the same answers, whether its driver is alive or gone."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import msgspec

from tidegate.checkpoint.coordination.statistics import REMEMBERED, CheckpointStats, CheckpointStatsSnapshot
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.control.jobs.checkpoint_report import (
    checkpoint_statistics,
    checkpointing_statistics,
    statistics_by_level,
    statistics_with_subtasks,
)
from tidegate.control.jobs.job_errors import NotFound
from tidegate.control.jobs.job_snapshots import JobSnapshots
from tidegate.control.jobs.stored_jobs import StoredJob
from tidegate.control.jobs.vertices import JobVertices, execution_state
from tidegate.control.messages.autoscaler import AutoscalerInfo, autoscaler_info
from tidegate.control.messages.checkpoints import (
    AnyCheckpointStatistics,
    CheckpointConfigInfo,
    CheckpointingStatistics,
    ExternalizedCheckpointInfo,
    TaskCheckpointStatisticsWithSubtasks,
)
from tidegate.control.messages.job import (
    JobDetails,
    JobDetailsInfo,
    JobExceptionHistory,
    JobExceptionsInfo,
    JobStatusInfo,
    RootExceptionInfo,
    TaskCounts,
)
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.errors import help_of_kind
from tidegate.core.redaction import redacted
from tidegate.events.event import TERMINAL
from tidegate.metrics.metric import Sample
from tidegate.runtime.driver.autoscaling import Autoscaler
from tidegate.runtime.monitoring.health import answers, end_text, rates
from tidegate.runtime.monitoring.run_report import FailureLine, RunReport

_ROW = re.compile(r"^(  (?:row|key):  ).*$", re.MULTILINE)
"""The line of a `UserCodeError` that quotes the row and its key."""
_HIDDEN = r"\g<1>hidden; --show-values shows it"
ENDED = (*TERMINAL, "LOST")
_STATUSES = (
    "INITIALIZING",
    "CREATED",
    "RUNNING",
    "FAILING",
    "FAILED",
    "CANCELLING",
    "CANCELED",
    "FINISHED",
    "RESTARTING",
    "SUSPENDED",
    "RECONCILING",
)
"""Flink's, each of which has a time in the details of a job."""


class ReportedJob(ABC):
    """`show_values`: whether answers contain keys and values of the job's state."""

    live = False
    """Whether the driver of the job answers itself."""

    def __init__(self, show_values: bool = False) -> None:
        self._show_values = show_values

    @abstractmethod
    def report(self) -> RunReport:
        """Return the newest report of the job."""

    @abstractmethod
    def stored(self) -> StoredJob | None:
        """Return the job in storage, as its log says now. None for a job without checkpoints."""

    @property
    @abstractmethod
    def id(self) -> str:
        """Its lineage: 32 hexadecimal digits, as Flink's."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    def find(self, job: str) -> Self:
        """Return this job if `job` is its id or its name: a server may serve a single job."""
        if job not in (self.id, self.name):
            raise NotFound(f"Job {job} not found. This driver runs {self.id} ({self.name!r}).")
        return self

    def all(self) -> list[ReportedJob]:
        return [self]

    def version(self) -> tuple[str | None, object]:
        """Return the last epoch, and something that differs whenever the report has news."""
        report = self.report()
        counts = None if report.checkpoints is None else report.checkpoints.counts
        epoch = report.epochs[-1].epoch if report.epochs else None
        return epoch, (report.status, len(report.failures), report.restarts, counts, report.term)

    # -- what it is ----------------------------------------------------------------------------------------------------

    def status(self) -> JobStatusInfo:
        return JobStatusInfo(self.report().status)

    def overview(self) -> JobDetails:
        return _overview(self.report())

    def details(self) -> JobDetailsInfo:
        report = self.report()
        shown = _overview(report)
        vertices = JobVertices(report, self.samples())

        # Flink lists every status, with 0 for one that the job never had. Reports keep the times of start and end only.
        timestamps = {**dict.fromkeys(_STATUSES, 0), "RUNNING": shown.start_time}
        if report.ended_ms is not None:
            timestamps[shown.state] = report.ended_ms
        return JobDetailsInfo(
            jid=shown.jid,
            name=report.job,
            state=shown.state,
            start_time=shown.start_time,
            end_time=shown.end_time,
            duration=shown.duration,
            max_parallelism=report.max_parallelism,
            now=SYSTEM_CLOCK.now().wall_ms,
            timestamps=timestamps,
            vertices=vertices.all(),
            status_counts=vertices.states(),
            plan=vertices.plan(),
        )

    def samples(self) -> Sequence[Sample]:
        """Return the metrics of the job now; none if its driver does not answer itself."""
        return ()

    def autoscaler(self) -> AutoscalerInfo:
        """Return what the autoscaler recommends now."""
        return autoscaler_info(self.scaling())

    def scaling(self) -> Autoscaler:
        """Return the autoscaler of the job. Raises `NotFound` if it has none."""
        raise NotFound("Only a running job has an autoscaler.")

    def exceptions(self, most: int = 20) -> JobExceptionsInfo:
        entries = [
            RootExceptionInfo(
                exception_name=failure.kind,
                stacktrace=self._shown(failure).message,
                timestamp=failure.at_ms,
                # Flink's labels are free text from enrichers. This one is ours.
                failure_labels={"restarted": str(failure.restarted).lower()},
            )
            for failure in self.report().failures
        ]
        return JobExceptionsInfo(JobExceptionHistory(entries[:most], len(entries) > most))

    def full_report(self, allows_actions: bool) -> dict[str, Any]:
        """Return everything that pages show about the job, in tidegate's own form."""
        report = self.report()
        now_ms = SYSTEM_CLOCK.now().wall_ms
        document: dict[str, Any] = msgspec.to_builtins(report)
        del document["process"]  # identifies the process of the driver; of no use on a page
        checkpoints = report.checkpoints
        config = report.checkpoint_config
        return document | {
            "now_ms": now_ms,
            "live": self.live,
            "end_text": end_text(report),
            "answers": answers(report, now_ms),
            "rates": rates(report, now_ms),
            "allows": {"actions": allows_actions and self.live, "values": self._show_values},
            "checkpoints": None if checkpoints is None else checkpointing_statistics(checkpoints, REMEMBERED),
            "failures": [self._shown(failure) for failure in report.failures],
            "checkpoint_config": None if config is None else _config(config, report.state_backend),
            "hot_keys": {
                # A key is a value of the user. How large its share is may be shown.
                operator: [[key if self._show_values else None, share] for key, share in keys]
                for operator, keys in report.hot_keys.items()
            },
            "spans": [span if self._show_values else replace(span, longest_key=None) for span in report.spans],
        }

    def _shown(self, failure: FailureLine) -> FailureLine:
        """Return a failure without secrets, and without the row and key on which a function failed, unless values are shown."""
        message = redacted(failure.message)
        shown = message if self._show_values else _ROW.sub(_HIDDEN, message)
        return replace(failure, message="\n".join((shown, *help_of_kind(failure.kind))))

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def checkpoints(self) -> CheckpointingStatistics:
        return checkpointing_statistics(_statistics(self.report()))

    def checkpoint(self, checkpoint_id: int) -> AnyCheckpointStatistics:
        report = self.report()
        stats = _checkpoint(report, checkpoint_id)
        return checkpoint_statistics(stats, statistics_by_level(stats, _levels(report)))

    def subtasks(self, checkpoint_id: int, vertex: str) -> TaskCheckpointStatisticsWithSubtasks:
        report = self.report()
        statistics = statistics_with_subtasks(_checkpoint(report, checkpoint_id), _levels(report), vertex)
        if statistics is None:
            raise NotFound(f"Checkpoint {checkpoint_id} has no part {vertex!r}.")
        return statistics

    def config(self) -> CheckpointConfigInfo:
        report = self.report()
        if report.checkpoint_config is None:
            raise NotFound("Checkpointing was not enabled for this job.")
        return _config(report.checkpoint_config, report.state_backend)

    # -- snapshots and state -------------------------------------------------------------------------------------------

    def snapshots(self) -> JobSnapshots:
        job = self.stored()
        if job is None:
            raise NotFound("Checkpointing was not enabled for this job, so no state of it is stored.")
        report = self.report()
        config = report.checkpoint_config
        savepoint_dir = None if config is None else config.savepoint_dir
        return JobSnapshots(job, report.checkpoints, savepoint_dir, self._show_values)


def _statistics(report: RunReport) -> CheckpointStatsSnapshot:
    if report.checkpoints is None:
        raise NotFound("Checkpointing was not enabled for this job.")
    return report.checkpoints


def _checkpoint(report: RunReport, checkpoint_id: int) -> CheckpointStats:
    stats = _statistics(report).find(checkpoint_id)
    if stats is None:
        raise NotFound(f"Could not find checkpoint {checkpoint_id} among the last ones.")
    return stats


def _levels(report: RunReport) -> set[int]:
    return {node.level for node in report.graph.nodes}


def _overview(report: RunReport) -> JobDetails:
    last_ms = report.ended_ms or report.written_ms
    # The tasks of the source stage are not counted: Spark chooses their number in every epoch.
    total = report.parallelism * max((node.level for node in report.graph.nodes), default=1)
    return JobDetails(
        jid=str(report.lineage),
        name=report.job,
        state=report.status,
        start_time=report.started_ms,
        end_time=-1 if report.ended_ms is None else report.ended_ms,
        duration=last_ms - report.started_ms,
        last_modification=last_ms,
        tasks=TaskCounts(total=total, **{execution_state(report.status).lower(): total}),
    )


def _config(config: CheckpointConfig, state_backend: str) -> CheckpointConfigInfo:
    return CheckpointConfigInfo(
        mode=str(config.mode).lower(),
        interval=config.interval_ms,
        timeout=config.timeout_ms,
        min_pause=config.min_pause_ms,
        max_concurrent=config.max_concurrent,
        externalization=ExternalizedCheckpointInfo(
            enabled=str(config.retention) != "NO_EXTERNALIZED_CHECKPOINTS",
            delete_on_cancellation=str(config.retention) != "RETAIN_ON_CANCELLATION",
        ),
        state_backend=state_backend,
        checkpoint_storage=None if config.dir is None else redacted(config.dir),
        unaligned_checkpoints=config.unaligned,
        tolerable_failed_checkpoints=config.tolerable_failures,
        aligned_checkpoint_timeout=config.aligned_timeout_ms,
        state_changelog_enabled=config.changelog,
        changelog_periodic_materialization_interval=config.materialize_interval_ms,
        changelog_storage="filesystem" if config.changelog else None,
    )
