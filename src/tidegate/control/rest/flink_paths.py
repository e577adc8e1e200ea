"""Flink's paths: what is done there, and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tidegate.control.jobs import cluster
from tidegate.control.jobs.job_errors import NotFound
from tidegate.control.jobs.metric_report import AGGREGATES
from tidegate.control.jobs.plan import Vertex
from tidegate.control.jobs.rescale_report import RescaleReport
from tidegate.control.jobs.vertices import JobVertices
from tidegate.control.messages import requests
from tidegate.control.messages.accumulators import (
    JobAccumulatorsInfo,
    JobVertexAccumulatorsInfo,
    SubtasksAllAccumulatorsInfo,
)
from tidegate.control.messages.checkpoints import (
    AnyCheckpointStatistics,
    CheckpointConfigInfo,
    CheckpointingStatistics,
    TaskCheckpointStatisticsWithSubtasks,
)
from tidegate.control.messages.cluster import (
    ClusterOverview,
    ConfigurationEntry,
    DashboardConfiguration,
    JobConfigInfo,
    TaskManagersInfo,
)
from tidegate.control.messages.job import (
    JobDetailsInfo,
    JobExceptionsInfo,
    JobIdsWithStatusOverview,
    JobIdWithStatus,
    JobStatusInfo,
    MultipleJobsDetails,
)
from tidegate.control.messages.metrics import AggregatedMetric, MetricValue
from tidegate.control.messages.operation import (
    AsynchronousOperationResult,
    CheckpointInfo,
    DisposalInfo,
    EmptyResponseBody,
    SavepointInfo,
    TriggerResponse,
)
from tidegate.control.messages.plan import JobPlanInfo
from tidegate.control.messages.rescales import (
    JobRescaleConfigInfo,
    JobRescaleDetails,
    JobRescalesOverview,
    JobRescalesSummary,
    JobVertexResourceRequirements,
)
from tidegate.control.messages.vertices import (
    JobVertexBackPressureInfo,
    JobVertexDetailsInfo,
    JobVertexTaskManagersInfo,
    SubtasksTimesInfo,
)
from tidegate.control.rest.operation import BadRequest, Call, Operation, Parameter, get, trigger

_GET = {"name": "get", "in": "query", "schema": {"type": "string"}}
"""Ids of metrics, separated by commas. Without it, a list of all ids is answered."""
_AGG = {"name": "agg", "in": "query", "schema": {"type": "string", "pattern": r"^((min|max|avg|sum|skew)(,|$))*$"}}
_MODE = {"name": "mode", "in": "query", "schema": {"type": "string", "enum": ["cancel"]}}
_MAX_EXCEPTIONS = {
    "name": "maxExceptions",
    "in": "query",
    "schema": {"type": "integer", "minimum": 0, "maximum": 100_000},
}

_REQUIREMENTS = (
    'A body is {"level-1": {"parallelism": {"lowerBound": 1, "upperBound": 4}}}, with every vertex of the job.'
)


def _take_checkpoint(call: Call) -> TriggerResponse:
    job = call.service
    request = call.decoded(requests.CheckpointTriggerRequest)
    return TriggerResponse(job.trigger_checkpoint(request.trigger_id or None, request.full))


def _take_savepoint(call: Call) -> TriggerResponse:
    job = call.service
    request = call.decoded(requests.SavepointTriggerRequest)
    target = request.target_directory or None
    trigger_id = request.trigger_id or None
    return TriggerResponse(job.trigger_savepoint(target, bool(request.cancel_job), trigger_id, request.format))


def _stop(call: Call) -> TriggerResponse:
    job = call.service
    request = call.decoded(requests.StopWithSavepointRequest)
    target = request.target_directory or None
    trigger_id = request.trigger_id or None
    return TriggerResponse(job.trigger_stop(target, trigger_id, bool(request.drain), request.format))


def _dispose(call: Call) -> TriggerResponse:
    request = call.decoded(requests.SavepointDisposalRequest)
    return TriggerResponse(call.any_service.trigger_disposal(request.savepoint_path, request.trigger_id or None))


def _rescale(call: Call) -> EmptyResponseBody:
    job = call.service
    try:
        requirements = msgspec.convert(call.body, dict[str, JobVertexResourceRequirements])
    except msgspec.ValidationError as error:
        raise BadRequest(f"{error}. {_REQUIREMENTS}") from error
    job.rescale(requirements)
    return EmptyResponseBody()


def _cancel(call: Call) -> EmptyResponseBody:
    job = call.service
    if call.request.query_params.get("mode", "cancel") != "cancel":
        raise BadRequest("mode is cancel. To end a job with a savepoint, POST to …/stop.")
    job.cancel()
    return EmptyResponseBody()


def _jobs(call: Call) -> JobIdsWithStatusOverview:
    return JobIdsWithStatusOverview([JobIdWithStatus(each.id, each.status().status) for each in call.jobs.all()])


def _overview(call: Call) -> MultipleJobsDetails:
    return MultipleJobsDetails([each.overview() for each in call.jobs.all()])


def _cluster(call: Call) -> cluster.ClusterView:
    return cluster.ClusterView([each.report() for each in call.jobs.all()])


def _metrics_of_jobs(call: Call) -> object:
    return cluster.metrics_of_jobs([each.samples() for each in call.jobs.all()], _metric_ids(call), _aggregates(call))


def _accumulators(call: Call) -> JobAccumulatorsInfo:
    # Nothing here has accumulators, but clients of Flink ask for them and expect the form.
    _ = call.job  # it must exist
    return JobAccumulatorsInfo()


def _rescales(call: Call) -> RescaleReport:
    return RescaleReport(call.job.report())


def _vertices(call: Call) -> JobVertices:
    job = call.job
    return JobVertices(job.report(), job.samples())


def _metric_ids(call: Call) -> list[str] | None:
    """Return the ids of metrics in `get`; None if it is missing, for a list of all ids."""
    text = call.in_query("get")
    if text is None:
        return None
    return [name for name in text.split(",") if name]


def _aggregates(call: Call) -> list[str]:
    """Return the aggregates named in `agg`, or all."""
    chosen = [name for name in (call.in_query("agg") or "").split(",") if name]
    if not set(chosen) <= AGGREGATES.keys():
        raise BadRequest(f"agg is a list of {', '.join(AGGREGATES)}.")
    return chosen or list(AGGREGATES)


def _max_exceptions(call: Call) -> int:
    # Flink's default.
    text = call.request.query_params.get("maxExceptions", "20")
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadRequest("maxExceptions must be a number.")
    return int(text)


def _vertex(
    path: str, read: Callable[[JobVertices, Vertex, Call], object], summary: str, answer: Any, *query: Parameter
) -> Operation:
    """`path` is below that of a vertex."""

    def act(call: Call) -> object:
        job = call.job
        id = call.in_path("vertex")
        vertices = JobVertices(job.report(), job.samples())
        vertex = vertices.find(id)
        if vertex is None:
            raise NotFound(f"Job {job.id} has no vertex {id!r}. /jobs/{job.id} lists those it has.")
        return read(vertices, vertex, call)

    return get(f"/jobs/{{jobid}}/vertices/{{vertex}}{path}", act, summary, answer, *query)


FLINK_PATHS: tuple[Operation, ...] = (
    get("/metrics", lambda call: call.any_service.metrics()),
    get("/overview", lambda call: _cluster(call).overview(), "hosts, slots and jobs", ClusterOverview),
    get("/config", lambda call: cluster.dashboard(), "how Flink's dashboard behaves", DashboardConfiguration),
    get("/taskmanagers", lambda call: _cluster(call).task_managers(), "hosts that run tasks", TaskManagersInfo),
    get(
        "/taskmanagers/metrics",
        lambda call: _cluster(call).host_metrics(_metric_ids(call), _aggregates(call)),
        "metrics of hosts",
        list[AggregatedMetric],
        _GET,
        _AGG,
    ),
    get(
        "/jobmanager/metrics",
        lambda call: _cluster(call).driver_metrics(_metric_ids(call)),
        "metrics of the driver",
        list[MetricValue],
        _GET,
    ),
    get("/jobs", _jobs, "jobs and their states", JobIdsWithStatusOverview),
    get("/jobs/metrics", _metrics_of_jobs, "metrics of jobs", list[AggregatedMetric], _GET, _AGG),
    get("/jobs/overview", _overview, "jobs in a few words", MultipleJobsDetails),
    get("/jobs/{jobid}", lambda call: call.job.details(), "one job", JobDetailsInfo),
    Operation(
        method="PATCH",
        path="/jobs/{jobid}",
        act=_cancel,
        # Answered before the job has ended, so 202, as in Flink.
        summary="cancel it",
        answer=EmptyResponseBody,
        query=(_MODE,),
        status=202,
    ),
    get("/jobs/{jobid}/status", lambda call: call.job.status(), "its state", JobStatusInfo),
    get(
        "/jobs/{jobid}/exceptions",
        lambda call: call.job.exceptions(_max_exceptions(call)),
        "what went wrong",
        JobExceptionsInfo,
        _MAX_EXCEPTIONS,
    ),
    get("/jobs/{jobid}/config", lambda call: cluster.job_config(call.job.report()), "how it runs", JobConfigInfo),
    get(
        "/jobs/{jobid}/jobmanager/config",
        lambda call: cluster.all_options(call.job.report()),
        "all options",
        list[ConfigurationEntry],
    ),
    get("/jobs/{jobid}/plan", lambda call: JobPlanInfo(_vertices(call).plan()), "its vertices", JobPlanInfo),
    get("/jobs/{jobid}/accumulators", _accumulators, "always empty", JobAccumulatorsInfo),
    get(
        "/jobs/{jobid}/metrics",
        lambda call: cluster.job_metrics(call.job.samples(), _metric_ids(call)),
        "metrics of the job",
        list[MetricValue],
        _GET,
    ),
    _vertex(
        "", lambda vertices, vertex, call: vertices.details(vertex), "one vertex, task by task", JobVertexDetailsInfo
    ),
    _vertex(
        "/accumulators",
        lambda vertices, vertex, call: vertices.accumulators(vertex),
        "always empty",
        JobVertexAccumulatorsInfo,
    ),
    _vertex(
        "/backpressure",
        lambda vertices, vertex, call: vertices.back_pressure(vertex),
        "how long its tasks are held, idle and busy",
        JobVertexBackPressureInfo,
    ),
    _vertex(
        "/metrics",
        lambda vertices, vertex, call: vertices.metrics(vertex, _metric_ids(call)),
        "metrics of its tasks and operators",
        list[MetricValue],
        _GET,
    ),
    _vertex(
        "/subtasks/accumulators",
        lambda vertices, vertex, call: vertices.subtask_accumulators(vertex),
        "always empty",
        SubtasksAllAccumulatorsInfo,
    ),
    _vertex(
        "/subtasks/metrics",
        lambda vertices, vertex, call: vertices.subtask_metrics(vertex, _metric_ids(call), _aggregates(call)),
        "metrics of its tasks, aggregated",
        list[AggregatedMetric],
        _GET,
        _AGG,
    ),
    _vertex(
        "/subtasktimes",
        lambda vertices, vertex, call: vertices.times(vertex),
        "since when its tasks run",
        SubtasksTimesInfo,
    ),
    _vertex(
        "/taskmanagers",
        lambda vertices, vertex, call: vertices.task_managers(vertex),
        "its tasks by host",
        JobVertexTaskManagersInfo,
    ),
    _vertex(
        "/watermarks",
        lambda vertices, vertex, call: vertices.watermarks(vertex),
        "watermarks of its tasks",
        list[MetricValue],
    ),
    get(
        "/jobs/{jobid}/checkpoints",
        lambda call: call.job.checkpoints(),
        "statistics of checkpoints",
        CheckpointingStatistics,
    ),
    trigger("/jobs/{jobid}/checkpoints", _take_checkpoint, "take a checkpoint now", requests.CheckpointTriggerRequest),
    get(
        "/jobs/{jobid}/checkpoints/config",
        lambda call: call.job.config(),
        "how checkpoints are taken",
        CheckpointConfigInfo,
    ),
    get(
        "/jobs/{jobid}/checkpoints/details/{cid}",
        lambda call: call.job.checkpoint(call.number_in_path("cid")),
        "one checkpoint",
        AnyCheckpointStatistics,
    ),
    get(
        "/jobs/{jobid}/checkpoints/details/{cid}/subtasks/{vertex}",
        lambda call: call.job.subtasks(call.number_in_path("cid"), call.in_path("vertex")),
        "one checkpoint, task by task",
        TaskCheckpointStatisticsWithSubtasks,
    ),
    get(
        "/jobs/{jobid}/checkpoints/{triggerid}",
        lambda call: call.service.checkpoint_status(call.in_path("triggerid")),
        "what became of a checkpoint",
        AsynchronousOperationResult[CheckpointInfo],
    ),
    trigger("/jobs/{jobid}/savepoints", _take_savepoint, "take a savepoint", requests.SavepointTriggerRequest),
    get(
        "/jobs/{jobid}/savepoints/{triggerid}",
        lambda call: call.service.savepoint_status(call.in_path("triggerid")),
        "what became of a savepoint",
        AsynchronousOperationResult[SavepointInfo],
    ),
    trigger("/jobs/{jobid}/stop", _stop, "stop with a savepoint", requests.StopWithSavepointRequest),
    get(
        "/jobs/{jobid}/resource-requirements",
        lambda call: _rescales(call).requirements(),
        "its parallelism",
        dict[str, JobVertexResourceRequirements],
    ),
    Operation(
        method="PUT",
        path="/jobs/{jobid}/resource-requirements",
        act=_rescale,
        summary="change its parallelism",
        answer=EmptyResponseBody,
        body=dict[str, JobVertexResourceRequirements],
    ),
    get(
        "/jobs/{jobid}/rescales/overview",
        lambda call: _rescales(call).overview(),
        "how many rescales, and the latest",
        JobRescalesOverview,
    ),
    get(
        "/jobs/{jobid}/rescales/history",
        lambda call: _rescales(call).history(),
        "the last rescales, newest first",
        list[JobRescaleDetails],
    ),
    get(
        "/jobs/{jobid}/rescales/summary",
        lambda call: _rescales(call).summary(),
        "how long rescales take",
        JobRescalesSummary,
    ),
    get(
        "/jobs/{jobid}/rescales/config",
        lambda call: _rescales(call).config(),
        "how rescales are remembered",
        JobRescaleConfigInfo,
    ),
    get(
        "/jobs/{jobid}/rescales/details/{uuid}",
        lambda call: _rescales(call).details(call.in_path("uuid")),
        "one rescale, phase by phase",
        JobRescaleDetails,
    ),
    trigger("/savepoint-disposal", _dispose, "delete a savepoint", requests.SavepointDisposalRequest),
    get(
        "/savepoint-disposal/{triggerid}",
        lambda call: call.any_service.disposal_status(call.in_path("triggerid")),
        "what became of a deletion",
        AsynchronousOperationResult[DisposalInfo],
    ),
)
"""In the order in which they are tried: a fixed name before one in braces."""
