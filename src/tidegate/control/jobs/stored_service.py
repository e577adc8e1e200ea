"""Jobs read from their checkpoint directory, with or without a driver alive: `tidegate ui DIR` answers from here."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Any

from tidegate.checkpoint.coordination.statistics import (
    CheckpointStats,
    CheckpointStatsCounts,
    CheckpointStatsSnapshot,
    CheckpointStatus,
)
from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.job_log.claim import Heartbeat, read_heartbeat
from tidegate.checkpoint.job_log.entry import RunOutcome
from tidegate.control.jobs.job_errors import NotFound
from tidegate.control.jobs.reported_job import ENDED, ReportedJob
from tidegate.control.jobs.stored_jobs import UNREADABLE, StoredJob, jobs_in
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.processes import has_died
from tidegate.graph.outline import Outline
from tidegate.runtime.driver.recorder import EVERY_S, recorded_runs
from tidegate.runtime.monitoring.run_report import RunEnd, RunReport

log = logging.getLogger("tidegate")

_FRESH_S = 1.0
"""How long an answer is used again before storage is asked."""
_SILENT_MS = round(2 * EVERY_S * 1000)
"""A record that is older than this, of a driver that is not known to live, is that of a driver that is gone."""
_STATUSES = {
    RunOutcome.FINISHED: "FINISHED",
    RunOutcome.STOPPED: "FINISHED",
    RunOutcome.SUSPENDED: "FINISHED",
    RunOutcome.CANCELED: "CANCELED",
    RunOutcome.FAILED: "FAILED",
}


_ENDS = {RunOutcome.STOPPED: RunEnd.SAVEPOINT, RunOutcome.FINISHED: RunEnd.INPUT, RunOutcome.SUSPENDED: RunEnd.INPUT}
"""How a run ended according to the log, for a record that was written before its end."""


class StoredJobService(ReportedJob):
    """One job of a checkpoint directory."""

    def __init__(self, job: StoredJob, show_values: bool = False) -> None:
        super().__init__(show_values)
        self._job = job
        self._lock = threading.Lock()
        self._read: tuple[float, RunReport] | None = None

    @property
    def id(self) -> str:
        return str(self._job.newest.lineage)

    @property
    def name(self) -> str:
        return self._job.name

    def stored(self) -> StoredJob | None:
        return StoredJob.read(self._job.storage, self._job.layout)

    def report(self) -> RunReport:
        with self._lock:
            now = time.monotonic()
            if self._read is None or now - self._read[0] > _FRESH_S:
                # A log that cannot be found right now, as during a restore, leaves the last known entry.
                self._job = self.stored() or self._job
                self._read = (now, self._newest())
            return self._read[1]

    def _newest(self) -> RunReport:
        """Return the record of the newest run, with the status that log, heartbeat and clock give it."""
        job = self._job
        report = next(recorded_runs(job.storage, job.layout), None) or _without_record(job)
        outcome = job.newest.outcome
        if outcome is not None and job.newest.term >= report.term:
            status = report.status if report.status in ENDED else _STATUSES[outcome]
            end = report.end or _ENDS.get(outcome)
            return replace(report, status=status, end=end, ended_ms=report.ended_ms or job.newest.at_ms)
        # The log has no end of this run: it runs, or its driver died before it could write one.
        if report.status in ENDED or not self._is_gone(report):
            return report
        return replace(report, status="LOST", ended_ms=report.written_ms)

    def _is_gone(self, report: RunReport) -> bool:
        beat = perform(read_heartbeat(self._job.layout), self._job.storage)
        process = beat.process if isinstance(beat, Heartbeat) and beat.term >= report.term else report.process
        # A dead process proves it at once on this machine. On another one, only silence can.
        return has_died(process) or SYSTEM_CLOCK.now().wall_ms - report.written_ms > _SILENT_MS


class StoredJobs:
    """All jobs of a checkpoint directory, or the one whose directory it is. `options` go to the client of an object store."""

    def __init__(self, directory: str, show_values: bool = False, **options: Any) -> None:
        """Raises `JobNotFound`."""
        self._directory = directory
        self._show_values = show_values
        self._options = options
        self._services: dict[str, StoredJobService] = {}
        self._lock = threading.Lock()
        self._read_s = 0.0
        self.all()  # so that a wrong directory is an error of the command, and not of the first page

    def all(self) -> list[ReportedJob]:
        with self._lock:
            if time.monotonic() - self._read_s > _FRESH_S or not self._services:
                by_name = {job.name: job for job in jobs_in(self._directory, **self._options)}
                services = [
                    self._services.get(name) or StoredJobService(job, self._show_values)
                    for name, job in sorted(by_name.items())
                ]
                self._services = {each.name: each for each in services if _is_readable(each)}
                self._read_s = time.monotonic()
            return list(self._services.values())

    def find(self, job: str) -> ReportedJob:
        for each in self.all():
            if job in (each.id, each.name):
                return each
        raise NotFound(f"Job {job} not found in {self._directory}.")


def _is_readable(service: StoredJobService) -> bool:
    """Return whether a job can be read. One that cannot must not hide the others on a page that shows all of them."""
    try:
        service.report()
    except UNREADABLE as error:
        log.warning("the job %r cannot be read: %s", service.name, error)
        return False
    return True


def _without_record(job: StoredJob) -> RunReport:
    """Return what log and metadata contain about a job without a record: its checkpoints, and little else."""
    entry = job.newest
    readable, _ = job.readable_snapshots()
    snapshots = [snapshot.metadata for _, snapshot in readable]

    # Unknown figures are 0 or empty. The status is only what the job was last: the caller compares it with log and heartbeat.
    versions: dict[str, str] = {}
    parallelism = max_parallelism = 0
    state_backend = ""
    if snapshots:
        newest = snapshots[-1]
        versions = {"tidegate": newest.tidegate_version, "spark": newest.spark_version}
        parallelism = newest.parallelism
        max_parallelism = newest.max_parallelism
        state_backend = newest.tasks[0].backend if newest.tasks else ""
    history = tuple(
        CheckpointStats(
            id=m.checkpoint_id,
            epoch=m.epoch,
            status=CheckpointStatus.COMPLETED,
            is_savepoint=m.kind == "savepoint",
            trigger_timestamp=m.triggered_ms,
            latest_ack_timestamp=m.completed_ms,
            num_subtasks=len(m.tasks),
            num_acknowledged_subtasks=len(m.tasks),
            state_size_bytes=m.full_size_bytes,
            checkpointed_size_bytes=m.delta_size_bytes,
            end_to_end_ms=m.completed_ms - m.triggered_ms,
        )
        for m in reversed(snapshots)
    )
    return RunReport(
        job=job.name,
        lineage=entry.lineage,
        term=entry.term,
        status="RUNNING",
        started_ms=entry.at_ms,
        written_ms=entry.at_ms,
        ended_ms=None,
        host=entry.owner,
        process="",
        versions=versions,
        restarts=0,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        state_backend=state_backend,
        graph=Outline((), ()),
        epochs=(),
        tasks=(),
        sources=(),
        sinks=(),
        held_by=None,
        watermark_ms=None,
        failures=(),
        checkpoints=CheckpointStatsSnapshot(
            counts=CheckpointStatsCounts(total=len(history), completed=len(history)),
            latest_completed=history[0] if history else None,
            latest_savepoint=None,
            latest_failed=None,
            latest_restored=None,
            summary=dict.fromkeys(("checkpointed_size", "state_size", "end_to_end_duration")),
            in_progress=(),
            history=history,
        ),
        checkpoint_config=None,
        operators={},
        options=(),
    )
