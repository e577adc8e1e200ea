"""Flink's paths, and what is answered there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from tidegate.control import cluster
from tidegate.control.job_errors import NotFound, NotPossible
from tidegate.control.messages import requests
from tidegate.control.messages.accumulators import JobAccumulatorsInfo
from tidegate.control.messages.job import JobIdsWithStatusOverview, JobIdWithStatus, MultipleJobsDetails
from tidegate.control.messages.operation import EmptyResponseBody, TriggerResponse
from tidegate.control.messages.plan import JobPlanInfo
from tidegate.control.messages.rescales import JobVertexResourceRequirements
from tidegate.control.metric_report import AGGREGATES
from tidegate.control.openapi import document
from tidegate.control.own_paths import ServedJobs
from tidegate.control.plan import Vertex
from tidegate.control.reported_job import ReportedJob
from tidegate.control.rescale_report import RescaleReport
from tidegate.control.service import JobService
from tidegate.control.vertices import JobVertices
from tidegate.core.errors import TidegateError

Body = dict[str, Any]
Act = Callable[[Request, Body], object]
B = TypeVar("B", bound=msgspec.Struct)


_REQUIREMENTS = (
    'A body is {"level-1": {"parallelism": {"lowerBound": 1, "upperBound": 4}}}, with every vertex of the job.'
)


class BadRequest(TidegateError):
    code = "BAD_REQUEST"


def flink_paths(jobs: ServedJobs) -> list[tuple[str, str, Act, int]]:
    """Path, verb, what is done, and the status of the answer if it succeeds."""
    found: list[tuple[str, str, Act, int]] = []

    def add(path: str, method: str, act: Act, status: int = 200) -> None:
        found.append((path, method, act, status))

    def job(request: Request) -> ReportedJob:
        return jobs.find(request.path_params["jobid"])

    def running(request: Request) -> JobService:
        return _running(job(request))

    def take_checkpoint(request: Request, body: Body) -> TriggerResponse:
        found, asked = running(request), _decoded(body, requests.CheckpointTriggerRequest)
        return TriggerResponse(found.trigger_checkpoint(asked.trigger_id or None, asked.full))

    def take_savepoint(request: Request, body: Body) -> TriggerResponse:
        found, asked = running(request), _decoded(body, requests.SavepointTriggerRequest)
        target, cancel, trigger_id = asked.target_directory or None, bool(asked.cancel_job), asked.trigger_id or None
        return TriggerResponse(found.trigger_savepoint(target, cancel, trigger_id, asked.format))

    def stop(request: Request, body: Body) -> TriggerResponse:
        found, asked = running(request), _decoded(body, requests.StopWithSavepointRequest)
        target, drain, trigger_id = asked.target_directory or None, bool(asked.drain), asked.trigger_id or None
        return TriggerResponse(found.trigger_stop(target, trigger_id, drain, asked.format))

    def dispose(request: Request, body: Body) -> TriggerResponse:
        asked = _decoded(body, requests.SavepointDisposalRequest)
        return TriggerResponse(_running(*jobs.all()).trigger_disposal(asked.savepoint_path, asked.trigger_id or None))

    def rescales(request: Request) -> RescaleReport:
        return RescaleReport(job(request).report())

    def require(request: Request, body: Body) -> EmptyResponseBody:
        found = running(request)
        try:
            asked = msgspec.convert(body, dict[str, JobVertexResourceRequirements])
        except msgspec.ValidationError as error:
            raise BadRequest(f"{error}. {_REQUIREMENTS}") from error
        found.rescale(asked)
        return EmptyResponseBody()

    add("/openapi.json", "GET", lambda r, b: document())
    add("/metrics", "GET", lambda r, b: _running(*jobs.all()).metrics())
    add("/overview", "GET", lambda r, b: _cluster(jobs).overview())
    add("/config", "GET", lambda r, b: cluster.dashboard())
    add("/taskmanagers", "GET", lambda r, b: _cluster(jobs).task_managers())
    add("/taskmanagers/metrics", "GET", lambda r, b: _cluster(jobs).host_metrics(_asked(r), _aggregates(r)))
    add("/jobmanager/metrics", "GET", lambda r, b: _cluster(jobs).driver_metrics(_asked(r)))
    add("/jobs", "GET", lambda r, b: _jobs(jobs))
    add(
        "/jobs/metrics",
        "GET",
        lambda r, b: cluster.metrics_of_jobs([each.samples() for each in jobs.all()], _asked(r), _aggregates(r)),
    )
    add("/jobs/overview", "GET", lambda r, b: MultipleJobsDetails([each.overview() for each in jobs.all()]))
    add("/jobs/{jobid}", "GET", lambda r, b: job(r).details())
    add("/jobs/{jobid}", "PATCH", lambda r, b: _cancel(running(r), r), 202)
    add("/jobs/{jobid}/status", "GET", lambda r, b: job(r).status())
    add("/jobs/{jobid}/exceptions", "GET", lambda r, b: job(r).exceptions(_most(r)))
    add("/jobs/{jobid}/config", "GET", lambda r, b: cluster.job_config(job(r).report()))
    add("/jobs/{jobid}/jobmanager/config", "GET", lambda r, b: cluster.all_options(job(r).report()))
    add("/jobs/{jobid}/plan", "GET", lambda r, b: JobPlanInfo(_vertices(job(r)).plan()))
    add("/jobs/{jobid}/accumulators", "GET", lambda r, b: _accumulators(job(r)))
    add("/jobs/{jobid}/metrics", "GET", lambda r, b: cluster.job_metrics(job(r).samples(), _asked(r)))
    for path, read in _VERTEX_PATHS.items():
        add(f"/jobs/{{jobid}}/vertices/{{vertex}}{path}", "GET", _of_vertex(job, read))
    add("/jobs/{jobid}/checkpoints", "GET", lambda r, b: job(r).checkpoints())
    add("/jobs/{jobid}/checkpoints", "POST", take_checkpoint, 202)
    add("/jobs/{jobid}/checkpoints/config", "GET", lambda r, b: job(r).config())
    add("/jobs/{jobid}/checkpoints/details/{cid}", "GET", lambda r, b: job(r).checkpoint(_number(r, "cid")))
    add(
        "/jobs/{jobid}/checkpoints/details/{cid}/subtasks/{vertex}",
        "GET",
        lambda r, b: job(r).subtasks(_number(r, "cid"), r.path_params["vertex"]),
    )
    add(
        "/jobs/{jobid}/checkpoints/{triggerid}",
        "GET",
        lambda r, b: running(r).checkpoint_status(r.path_params["triggerid"]),
    )
    add("/jobs/{jobid}/savepoints", "POST", take_savepoint, 202)
    add(
        "/jobs/{jobid}/savepoints/{triggerid}",
        "GET",
        lambda r, b: running(r).savepoint_status(r.path_params["triggerid"]),
    )
    add("/jobs/{jobid}/stop", "POST", stop, 202)
    add("/jobs/{jobid}/resource-requirements", "GET", lambda r, b: rescales(r).requirements())
    add("/jobs/{jobid}/resource-requirements", "PUT", require)
    add("/jobs/{jobid}/rescales/overview", "GET", lambda r, b: rescales(r).overview())
    add("/jobs/{jobid}/rescales/history", "GET", lambda r, b: rescales(r).history())
    add("/jobs/{jobid}/rescales/summary", "GET", lambda r, b: rescales(r).summary())
    add("/jobs/{jobid}/rescales/config", "GET", lambda r, b: rescales(r).config())
    add("/jobs/{jobid}/rescales/details/{uuid}", "GET", lambda r, b: rescales(r).details(r.path_params["uuid"]))
    add("/savepoint-disposal", "POST", dispose, 202)
    add(
        "/savepoint-disposal/{triggerid}",
        "GET",
        lambda r, b: _running(*jobs.all()).disposal_status(r.path_params["triggerid"]),
    )
    return found


ReadVertex = Callable[[JobVertices, Vertex, Request], object]
_VERTEX_PATHS: dict[str, ReadVertex] = {
    "": lambda found, vertex, r: found.details(vertex),
    "/accumulators": lambda found, vertex, r: found.accumulators(vertex),
    "/backpressure": lambda found, vertex, r: found.back_pressure(vertex),
    "/metrics": lambda found, vertex, r: found.metrics(vertex, _asked(r)),
    "/subtasks/accumulators": lambda found, vertex, r: found.subtask_accumulators(vertex),
    "/subtasks/metrics": lambda found, vertex, r: found.subtask_metrics(vertex, _asked(r), _aggregates(r)),
    "/subtasktimes": lambda found, vertex, r: found.times(vertex),
    "/taskmanagers": lambda found, vertex, r: found.task_managers(vertex),
    "/watermarks": lambda found, vertex, r: found.watermarks(vertex),
}
"""Below the path of a vertex."""


def _of_vertex(job: Callable[[Request], ReportedJob], read: ReadVertex) -> Act:
    def act(request: Request, body: Body) -> object:
        asked, id = job(request), request.path_params["vertex"]
        found = _vertices(asked)
        vertex = found.find(id)
        if vertex is None:
            raise NotFound(f"Job {asked.id} has no vertex {id!r}. /jobs/{asked.id} lists those it has.")
        return read(found, vertex, request)

    return act


def _vertices(job: ReportedJob) -> JobVertices:
    return JobVertices(job.report(), job.samples())


def _accumulators(job: ReportedJob) -> JobAccumulatorsInfo:
    return JobAccumulatorsInfo()


def _cluster(jobs: ServedJobs) -> cluster.ClusterView:
    return cluster.ClusterView([each.report() for each in jobs.all()])


def _asked(request: Request) -> list[str] | None:
    """The ids of metrics in `get`; None if it is missing, for a list of all ids."""
    text = request.query_params.get("get")
    return None if text is None else [name for name in text.split(",") if name]


def _aggregates(request: Request) -> list[str]:
    """Those in `agg`, or all."""
    chosen = [name for name in request.query_params.get("agg", "").split(",") if name]
    if not set(chosen) <= AGGREGATES.keys():
        raise BadRequest(f"agg is a list of {', '.join(AGGREGATES)}.")
    return chosen or list(AGGREGATES)


def _decoded(body: Body, kind: type[B]) -> B:
    try:
        return requests.decode(body, kind)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _number(request: Request, name: str) -> int:
    text = str(request.path_params[name])
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise BadRequest(f"{text!r} is not a number.")
    return int(text)


def _most(request: Request) -> int:
    text = request.query_params.get("maxExceptions", "20")
    if not (text.isascii() and text.isdigit()) or len(text) > 9:
        raise BadRequest("maxExceptions must be a number.")
    return int(text)


def _jobs(jobs: ServedJobs) -> JobIdsWithStatusOverview:
    return JobIdsWithStatusOverview([JobIdWithStatus(each.id, each.status().status) for each in jobs.all()])


def _running(*jobs: ReportedJob) -> JobService:
    """The job that this process runs, which can be told to do something."""
    for job in jobs:
        if isinstance(job, JobService):
            return job
    raise NotPossible("No driver of the job answers here: it is read from storage. Ask the REST server of its driver.")


def _cancel(service: JobService, request: Request) -> EmptyResponseBody:
    mode = request.query_params.get("mode", "cancel")
    if mode != "cancel":
        raise BadRequest("mode is cancel. To end a job with a savepoint, POST to …/stop.")
    service.cancel()
    return EmptyResponseBody()
