"""REST in the driver, with Flink's paths, verbs and field names; optional prefix `/v1`. Loopback unless told otherwise.

Who may call is decided in `request_checks`, and what callers can hold in `connection_limits`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from tidegate.control.access_token import TokenFile, given_token, new_token
from tidegate.control.messages import requests
from tidegate.control.messages.job import JobIdsWithStatusOverview, JobIdWithStatus, MultipleJobsDetails
from tidegate.control.messages.operation import EmptyResponseBody, ErrorResponseBody, TriggerResponse
from tidegate.control.openapi import document
from tidegate.control.request_checks import MAX_BODY_BYTES, AllowedHosts, RequestChecks, json_response
from tidegate.control.service import JobService, NotFound, NotPossible
from tidegate.core.errors import PreconditionFailed, TidegateError
from tidegate.core.redaction import redacted

if TYPE_CHECKING:
    from tidegate.control.connection_limits import ConnectionLimits
    from tidegate.runtime.driver.job_run import JobRun

log = logging.getLogger("tidegate")
LOOPBACK = "127.0.0.1"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text format that Prometheus reads."""


Body = dict[str, Any]
Act = Callable[[Request, Body], object]
B = TypeVar("B", bound=msgspec.Struct)


class BadRequest(TidegateError):
    code = "BAD_REQUEST"


def application(
    service: JobService,
    token: str | None = None,
    hosts: AllowedHosts | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> Starlette:
    """The routes over one job. With a token, every request must bear it. `hosts` are loopback names unless given."""

    acts: dict[str, dict[str, tuple[Act, int]]] = {}

    def answer(path: str, method: str, act: Act, status: int = 200) -> None:
        acts.setdefault(path, {})[method] = (act, status)

    def route(path: str, by_method: dict[str, tuple[Act, int]]) -> Route:
        async def endpoint(request: Request) -> Response:
            method = "GET" if request.method == "HEAD" else request.method
            act, status = by_method[method]
            try:
                body = await _body(request) if method in ("POST", "PATCH") else {}
                result = await asyncio.to_thread(act, request, body)
            except (NotFound, BadRequest, NotPossible) as error:
                return _errors({NotFound: 404, BadRequest: 400, NotPossible: 409}[type(error)], str(error))
            except TidegateError as error:
                return _errors(400, str(error))
            if isinstance(result, bytes):
                return Response(result, status, media_type=CONTENT_TYPE)
            return json_response(result, status)

        return Route(path, endpoint, methods=list(by_method))

    def job(request: Request) -> JobService:
        return service.check(request.path_params["jobid"])

    def take_checkpoint(request: Request, body: Body) -> TriggerResponse:
        found, asked = job(request), _decoded(body, requests.CheckpointTriggerRequest)
        return TriggerResponse(found.trigger_checkpoint(asked.trigger_id or None, asked.full))

    def take_savepoint(request: Request, body: Body) -> TriggerResponse:
        found, asked = job(request), _decoded(body, requests.SavepointTriggerRequest)
        target, cancel, trigger_id = asked.target_directory or None, bool(asked.cancel_job), asked.trigger_id or None
        return TriggerResponse(found.trigger_savepoint(target, cancel, trigger_id, asked.format))

    def stop(request: Request, body: Body) -> TriggerResponse:
        found, asked = job(request), _decoded(body, requests.StopWithSavepointRequest)
        target, drain, trigger_id = asked.target_directory or None, bool(asked.drain), asked.trigger_id or None
        return TriggerResponse(found.trigger_stop(target, trigger_id, drain, asked.format))

    def dispose(request: Request, body: Body) -> TriggerResponse:
        asked = _decoded(body, requests.SavepointDisposalRequest)
        return TriggerResponse(service.trigger_disposal(asked.savepoint_path, asked.trigger_id or None))

    answer("/openapi.json", "GET", lambda r, b: document())
    answer("/metrics", "GET", lambda r, b: service.metrics())
    answer("/jobs", "GET", lambda r, b: _jobs(service))
    answer("/jobs/overview", "GET", lambda r, b: MultipleJobsDetails([service.overview()]))
    answer("/jobs/{jobid}", "GET", lambda r, b: job(r).details())
    answer("/jobs/{jobid}", "PATCH", lambda r, b: _cancel(job(r), r), 202)
    answer("/jobs/{jobid}/status", "GET", lambda r, b: job(r).status())
    answer("/jobs/{jobid}/exceptions", "GET", lambda r, b: job(r).exceptions(_most(r)))
    answer("/jobs/{jobid}/checkpoints", "GET", lambda r, b: job(r).checkpoints())
    answer("/jobs/{jobid}/checkpoints", "POST", take_checkpoint, 202)
    answer("/jobs/{jobid}/checkpoints/config", "GET", lambda r, b: job(r).config())
    answer("/jobs/{jobid}/checkpoints/details/{cid}", "GET", lambda r, b: job(r).checkpoint(_number(r, "cid")))
    answer(
        "/jobs/{jobid}/checkpoints/details/{cid}/subtasks/{vertex}",
        "GET",
        lambda r, b: job(r).subtasks(_number(r, "cid"), r.path_params["vertex"]),
    )
    answer(
        "/jobs/{jobid}/checkpoints/{triggerid}",
        "GET",
        lambda r, b: job(r).checkpoint_status(r.path_params["triggerid"]),
    )
    answer("/jobs/{jobid}/savepoints", "POST", take_savepoint, 202)
    answer(
        "/jobs/{jobid}/savepoints/{triggerid}",
        "GET",
        lambda r, b: job(r).savepoint_status(r.path_params["triggerid"]),
    )
    answer("/jobs/{jobid}/stop", "POST", stop, 202)
    answer("/savepoint-disposal", "POST", dispose, 202)
    answer("/savepoint-disposal/{triggerid}", "GET", lambda r, b: service.disposal_status(r.path_params["triggerid"]))
    routes: list[BaseRoute] = [route(path, by_method) for path, by_method in acts.items()]
    checks = Middleware(
        RequestChecks, hosts=hosts or AllowedHosts.of(LOOPBACK), token=token, max_body_bytes=max_body_bytes
    )
    return Starlette(routes=[*routes, Mount("/v1", routes=routes)], middleware=[checks])


class RestServer:
    """Serves one job until closed. `url` tells where; port 0 takes a free one.

    Every request must bear the token: `token`, else the variable TIDEGATE_TOKEN, else one that is made for this server and
    kept in `token_files`, which only this user can read. `allowed_hosts` are names that the server answers to besides its
    own, such as that of a proxy.
    """

    def __init__(
        self, run: JobRun, *, host: str = LOOPBACK, port: int = 0, token: str | None = None,
        allowed_hosts: Iterable[str] = (), limits: ConnectionLimits | None = None,
    ) -> None:  # fmt: skip
        import uvicorn

        from tidegate.control.connection_limits import ConnectionLimits, bounded_protocol

        limits = limits or ConnectionLimits()
        chosen = given_token(token)
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            raise PreconditionFailed(
                f"REST cannot listen on {host}:{port} ({error}). Choose another rest.port; 0 is any."
            ) from None
        # From here on a caller is kept waiting, not refused, until the server has started.
        self._socket.listen(128)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        self.token = chosen or new_token()
        self._service = JobService(run)
        config = uvicorn.Config(
            application(self._service, self.token, AllowedHosts.of(host, allowed_hosts), limits.body_bytes),
            http=bounded_protocol(limits), ws="none", h11_max_incomplete_event_size=limits.head_bytes,
            timeout_graceful_shutdown=5, proxy_headers=False, server_header=False, log_level="warning", lifespan="off",
        )  # fmt: skip
        try:
            self._kept = None if chosen else TokenFile.write(self.token, host, self.port)
        except PreconditionFailed:
            self._socket.close()
            raise
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="tidegate-rest", daemon=True)
        self._thread.start()

    @property
    def token_files(self) -> tuple[Path, ...]:
        """Where the token is kept; nowhere if it was given."""
        return () if self._kept is None else self._kept.paths

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def linger(self, seconds: float) -> None:
        """Wait until every client that triggered an operation has asked for its result: a client that stops a job must learn
        where the savepoint is, although the job is gone by then. Wait no longer than `seconds`."""
        latest = time.monotonic() + seconds
        while self._service.owing and time.monotonic() < latest:
            time.sleep(0.05)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()
        if self._kept is not None:
            self._kept.remove()

    def __enter__(self) -> RestServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def serve(
    run: JobRun, *, host: str = LOOPBACK, port: int = 8081, token: str | None = None, allowed_hosts: Iterable[str] = ()
) -> RestServer:
    """Offer a running job over REST: `tg.serve(job.start(…), port=0)`. Requests bear `server.token`, see `RestServer`."""
    server = RestServer(run, host=host, port=port, token=token, allowed_hosts=allowed_hosts)
    kept = f"; its token is in {server.token_files[0]}" if server.token_files else ""
    log.info("REST of job %s at %s%s", run.name, server.url, kept)
    return server


def _errors(status: int, *messages: str) -> Response:
    return json_response(ErrorResponseBody([redacted(message) for message in messages]), status)


async def _body(request: Request) -> Body:
    raw = await request.body()
    if not raw.strip():
        return {}
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest("The body must be a JSON object.")
    return found


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


def _jobs(service: JobService) -> JobIdsWithStatusOverview:
    return JobIdsWithStatusOverview([JobIdWithStatus(service.id, service.status().status)])


def _cancel(service: JobService, request: Request) -> EmptyResponseBody:
    mode = request.query_params.get("mode", "cancel")
    if mode != "cancel":
        raise BadRequest("mode is cancel. To end a job with a savepoint, POST to …/stop.")
    service.cancel()
    return EmptyResponseBody()
