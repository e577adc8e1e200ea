"""The OpenAPI document of the REST interface, by hand and small; its paths are held against the routes by a test."""

from __future__ import annotations

from typing import Any

_OBJECT: dict[str, Any] = {"type": "object"}
_JOB = {"name": "jobid", "in": "path", "required": True, "schema": {"type": "string"}}
_TRIGGER = {"name": "triggerid", "in": "path", "required": True, "schema": {"type": "string"}}
_CHECKPOINT = {"name": "cid", "in": "path", "required": True, "schema": {"type": "string"}}
_VERTEX = {"name": "vertex", "in": "path", "required": True, "schema": {"type": "string"}}
MAX_TRIGGER_ID = 200
_TEXT, _FLAG = {"type": ["string", "null"]}, {"type": ["boolean", "null"]}
_ID = {"type": ["string", "null"], "maxLength": MAX_TRIGGER_ID}
_FORMAT = {"type": ["string", "null"], "enum": ["CANONICAL", "NATIVE", None]}

_ERRORS = {
    "description": "what is wrong",
    "content": {
        "application/json": {
            "schema": {
                "type": "object", "required": ["errors"],
                "properties": {"errors": {"type": "array", "items": {"type": "string"}}},
            }
        }
    },
}  # fmt: skip


def document() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "tidegate", "version": "1", "description": "One running job, under Flink's paths and names."},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
        "paths": _PATHS,
    }


def _operation(
    summary: str, *parameters: dict[str, Any], status: str = "200", body: dict[str, Any] | None = None,
    needs: tuple[str, ...] = (),
) -> dict[str, Any]:  # fmt: skip
    made: dict[str, Any] = {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            status: {"description": "done", "content": {"application/json": {"schema": _OBJECT}}},
            **dict.fromkeys(("400", "401", "403", "404", "409", "413", "415"), _ERRORS),
        },
    }  # fmt: skip
    if body is not None:
        schema = {"type": "object", "properties": body, "required": list(needs)}
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return made


_PATHS: dict[str, dict[str, dict[str, Any]]] = {
    "/jobs": {"get": _operation("jobs and their states")},
    "/jobs/overview": {"get": _operation("jobs in a few words")},
    "/jobs/{jobid}": {
        "get": _operation("one job", _JOB),
        "patch": _operation(
            "cancel it", _JOB, {"name": "mode", "in": "query", "schema": {"type": "string", "enum": ["cancel"]}},
            status="202",
        ),
    },
    "/jobs/{jobid}/status": {"get": _operation("its state", _JOB)},
    "/jobs/{jobid}/exceptions": {
        "get": _operation(
            "what went wrong", _JOB,
            {"name": "maxExceptions", "in": "query", "schema": {"type": "integer", "minimum": 0, "maximum": 100_000}},
        )
    },
    "/jobs/{jobid}/checkpoints": {
        "get": _operation("statistics of checkpoints", _JOB),
        "post": _operation(
            "take a checkpoint now", _JOB, status="202",
            body={
                "checkpointType": {"type": ["string", "null"], "enum": ["CONFIGURED", "FULL", "INCREMENTAL", None]},
                "triggerId": _ID,
            },
        ),
    },
    "/jobs/{jobid}/checkpoints/config": {"get": _operation("how checkpoints are taken", _JOB)},
    "/jobs/{jobid}/checkpoints/details/{cid}": {"get": _operation("one checkpoint", _JOB, _CHECKPOINT)},
    "/jobs/{jobid}/checkpoints/details/{cid}/subtasks/{vertex}": {
        "get": _operation("one checkpoint, task by task", _JOB, _CHECKPOINT, _VERTEX)
    },
    "/jobs/{jobid}/checkpoints/{triggerid}": {"get": _operation("what became of a checkpoint", _JOB, _TRIGGER)},
    "/jobs/{jobid}/savepoints": {
        "post": _operation(
            "take a savepoint", _JOB, status="202",
            body={"target-directory": _TEXT, "cancel-job": _FLAG, "formatType": _FORMAT, "triggerId": _ID},
        )
    },
    "/jobs/{jobid}/savepoints/{triggerid}": {"get": _operation("what became of a savepoint", _JOB, _TRIGGER)},
    "/jobs/{jobid}/stop": {
        "post": _operation(
            "stop with a savepoint", _JOB, status="202",
            body={"targetDirectory": _TEXT, "drain": _FLAG, "formatType": _FORMAT, "triggerId": _ID},
        )
    },
    "/savepoint-disposal": {
        "post": _operation(
            "delete a savepoint", status="202", needs=("savepoint-path",),
            body={"savepoint-path": {"type": "string", "minLength": 1}, "triggerId": _ID},
        )
    },
    "/savepoint-disposal/{triggerid}": {"get": _operation("what became of a deletion", _TRIGGER)},
}  # fmt: skip
