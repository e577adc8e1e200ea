"""Every route of the server, and the OpenAPI document that is made of them. Its schemas are generated from `messages`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import msgspec

from tidegate.control.messages.operation import ErrorResponseBody
from tidegate.control.rest.flink_paths import FLINK_PATHS
from tidegate.control.rest.operation import Operation, get
from tidegate.control.rest.own_paths import OWN_PATHS

_REFUSALS = ("400", "401", "403", "404", "409", "413", "415")


@cache
def openapi() -> dict[str, Any]:
    """Return the document of all operations. The caller must not change it."""
    return _document(OPERATIONS)


OPERATIONS: tuple[Operation, ...] = (
    get("/openapi.json", lambda call: openapi()),
    *FLINK_PATHS,
    *OWN_PATHS,
)
"""In the order in which they are tried."""


def _document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document. Operations without a type for their answer are left out."""
    described = [each for each in operations if each.answer is not None]
    bodies = [each.body for each in described if each.body is not None]

    # Each type once, in the order of the paths: schemas are found by type below.
    types = list(dict.fromkeys([ErrorResponseBody, *(each.answer for each in described), *bodies]))
    references, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(types, references))
    paths: dict[str, dict[str, Any]] = {}
    for each in described:
        paths.setdefault(each.path, {})[each.method.lower()] = _described(each, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "tidegate", "version": "1", "description": "One running job, under Flink's paths and names."},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": components},
        "security": [{"token": []}],
        "paths": paths,
    }


def _described(each: Operation, schemas: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    refused = {"description": "what is wrong", "content": _json(schemas[ErrorResponseBody])}
    described: dict[str, Any] = {
        "summary": each.summary,
        "parameters": [*map(_in_path, re.findall(r"{(\w+)}", each.path)), *each.query],
        "responses": {
            str(each.status): {"description": "done", "content": _json(schemas[each.answer])},
            **dict.fromkeys(_REFUSALS, refused),
        },
    }
    if each.body is not None:
        described["requestBody"] = {"required": True, "content": _json(schemas[each.body])}
    return described


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
