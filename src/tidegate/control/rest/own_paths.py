"""Paths that Flink does not have: the whole report of a job, its autoscaler, its snapshots, and what is in its state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from tidegate.autoscaler.trace import ScalingTrace
from tidegate.control.jobs.export import FORMATS, UnknownFormat
from tidegate.control.jobs.reported_job import ReportedJob
from tidegate.control.messages.autoscaler import AutoscalerInfo
from tidegate.control.messages.state import KeyLookup, SnapshotCheck, SnapshotList, StateEntries, StateOverview
from tidegate.control.rest.operation import Call, Operation, get

_POLL_S = 0.5
_STREAM_S = 20.0
"""A stream of events ends by itself, and the client asks again: no request holds a connection for longer than its limit."""

_SNAPSHOT = {"name": "snapshot", "in": "query", "schema": {"type": "string"}}
_KEY = {"name": "key", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}}
_LIMIT = {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 1000}}


def _snapshot(call: Call) -> str | None:
    return call.in_query("snapshot") or None


def _look_up(call: Call) -> object:
    keys = call.request.query_params.getlist("key")
    return call.job.snapshots().look_up(call.in_path("uid"), keys, _snapshot(call))


def _entries(call: Call) -> object:
    snapshots = call.job.snapshots()
    return snapshots.entries(call.in_path("uid"), call.in_path("state"), _limit(call), _snapshot(call))


def _limit(call: Call) -> int:
    text = call.request.query_params.get("limit", "20")
    # A limit that cannot be read is the default: it only decides how much is shown.
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 20


def _export(call: Call) -> Response:
    """Return a file of all entries of a state. It is written whole before the first byte is sent, so a client never takes a
    part for the whole."""
    snapshots = call.job.snapshots()
    snapshot = _snapshot(call)
    uid = call.in_path("uid")
    state = call.in_path("state")
    format = call.request.query_params.get("format", "csv")
    if format not in FORMATS:
        raise UnknownFormat(f"entries.{format}")
    folder = TemporaryDirectory(prefix="tidegate-export-")

    # The format is in the suffix, by which `export_state` chooses the writer.
    target = Path(folder.name) / f"entries.{format}"
    try:
        snapshots.export(uid, state, str(target), snapshot)
    except BaseException:
        folder.cleanup()
        raise
    name = f"{uid}-{state}{target.suffix}"
    return FileResponse(target, filename=name, background=BackgroundTask(folder.cleanup))


def _events(call: Call) -> Response:
    """Server-sent events: one whenever an epoch, a checkpoint or the status of the job has changed. Raises `NotFound`."""
    return StreamingResponse(
        _changes(call.job, call.request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _changes(job: ReportedJob, request: Request) -> AsyncIterator[bytes]:
    yield b": an event for each change; ask for the report then\n\n"
    reported: object = None
    for _ in range(round(_STREAM_S / _POLL_S)):
        # The version of a stored job is read from storage, which must not hold up the other connections.
        version = await asyncio.to_thread(job.version)
        if version != reported:
            reported = version
            yield f"event: changed\ndata: {json.dumps({'epoch': version[0]})}\n\n".encode()
        await asyncio.sleep(_POLL_S)
        if await request.is_disconnected():
            return


OWN_PATHS: tuple[Operation, ...] = (
    get(
        "/jobs/{jobid}/report",
        lambda call: call.job.full_report(call.pages_may_act),
        "all that pages show, in tidegate's own form",
        dict[str, Any],
    ),
    get(
        "/jobs/{jobid}/autoscaler",
        lambda call: call.job.autoscaler(),
        "the parallelism that it recommends, and why",
        AutoscalerInfo,
    ),
    get(
        "/jobs/{jobid}/autoscaler/trace",
        lambda call: call.job.scaling().trace,
        "what it has seen, to be replayed",
        ScalingTrace,
    ),
    get(
        "/jobs/{jobid}/snapshots",
        lambda call: call.job.snapshots().listed(),
        "retained checkpoints and savepoints",
        SnapshotList,
    ),
    get(
        "/jobs/{jobid}/snapshots/check",
        lambda call: call.job.snapshots().check(_snapshot(call)),
        "whether the files of a snapshot are there",
        SnapshotCheck,
        _SNAPSHOT,
    ),
    get(
        "/jobs/{jobid}/state",
        lambda call: call.job.snapshots().state(_snapshot(call)),
        "the states in a snapshot",
        StateOverview,
        _SNAPSHOT,
    ),
    get(
        "/jobs/{jobid}/state/{uid}/lookup",
        _look_up,
        "what is stored for one key",
        KeyLookup,
        _KEY,
        _SNAPSHOT,
    ),
    get(
        "/jobs/{jobid}/state/{uid}/{state}/entries",
        _entries,
        "the first entries of a state",
        StateEntries,
        _LIMIT,
        _SNAPSHOT,
    ),
    get("/jobs/{jobid}/state/{uid}/{state}/export", _export),
    get("/jobs/{jobid}/events", _events),
)
