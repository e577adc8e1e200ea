"""The vertices of a job with their subtasks, from its report and metrics at one moment.

The source stage is a vertex as well. It has subtasks only if Python runs there; otherwise Spark reads the sources with tasks of
its own, whose number it chooses and of which tidegate knows no figures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import get_args

from tidegate.control.jobs.metric_report import aggregated_metrics, metric_values, of_operators, of_tasks, value_text
from tidegate.control.jobs.plan import SOURCE_STAGE, Vertex, job_plan, vertices
from tidegate.control.messages.accumulators import (
    JobVertexAccumulatorsInfo,
    SubtaskAccumulatorsInfo,
    SubtasksAllAccumulatorsInfo,
)
from tidegate.control.messages.metrics import AggregatedMetric, MetricValue
from tidegate.control.messages.plan import JobPlan
from tidegate.control.messages.vertices import (
    AggregatedTaskDetailsInfo,
    ExecutionState,
    FigureSummary,
    IOMetricsInfo,
    JobVertexBackPressureInfo,
    JobVertexDetailsInfo,
    JobVertexInfo,
    JobVertexTaskManagersInfo,
    SubtaskBackPressureInfo,
    SubtaskInfo,
    SubtasksTimesInfo,
    SubtaskTimeInfo,
    VertexTaskManagerInfo,
)
from tidegate.core.ids import Slot, TaskId
from tidegate.metrics import catalog
from tidegate.metrics.metric import Metric, Sample, Scope
from tidegate.runtime.monitoring.run_report import RunReport, TaskLine

_STATES: Mapping[str, ExecutionState] = {
    "INITIALIZING": "INITIALIZING",
    "RUNNING": "RUNNING",
    "RESTARTING": "SCHEDULED",
    "CANCELLING": "CANCELING",
    "CANCELED": "CANCELED",
    "FINISHED": "FINISHED",
    "FAILED": "FAILED",
    "LOST": "FAILED",
}
"""The status of a job → what its tasks are in then."""
_UNKNOWN_HOST = "(unassigned)"
_IN_ORDER: tuple[ExecutionState, ...] = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")
_LOW = 0.1
_HIGH = 0.5
"""From which share of the time on a task counts as held, and as held most of the time."""
_FIGURES: Mapping[str, str | Metric] = {
    "read-bytes": "bytes_in",
    "write-bytes": "bytes_out",
    "read-records": "rows_in",
    "write-records": "rows_out",
    "accumulated-backpressured-time": catalog.TOTAL_HELD,
    "accumulated-idle-time": catalog.TOTAL_IDLE,
    "accumulated-busy-time": catalog.TOTAL_BUSY,
}
"""Flink's names → the field of a task's line, or the metric."""
TASK_METRICS = frozenset(metric.name for metric in catalog.METRICS if metric.scope is Scope.TASK)


def execution_state(status: str) -> ExecutionState:
    return _STATES[status]


def state_counts(state: ExecutionState, count: int) -> dict[str, int]:
    """Flink lists all states."""
    return {**dict.fromkeys(get_args(ExecutionState), 0), state: count}


@dataclass(frozen=True, slots=True)
class Subtask:
    """A task: its line in the report, unless it has not acknowledged an epoch, and its metrics, unless the driver is gone."""

    index: int
    line: TaskLine | None
    values: Mapping[str, float]

    @property
    def host(self) -> str:
        """Its id."""
        return _UNKNOWN_HOST if self.line is None else self.line.host

    @property
    def endpoint(self) -> str:
        """The name of its host, as far as it is known."""
        return self.host if self.line is None else self.line.host_name or self.line.host

    def figure(self, name: str) -> float:
        """Return the figure of this name in `_FIGURES`."""
        field = _FIGURES[name]
        if isinstance(field, Metric):
            return self.values.get(field.name, 0.0)
        return 0.0 if self.line is None else float(getattr(self.line, field))


class JobVertices:
    """`samples` are the metrics at the same moment; none for a job whose driver is gone."""

    def __init__(self, report: RunReport, samples: Sequence[Sample]) -> None:
        self._report = report
        self._samples = samples
        self._metrics = of_tasks(samples)
        self._lines = {line.task: line for line in report.tasks}
        self._state = execution_state(report.status)
        self._vertices = vertices(report.graph)
        # -1 is Flink's value for what has not happened.
        self._end_ms = -1 if report.ended_ms is None else report.ended_ms
        self._duration_ms = (report.ended_ms or report.written_ms) - report.started_ms

    def find(self, id: str) -> Vertex | None:
        return next((vertex for vertex in self._vertices if vertex.id == id), None)

    def plan(self) -> JobPlan:
        parallelism = {vertex.level: self._parallelism(vertex) for vertex in self._vertices}
        return job_plan(str(self._report.lineage), self._report.job, self._report.graph, parallelism)

    def all(self) -> list[JobVertexInfo]:
        return [
            JobVertexInfo(
                id=vertex.id,
                name=vertex.name,
                max_parallelism=self._report.max_parallelism,
                parallelism=self._parallelism(vertex),
                status=self._state,
                start_time=self._report.started_ms,
                end_time=self._end_ms,
                duration=self._duration_ms,
                tasks=state_counts(self._state, len(subtasks)),
                metrics=_io(subtasks),
            )
            for vertex in self._vertices
            for subtasks in [self.subtasks(vertex)]
        ]

    def states(self) -> dict[str, int]:
        """Return how many vertices are in each state."""
        return state_counts(self._state, len(self._vertices))

    def details(self, vertex: Vertex) -> JobVertexDetailsInfo:
        subtasks = self.subtasks(vertex)
        return JobVertexDetailsInfo(
            id=vertex.id,
            name=vertex.name,
            parallelism=self._parallelism(vertex),
            max_parallelism=self._report.max_parallelism,
            now=self._report.written_ms,
            subtasks=[
                SubtaskInfo(
                    subtask=subtask.index,
                    status=self._state,
                    # All tasks start again together: the restarts of the job are the attempts of each.
                    attempt=self._report.restarts,
                    endpoint=subtask.endpoint,
                    start_time=self._report.started_ms,
                    end_time=self._end_ms,
                    duration=self._duration_ms,
                    metrics=_io([subtask]),
                    taskmanager_id=subtask.host,
                    status_duration=self._durations(subtask),
                )
                for subtask in subtasks
            ],
            aggregated=self._aggregated(subtasks),
        )

    def back_pressure(self, vertex: Vertex) -> JobVertexBackPressureInfo:
        subtasks = [
            SubtaskBackPressureInfo(
                subtask=subtask.index,
                attempt_number=self._report.restarts,
                backpressure_level=_level(subtask.line.held),
                ratio=subtask.line.held,
                idle_ratio=subtask.line.idle,
                busy_ratio=subtask.line.busy,
            )
            for subtask in self.subtasks(vertex)
            if subtask.line is not None
        ]
        worst = max((each.ratio for each in subtasks), default=0.0)
        return JobVertexBackPressureInfo(
            backpressure_level=_level(worst), end_timestamp=self._report.written_ms, subtasks=subtasks
        )

    def watermarks(self, vertex: Vertex) -> list[MetricValue]:
        """Return the watermark of the job, for every subtask that has input. Empty before the first one."""
        value = self._report.watermark_ms
        if value is None or vertex.is_source_stage:
            return []
        name = catalog.WATERMARK.name
        return [MetricValue(f"{subtask.index}.{name}", value_text(value)) for subtask in self.subtasks(vertex)]

    def metrics(self, vertex: Vertex, ids: Collection[str] | None) -> list[MetricValue]:
        """Return the metrics of its subtasks and operators."""
        values = {
            f"{subtask.index}.{name}": value
            for subtask in self.subtasks(vertex)
            for name, value in subtask.values.items()
        }
        return metric_values(values | of_operators(self._samples, vertex.operators), ids)

    def subtask_metrics(
        self, vertex: Vertex, ids: Collection[str] | None, aggregates: Collection[str]
    ) -> list[AggregatedMetric]:
        """Return the metrics of its subtasks, aggregated."""
        parts = [subtask.values for subtask in self.subtasks(vertex)]
        return aggregated_metrics(parts, ids, aggregates, TASK_METRICS)

    def times(self, vertex: Vertex) -> SubtasksTimesInfo:
        # A report keeps when the run started and ended, and no times of single tasks.
        timestamps = state_counts("RUNNING", self._report.started_ms)
        if self._end_ms >= 0:
            timestamps[self._state] = self._end_ms
        return SubtasksTimesInfo(
            id=vertex.id,
            name=vertex.name,
            now=self._report.written_ms,
            subtasks=[
                SubtaskTimeInfo(
                    subtask=subtask.index,
                    endpoint=subtask.endpoint,
                    duration=self._duration_ms,
                    timestamps=timestamps,
                )
                for subtask in self.subtasks(vertex)
            ],
        )

    def task_managers(self, vertex: Vertex) -> JobVertexTaskManagersInfo:
        by_host: dict[str, list[Subtask]] = {}
        for subtask in self.subtasks(vertex):
            by_host.setdefault(subtask.host, []).append(subtask)
        return JobVertexTaskManagersInfo(
            id=vertex.id,
            name=vertex.name,
            now=self._report.written_ms,
            taskmanagers=[
                VertexTaskManagerInfo(
                    endpoint=subtasks[-1].endpoint,
                    status=self._state,
                    start_time=self._report.started_ms,
                    end_time=self._end_ms,
                    duration=self._duration_ms,
                    metrics=_io(subtasks),
                    status_counts=state_counts(self._state, len(subtasks)),
                    taskmanager_id=host,
                    aggregated=self._aggregated(subtasks),
                )
                for host, subtasks in sorted(by_host.items())
            ],
        )

    def accumulators(self, vertex: Vertex) -> JobVertexAccumulatorsInfo:
        return JobVertexAccumulatorsInfo(vertex.id)

    def subtask_accumulators(self, vertex: Vertex) -> SubtasksAllAccumulatorsInfo:
        return SubtasksAllAccumulatorsInfo(
            id=vertex.id,
            parallelism=self._parallelism(vertex),
            subtasks=[
                SubtaskAccumulatorsInfo(subtask=each.index, attempt=self._report.restarts, endpoint=each.endpoint)
                for each in self.subtasks(vertex)
            ],
        )

    def subtasks(self, vertex: Vertex) -> list[Subtask]:
        return [
            Subtask(task.slot, self._lines.get(str(task)), self._metrics.get(str(task), {}))
            for task in self._tasks_of(vertex.level)
        ]

    def _tasks_of(self, level: int) -> list[TaskId]:
        if level != SOURCE_STAGE:
            return [TaskId(level, Slot(slot)) for slot in range(self._report.parallelism)]
        # Spark decides how many partitions a source has. They are known by what they have reported.
        return sorted(TaskId(level, Slot(line.slot)) for line in self._report.tasks if line.level == level)

    def _parallelism(self, vertex: Vertex) -> int:
        tasks = len(self._tasks_of(vertex.level))
        if vertex.is_source_stage and not tasks:
            return -1  # Spark chooses how many tasks read the sources
        return tasks

    def _durations(self, subtask: Subtask) -> dict[str, int]:
        # A task initializes while it restores its state. Everything after that counts as running.
        restored_ms = 0 if subtask.line is None else subtask.line.restore_ms
        durations = {"INITIALIZING": restored_ms, "RUNNING": max(0, self._duration_ms - restored_ms)}
        return {state: durations.get(state, 0) for state in _IN_ORDER}

    def _aggregated(self, subtasks: Sequence[Subtask]) -> AggregatedTaskDetailsInfo:
        durations = [self._durations(subtask) for subtask in subtasks]
        return AggregatedTaskDetailsInfo(
            metrics={name: _distribution(subtask.figure(name) for subtask in subtasks) for name in _FIGURES},
            status_duration={state: _distribution(each[state] for each in durations) for state in _IN_ORDER},
        )


def _io(subtasks: Sequence[Subtask]) -> IOMetricsInfo:
    """Return the sums over some subtasks, which are complete if every subtask has reported."""
    sums = {name: sum(subtask.figure(name) for subtask in subtasks) for name in _FIGURES}

    # Flink's flag: false means that the sum is too small, since a subtask has not reported.
    complete = bool(subtasks) and all(subtask.line is not None for subtask in subtasks)
    return IOMetricsInfo(
        read_bytes=int(sums["read-bytes"]),
        read_bytes_complete=complete,
        write_bytes=int(sums["write-bytes"]),
        write_bytes_complete=complete,
        read_records=int(sums["read-records"]),
        read_records_complete=complete,
        write_records=int(sums["write-records"]),
        write_records_complete=complete,
        accumulated_backpressured_time=int(sums["accumulated-backpressured-time"]),
        accumulated_idle_time=int(sums["accumulated-idle-time"]),
        accumulated_busy_time=sums["accumulated-busy-time"],
    )


def _distribution(values: Iterable[float]) -> FigureSummary:
    ordered = sorted(values)
    if not ordered:
        return FigureSummary()
    # 19 cuts at steps of 5 %: number 4 is p25, 9 the median, 14 p75, 18 p95.
    cuts = quantiles(ordered, n=20, method="inclusive") if len(ordered) > 1 else ordered * 19
    return FigureSummary(
        min=ordered[0],
        max=ordered[-1],
        avg=sum(ordered) / len(ordered),
        sum=sum(ordered),
        median=cuts[9],
        p25=cuts[4],
        p75=cuts[14],
        p95=cuts[18],
    )


def _level(ratio: float) -> str:
    if ratio <= _LOW:
        return "ok"
    return "low" if ratio <= _HIGH else "high"
