"""Paths that Flink does not have: the whole report of a job, its autoscaler, its snapshots, and what is in its state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from tidegate.control.export import FORMATS, UnknownFormat
from tidegate.control.job_snapshots import JobSnapshots
from tidegate.control.reported_job import ReportedJob

_POLL_S = 0.5
_STREAM_S = 20.0
"""A stream of events ends by itself, and the client asks again: no request holds a connection for longer than its limit."""

Act = Callable[[Request, dict[str, Any]], object]


class ServedJobs(Protocol):
    """The jobs that a server answers for."""

    def all(self) -> list[ReportedJob]: ...

    def find(self, job: str) -> ReportedJob:
        """The job with this id or name. Raises `NotFound`."""
        ...


def own_paths(jobs: ServedJobs, allow_actions: bool) -> dict[str, Act]:
    """What is answered to a GET, by path."""

    def job(request: Request) -> ReportedJob:
        return jobs.find(request.path_params["jobid"])

    def path(request: Request) -> str | None:
        return request.query_params.get("snapshot") or None

    return {
        "/jobs/{jobid}/report": lambda r, b: job(r).full_report(allow_actions),
        "/jobs/{jobid}/autoscaler": lambda r, b: job(r).autoscaler(),
        "/jobs/{jobid}/autoscaler/trace": lambda r, b: job(r).scaling().trace,
        "/jobs/{jobid}/snapshots": lambda r, b: job(r).snapshots().listed(),
        "/jobs/{jobid}/snapshots/check": lambda r, b: job(r).snapshots().check(path(r)),
        "/jobs/{jobid}/state": lambda r, b: job(r).snapshots().state(path(r)),
        "/jobs/{jobid}/state/{uid}/lookup": lambda r, b: (
            job(r).snapshots().look_up(r.path_params["uid"], r.query_params.getlist("key"), path(r))
        ),
        "/jobs/{jobid}/state/{uid}/{state}/entries": lambda r, b: (
            job(r).snapshots().entries(r.path_params["uid"], r.path_params["state"], _limit(r), path(r))
        ),
        "/jobs/{jobid}/state/{uid}/{state}/export": lambda r, b: _exported(job(r).snapshots(), r, path(r)),
    }


def _limit(request: Request) -> int:
    text = request.query_params.get("limit", "20")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 20


def _exported(snapshots: JobSnapshots, request: Request, snapshot: str | None) -> Response:
    """A file of all entries of a state. It is written whole before the first byte is sent, so nobody takes a part for all."""
    uid, state = request.path_params["uid"], request.path_params["state"]
    format = request.query_params.get("format", "csv")
    if format not in FORMATS:
        raise UnknownFormat(f"entries.{format}")
    folder = TemporaryDirectory(prefix="tidegate-export-")
    target = Path(folder.name) / f"entries.{format}"
    try:
        snapshots.export(uid, state, str(target), snapshot)
    except BaseException:
        folder.cleanup()
        raise
    name = f"{uid}-{state}{target.suffix}"
    return FileResponse(target, filename=name, background=BackgroundTask(folder.cleanup))


def events(jobs: ServedJobs, request: Request) -> Response:
    """Server-sent events: one whenever an epoch, a checkpoint or the status of the job has changed. Raises `NotFound`."""
    job = jobs.find(request.path_params["jobid"])
    return StreamingResponse(
        _changes(job, request), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def _changes(job: ReportedJob, request: Request) -> AsyncIterator[bytes]:
    yield b": tells when something has changed; ask for the report then\n\n"
    told: object = None
    for _ in range(round(_STREAM_S / _POLL_S)):
        version = await asyncio.to_thread(job.version)
        if version != told:
            told = version
            yield f"event: changed\ndata: {json.dumps({'epoch': version[0]})}\n\n".encode()
        await asyncio.sleep(_POLL_S)
        if await request.is_disconnected():
            return
