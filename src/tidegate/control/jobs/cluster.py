"""The jobs of a server and the hosts of their tasks, in the form in which Flink's REST shows a cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version

from tidegate.control.jobs.metric_report import aggregated_metrics, metric_values, of_job
from tidegate.control.jobs.reported_job import ENDED
from tidegate.control.messages.cluster import (
    ClusterOverview,
    ConfigurationEntry,
    DashboardConfiguration,
    ExecutionConfigInfo,
    JobConfigInfo,
    TaskManagerInfo,
    TaskManagersInfo,
)
from tidegate.control.messages.metrics import AggregatedMetric, MetricValue
from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.runtime.monitoring.run_report import RunReport, TaskLine

_RESTARTS = "restart-strategy."


class ClusterView:
    """The jobs at one moment. Those that have ended have no slots and no hosts."""

    def __init__(self, jobs: Sequence[RunReport]) -> None:
        self._jobs = jobs
        self._running = [job for job in jobs if job.status not in ENDED]

    def overview(self) -> ClusterOverview:
        statuses = Counter(job.status for job in self._jobs)
        return ClusterOverview(
            taskmanagers=len(self._hosts()),
            slots_total=sum(job.parallelism for job in self._running),
            # A job uses all its slots. What else Spark has free is not known here.
            slots_available=0,
            jobs_running=len(self._running),
            jobs_finished=statuses["FINISHED"],
            jobs_cancelled=statuses["CANCELED"],
            # Flink has no LOST: a driver that died without recording its end has failed.
            jobs_failed=statuses["FAILED"] + statuses["LOST"],
            flink_version=_version(),
            flink_commit="",
        )

    def task_managers(self) -> TaskManagersInfo:
        """Return the hosts that ran the tasks of the last epochs."""
        return TaskManagersInfo(
            [
                TaskManagerInfo(
                    id=host,
                    path=tasks[-1][1].host_name or host,
                    # A moment, in spite of its name, as in Flink.
                    time_since_last_heartbeat=max(
                        (job.epochs[-1].ended_ms for job, _ in tasks if job.epochs), default=None
                    ),
                    slots_number=len({(job.lineage, line.slot) for job, line in tasks}),
                    free_slots=0,
                )
                for host, tasks in sorted(self._hosts().items())
            ]
        )

    def driver_metrics(self, ids: Collection[str] | None) -> list[MetricValue]:
        """Return the few metrics of Flink's JobManager that a driver has."""
        shown = self.overview()
        values = {
            "numRegisteredTaskManagers": shown.taskmanagers,
            "numRunningJobs": shown.jobs_running,
            "taskSlotsAvailable": shown.slots_available,
            "taskSlotsTotal": shown.slots_total,
        }
        return metric_values(values, ids)

    def host_metrics(self, ids: Collection[str] | None, aggregates: Collection[str]) -> list[AggregatedMetric]:
        """Return what tasks have read and written, added up for each host and aggregated over the hosts."""
        totals = [
            {
                catalog.TASK_RECORDS_IN.name: sum(line.rows_in for _, line in tasks),
                catalog.TASK_RECORDS_OUT.name: sum(line.rows_out for _, line in tasks),
                catalog.TASK_BYTES_IN.name: sum(line.bytes_in for _, line in tasks),
                catalog.TASK_BYTES_OUT.name: sum(line.bytes_out for _, line in tasks),
            }
            for tasks in self._hosts().values()
        ]
        return aggregated_metrics(totals, ids, aggregates)

    def _hosts(self) -> Mapping[str, list[tuple[RunReport, TaskLine]]]:
        """Return the tasks of each host."""
        by_host: dict[str, list[tuple[RunReport, TaskLine]]] = {}
        for job in self._running:
            for line in job.tasks:
                by_host.setdefault(line.host, []).append((job, line))
        return by_host


def dashboard() -> DashboardConfiguration:
    here = time.localtime()
    return DashboardConfiguration(
        timezone_name=here.tm_zone,
        timezone_offset=here.tm_gmtoff * 1000,
        flink_version=_version(),
        flink_revision="",
    )


def job_metrics(samples: Sequence[Sample], ids: Collection[str] | None) -> list[MetricValue]:
    return metric_values(of_job(samples), ids)


def metrics_of_jobs(
    samples: Sequence[Sequence[Sample]], ids: Collection[str] | None, aggregates: Collection[str]
) -> list[AggregatedMetric]:
    """Return the metrics of jobs, aggregated. `samples` are by job."""
    return aggregated_metrics([of_job(each) for each in samples], ids, aggregates)


def job_config(report: RunReport) -> JobConfigInfo:
    """Return how the job runs. Options that were set are what Flink calls the user configuration."""
    return JobConfigInfo(
        jid=str(report.lineage),
        name=report.job,
        execution_config=ExecutionConfigInfo(
            restart_strategy=_restart_strategy(report),
            job_parallelism=report.parallelism,
            user_config={option.key: option.value for option in report.options if option.origin != "default"},
        ),
    )


def all_options(report: RunReport) -> list[ConfigurationEntry]:
    return [ConfigurationEntry(option.key, option.value) for option in report.options]


def _restart_strategy(report: RunReport) -> str:
    """`fixed-delay (attempts: 3, delay: 1 s)`."""
    values = {option.key: option.value for option in report.options}
    strategy = values.get(f"{_RESTARTS}type", "none")
    prefix = f"{_RESTARTS}{strategy}."
    details = [f"{key.removeprefix(prefix)}: {value}" for key, value in values.items() if key.startswith(prefix)]
    return f"{strategy} ({', '.join(details)})" if details else strategy


def _version() -> str:
    return f"tidegate {version('tidegate')}"
