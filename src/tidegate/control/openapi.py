"""The OpenAPI document of the REST interface. Its schemas are generated from `messages`; a test compares its paths with the
routes.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import msgspec

from tidegate.autoscaler.trace import ScalingTrace
from tidegate.control.messages import (
    accumulators,
    autoscaler,
    checkpoints,
    cluster,
    job,
    metrics,
    operation,
    plan,
    requests,
    rescales,
    state,
    vertices,
)

_JOB = {"name": "jobid", "in": "path", "required": True, "schema": {"type": "string"}}
_TRIGGER = {"name": "triggerid", "in": "path", "required": True, "schema": {"type": "string"}}
_RESCALE = {"name": "uuid", "in": "path", "required": True, "schema": {"type": "string"}}
_CHECKPOINT = {"name": "cid", "in": "path", "required": True, "schema": {"type": "string"}}
_VERTEX = {"name": "vertex", "in": "path", "required": True, "schema": {"type": "string"}}
_MODE = {"name": "mode", "in": "query", "schema": {"type": "string", "enum": ["cancel"]}}
_UID = {"name": "uid", "in": "path", "required": True, "schema": {"type": "string"}}
_STATE = {"name": "state", "in": "path", "required": True, "schema": {"type": "string"}}
_SNAPSHOT = {"name": "snapshot", "in": "query", "schema": {"type": "string"}}
_KEY = {"name": "key", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}}
_LIMIT = {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 1000}}
_GET = {"name": "get", "in": "query", "schema": {"type": "string"}}
"""Ids of metrics, separated by commas. Without it, a list of all ids is answered."""
_AGG = {"name": "agg", "in": "query", "schema": {"type": "string", "pattern": r"^((min|max|avg|sum|skew)(,|$))*$"}}
_MAX_EXCEPTIONS = {
    "name": "maxExceptions",
    "in": "query",
    "schema": {"type": "integer", "minimum": 0, "maximum": 100_000},
}


@dataclass(frozen=True, slots=True)
class _Operation:
    """One verb of a path. Requests that trigger something are answered with 202, all others with 200."""

    summary: str
    answer: Any
    _: KW_ONLY
    parameters: tuple[dict[str, Any], ...] = ()
    body: Any = None
    status: int = 200


def _trigger(summary: str, body: type[msgspec.Struct], *parameters: dict[str, Any]) -> _Operation:
    return _Operation(summary, operation.TriggerResponse, parameters=parameters, body=body, status=202)


def _vertex(summary: str, answer: Any, *parameters: dict[str, Any]) -> dict[str, _Operation]:
    return {"get": _Operation(summary, answer, parameters=(_JOB, _VERTEX, *parameters))}


_PATHS: dict[str, dict[str, _Operation]] = {
    "/overview": {"get": _Operation("hosts, slots and jobs", cluster.ClusterOverview)},
    "/config": {"get": _Operation("how Flink's dashboard behaves", cluster.DashboardConfiguration)},
    "/taskmanagers": {"get": _Operation("hosts that run tasks", cluster.TaskManagersInfo)},
    "/taskmanagers/metrics": {
        "get": _Operation("metrics of hosts", list[metrics.AggregatedMetric], parameters=(_GET, _AGG))
    },
    "/jobmanager/metrics": {"get": _Operation("metrics of the driver", list[metrics.MetricValue], parameters=(_GET,))},
    "/jobs/metrics": {"get": _Operation("metrics of jobs", list[metrics.AggregatedMetric], parameters=(_GET, _AGG))},
    "/jobs": {"get": _Operation("jobs and their states", job.JobIdsWithStatusOverview)},
    "/jobs/overview": {"get": _Operation("jobs in a few words", job.MultipleJobsDetails)},
    "/jobs/{jobid}": {
        "get": _Operation("one job", job.JobDetailsInfo, parameters=(_JOB,)),
        "patch": _Operation("cancel it", operation.EmptyResponseBody, parameters=(_JOB, _MODE), status=202),
    },
    "/jobs/{jobid}/status": {"get": _Operation("its state", job.JobStatusInfo, parameters=(_JOB,))},
    "/jobs/{jobid}/exceptions": {
        "get": _Operation("what went wrong", job.JobExceptionsInfo, parameters=(_JOB, _MAX_EXCEPTIONS))
    },
    "/jobs/{jobid}/config": {"get": _Operation("how it runs", cluster.JobConfigInfo, parameters=(_JOB,))},
    "/jobs/{jobid}/jobmanager/config": {
        "get": _Operation("all options", list[cluster.ConfigurationEntry], parameters=(_JOB,))
    },
    "/jobs/{jobid}/plan": {"get": _Operation("its vertices", plan.JobPlanInfo, parameters=(_JOB,))},
    "/jobs/{jobid}/accumulators": {
        "get": _Operation("always empty", accumulators.JobAccumulatorsInfo, parameters=(_JOB,))
    },
    "/jobs/{jobid}/metrics": {
        "get": _Operation("metrics of the job", list[metrics.MetricValue], parameters=(_JOB, _GET))
    },
    "/jobs/{jobid}/vertices/{vertex}": _vertex("one vertex, task by task", vertices.JobVertexDetailsInfo),
    "/jobs/{jobid}/vertices/{vertex}/accumulators": _vertex("always empty", accumulators.JobVertexAccumulatorsInfo),
    "/jobs/{jobid}/vertices/{vertex}/backpressure": _vertex(
        "how long its tasks are held, idle and busy", vertices.JobVertexBackPressureInfo
    ),
    "/jobs/{jobid}/vertices/{vertex}/metrics": _vertex(
        "metrics of its tasks and operators", list[metrics.MetricValue], _GET
    ),
    "/jobs/{jobid}/vertices/{vertex}/subtasks/accumulators": _vertex(
        "always empty", accumulators.SubtasksAllAccumulatorsInfo
    ),
    "/jobs/{jobid}/vertices/{vertex}/subtasks/metrics": _vertex(
        "metrics of its tasks, aggregated", list[metrics.AggregatedMetric], _GET, _AGG
    ),
    "/jobs/{jobid}/vertices/{vertex}/subtasktimes": _vertex("since when its tasks run", vertices.SubtasksTimesInfo),
    "/jobs/{jobid}/vertices/{vertex}/taskmanagers": _vertex("its tasks by host", vertices.JobVertexTaskManagersInfo),
    "/jobs/{jobid}/vertices/{vertex}/watermarks": _vertex("watermarks of its tasks", list[metrics.MetricValue]),
    "/jobs/{jobid}/checkpoints": {
        "get": _Operation("statistics of checkpoints", checkpoints.CheckpointingStatistics, parameters=(_JOB,)),
        "post": _trigger("take a checkpoint now", requests.CheckpointTriggerRequest, _JOB),
    },
    "/jobs/{jobid}/checkpoints/config": {
        "get": _Operation("how checkpoints are taken", checkpoints.CheckpointConfigInfo, parameters=(_JOB,))
    },
    "/jobs/{jobid}/checkpoints/details/{cid}": {
        "get": _Operation("one checkpoint", checkpoints.AnyCheckpointStatistics, parameters=(_JOB, _CHECKPOINT))
    },
    "/jobs/{jobid}/checkpoints/details/{cid}/subtasks/{vertex}": {
        "get": _Operation(
            "one checkpoint, task by task",
            checkpoints.TaskCheckpointStatisticsWithSubtasks,
            parameters=(_JOB, _CHECKPOINT, _VERTEX),
        )
    },
    "/jobs/{jobid}/checkpoints/{triggerid}": {
        "get": _Operation(
            "what became of a checkpoint",
            operation.AsynchronousOperationResult[operation.CheckpointInfo],
            parameters=(_JOB, _TRIGGER),
        )
    },
    "/jobs/{jobid}/report": {
        "get": _Operation("all that pages show, in tidegate's own form", dict[str, Any], parameters=(_JOB,))
    },
    "/jobs/{jobid}/autoscaler": {
        "get": _Operation("the parallelism that it recommends, and why", autoscaler.AutoscalerInfo, parameters=(_JOB,))
    },
    "/jobs/{jobid}/autoscaler/trace": {
        "get": _Operation("what it has seen, to be replayed", ScalingTrace, parameters=(_JOB,))
    },
    "/jobs/{jobid}/snapshots": {
        "get": _Operation("retained checkpoints and savepoints", state.SnapshotList, parameters=(_JOB,))
    },
    "/jobs/{jobid}/snapshots/check": {
        "get": _Operation(
            "whether the files of a snapshot are there", state.SnapshotCheck, parameters=(_JOB, _SNAPSHOT)
        )
    },
    "/jobs/{jobid}/state": {
        "get": _Operation("the states in a snapshot", state.StateOverview, parameters=(_JOB, _SNAPSHOT))
    },
    "/jobs/{jobid}/state/{uid}/lookup": {
        "get": _Operation("what is stored for one key", state.KeyLookup, parameters=(_JOB, _UID, _KEY, _SNAPSHOT))
    },
    "/jobs/{jobid}/state/{uid}/{state}/entries": {
        "get": _Operation(
            "the first entries of a state",
            state.StateEntries,
            parameters=(_JOB, _UID, _STATE, _LIMIT, _SNAPSHOT),
        )
    },
    "/jobs/{jobid}/savepoints": {"post": _trigger("take a savepoint", requests.SavepointTriggerRequest, _JOB)},
    "/jobs/{jobid}/savepoints/{triggerid}": {
        "get": _Operation(
            "what became of a savepoint",
            operation.AsynchronousOperationResult[operation.SavepointInfo],
            parameters=(_JOB, _TRIGGER),
        )
    },
    "/jobs/{jobid}/stop": {"post": _trigger("stop with a savepoint", requests.StopWithSavepointRequest, _JOB)},
    "/jobs/{jobid}/resource-requirements": {
        "get": _Operation("its parallelism", dict[str, rescales.JobVertexResourceRequirements], parameters=(_JOB,)),
        "put": _Operation(
            "change its parallelism",
            operation.EmptyResponseBody,
            parameters=(_JOB,),
            body=dict[str, rescales.JobVertexResourceRequirements],
        ),
    },
    "/jobs/{jobid}/rescales/overview": {
        "get": _Operation("how many rescales, and the latest", rescales.JobRescalesOverview, parameters=(_JOB,))
    },
    "/jobs/{jobid}/rescales/history": {
        "get": _Operation("the last rescales, newest first", list[rescales.JobRescaleDetails], parameters=(_JOB,))
    },
    "/jobs/{jobid}/rescales/summary": {
        "get": _Operation("how long rescales take", rescales.JobRescalesSummary, parameters=(_JOB,))
    },
    "/jobs/{jobid}/rescales/config": {
        "get": _Operation("how rescales are remembered", rescales.JobRescaleConfigInfo, parameters=(_JOB,))
    },
    "/jobs/{jobid}/rescales/details/{uuid}": {
        "get": _Operation("one rescale, phase by phase", rescales.JobRescaleDetails, parameters=(_JOB, _RESCALE))
    },
    "/savepoint-disposal": {"post": _trigger("delete a savepoint", requests.SavepointDisposalRequest)},
    "/savepoint-disposal/{triggerid}": {
        "get": _Operation(
            "what became of a deletion",
            operation.AsynchronousOperationResult[operation.DisposalInfo],
            parameters=(_TRIGGER,),
        )
    },
}
_REFUSALS = ("400", "401", "403", "404", "409", "413", "415")


@cache
def document() -> dict[str, Any]:
    """The whole document. The caller must not change it."""
    operations = [each for verbs in _PATHS.values() for each in verbs.values()]
    bodies = [each.body for each in operations if each.body is not None]
    types = list(dict.fromkeys([operation.ErrorResponseBody, *(each.answer for each in operations), *bodies]))
    found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(types, found))
    return {
        "openapi": "3.1.0",
        "info": {"title": "tidegate", "version": "1", "description": "One running job, under Flink's paths and names."},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": components},
        "security": [{"token": []}],
        "paths": {
            path: {verb: _described(each, schemas) for verb, each in verbs.items()} for path, verbs in _PATHS.items()
        },
    }


def _described(each: _Operation, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    refused = {"description": "what is wrong", "content": _json(schemas[operation.ErrorResponseBody])}
    described: dict[str, Any] = {
        "summary": each.summary,
        "parameters": list(each.parameters),
        "responses": {
            str(each.status): {"description": "done", "content": _json(schemas[each.answer])},
            **dict.fromkeys(_REFUSALS, refused),
        },
    }
    if each.body is not None:
        described["requestBody"] = {"required": True, "content": _json(schemas[each.body])}
    return described


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
