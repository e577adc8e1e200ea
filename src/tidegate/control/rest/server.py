"""REST in the driver, with Flink's paths, verbs and field names; optional prefix `/v1`. Listens on loopback by default.

Who may call is decided in `request_checks`, and what callers can hold in `connection_limits`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route

from tidegate.control.jobs.job_errors import NotFound, NotPossible
from tidegate.control.jobs.service import JobService
from tidegate.control.messages.operation import ErrorResponseBody
from tidegate.control.rest.access_token import TokenFile, given_token, new_token
from tidegate.control.rest.addresses import host_and_port, plain_host
from tidegate.control.rest.operation import BadRequest, Body, Call, Operation, ServedJobs
from tidegate.control.rest.request_checks import MAX_BODY_BYTES, AllowedHosts, RequestChecks, json_response
from tidegate.control.rest.routes import OPERATIONS
from tidegate.control.rest.ui_files import PREFIX, ui_routes
from tidegate.core.errors import PreconditionFailed, TidegateError, help_line
from tidegate.core.redaction import redacted

if TYPE_CHECKING:
    from tidegate.control.rest.connection_limits import ConnectionLimits
    from tidegate.runtime.driver.job_run import JobRun

log = logging.getLogger("tidegate")
LOOPBACK = "127.0.0.1"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text format that Prometheus reads."""


def application(
    jobs: ServedJobs,
    token: str | None = None,
    hosts: AllowedHosts | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
    allow_actions: bool = False,
) -> Starlette:
    """Return the routes over some jobs. With a token, every request must bear it. `hosts` are loopback names by default.

    `allow_actions`: whether a page in a browser may change something, as programs with the token may.
    """
    by_path: dict[str, dict[str, Operation]] = {}
    for each in OPERATIONS:
        by_path.setdefault(each.path, {})[each.method] = each

    def route(path: str, by_method: dict[str, Operation]) -> Route:
        async def endpoint(request: Request) -> Response:
            # Starlette adds HEAD to every route that has GET, and leaves out the body itself.
            method = "GET" if request.method == "HEAD" else request.method
            operation = by_method[method]
            try:
                body = await _body(request) if method in ("POST", "PATCH", "PUT") else {}
                # In a thread: an operation may read storage, and must not hold up the requests of other clients.
                result = await asyncio.to_thread(operation.act, Call(jobs, request, body, allow_actions))
            except (NotFound, BadRequest, NotPossible) as error:
                status = {NotFound: 404, BadRequest: 400, NotPossible: 409}[type(error)]
                return _errors(status, str(error), help_line(error.code))
            except TidegateError as error:
                # Errors of our own are answers for the caller. Anything else is a bug, and becomes a 500 with a traceback in
                # the log.
                return _errors(400, str(error), help_line(error.code))
            if isinstance(result, Response):
                return result
            if isinstance(result, bytes):
                return Response(result, operation.status, media_type=CONTENT_TYPE)
            return json_response(result, operation.status)

        return Route(path, endpoint, methods=list(by_method))

    routes: list[BaseRoute] = [route(path, by_method) for path, by_method in by_path.items()]
    checks = Middleware(
        RequestChecks,
        hosts=hosts or AllowedHosts.of(LOOPBACK),
        token=token,
        max_body_bytes=max_body_bytes,
        open_below=PREFIX,
        pages_may_act=allow_actions,
    )

    # Clients of Flink's REST may put the version of the API before a path.
    return Starlette(routes=[*ui_routes(), *routes, Mount("/v1", routes=routes)], middleware=[checks])


DEFAULT_PORT = 8081
_LAST_DEFAULT = DEFAULT_PORT + 99
"""A default port that is taken moves on, at most to this one."""


@dataclass(frozen=True, slots=True)
class AddressWords:
    """What the user calls the two parts of an address, for errors."""

    host: str = "rest.bind-address"
    port: str = "rest.port"


_OPTIONS = AddressWords()
_ARGUMENTS = AddressWords("host=", "port=")


def listen(host: str = LOOPBACK, port: int | None = None, words: AddressWords = _OPTIONS) -> socket.socket:
    """Take the port of a server, before anything that takes long: its callers wait until the server has started. 0 is any free
    port, None the default port, or the next free one after it. Raises `PreconditionFailed` if the address cannot be used.
    """
    first, last = (DEFAULT_PORT, _LAST_DEFAULT) if port is None else (port, port)
    for candidate in range(first, last + 1):
        try:
            listening = _bound(host, candidate)
        except OverflowError:  # of `bind`
            raise PreconditionFailed(
                f"REST cannot listen on port {candidate}: ports are 1 to 65535. Set {words.port} to one of them, or to 0 for any "
                "free port."
            ) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: too long for a name, or an empty part in it
            if _errno(error) == errno.EADDRINUSE and candidate < last:
                continue
            raise PreconditionFailed(_cannot_listen(error, plain_host(host), first, last, words)) from None
        if candidate != first:
            address = host_and_port(plain_host(host), candidate)
            log.warning("port %d is taken, so REST listens on %s; commands need -m %s", first, address, address)
        return listening
    raise AssertionError


def _errno(error: OSError | UnicodeError) -> int | None:
    return error.errno if isinstance(error, OSError) else None


def _cannot_listen(error: OSError | UnicodeError, host: str, first: int, last: int, words: AddressWords) -> str:
    """`first` and `last` are the ports that were tried."""
    which_host = (
        f"Set {words.host} to an address of this machine: {LOOPBACK} is for programs on this machine, 0.0.0.0 for all."
    )
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"REST cannot listen on {host!r}: there is no such host. {which_host}"
    start = f"REST cannot listen on {host_and_port(host, first)}"
    match _errno(error):
        case errno.EADDRNOTAVAIL:
            return f"{start}: this machine has no address {host}. {which_host}"
        case errno.EADDRINUSE if first != last:
            return f"{start} or any port up to {last}: all are taken. Set {words.port} to a free one, or to 0 for any."
        case errno.EADDRINUSE:
            return f"{start}: port {first} is taken. Set {words.port} to another one, or to 0 for any free port."
        case errno.EACCES:
            return f"{start}: this user may not use port {first}. Set {words.port} to one above 1023, or to 0 for any."
    return f"{start}: {redacted(str(error))}. Set {words.port} and {words.host} to an address of this machine."


def _bound(host: str, port: int) -> socket.socket:
    host = plain_host(host)
    is_ipv6 = ":" in host
    bound = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_ipv6:
        # "::" means all addresses, also those of IPv4, whatever the default of the machine is.
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    try:
        bound.bind((host, port))
        # From here on a caller is kept waiting, not refused, until the server has started. A port that is bound and not
        # listened on could be bound by others, too.
        bound.listen(128)
    except OSError:
        bound.close()
        raise
    return bound


class RestServer:
    """Serves jobs at `url` until closed. Port 0 takes a free one. `listening`: the socket of `listen`, which then decides host
    and port.

    Every request must bear the token: `token`, else the variable TIDEGATE_TOKEN, else one that is made for this server and
    kept in `token_files`, which only this user can read. `allowed_hosts` are names that the server answers to besides its
    own, such as that of a proxy. `allow_actions`: pages in a browser may change something, not only look.
    """

    def __init__(
        self,
        jobs: ServedJobs,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        token: str | None = None,
        allowed_hosts: Iterable[str] = (),
        limits: ConnectionLimits | None = None,
        allow_actions: bool = False,
        listening: socket.socket | None = None,
    ) -> None:
        import uvicorn

        from tidegate.control.rest.connection_limits import ConnectionLimits, bounded_protocol

        limits = limits or ConnectionLimits()
        chosen = given_token(token)
        host = plain_host(host)
        self._socket = listening or listen(host, port, _ARGUMENTS)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{host_and_port(host, self.port)}"
        self.token = chosen or new_token()
        self._jobs = jobs
        hosts = AllowedHosts.of(host, allowed_hosts)
        config = uvicorn.Config(
            application(jobs, self.token, hosts, limits.body_bytes, allow_actions),
            http=bounded_protocol(limits),
            ws="none",
            h11_max_incomplete_event_size=limits.head_bytes,
            # An open stream of events would delay the end of the server by up to twenty seconds.
            timeout_graceful_shutdown=5,
            proxy_headers=False,  # any client could send them, and pretend to be another host
            server_header=False,
            log_level="warning",
            lifespan="off",
        )

        # Before the first request is answered: without the file no command could call the server.
        # A token that the user chose is known to the callers: it is not written to disk.
        self._token_file: TokenFile | None = None
        if not chosen:
            try:
                self._token_file = TokenFile.write(self.token, host, self.port)
            except PreconditionFailed:
                self._socket.close()
                raise
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="tidegate-rest", daemon=True)
        self._thread.start()

    @property
    def ui_url(self) -> str:
        """The address of the web UI, with the token: browsers do not send what follows the `#`."""
        return f"{self.url}{PREFIX}#token={self.token}"

    @property
    def token_files(self) -> tuple[Path, ...]:
        """The files with the token. None if the user chose the token."""
        if self._token_file is None:
            return ()
        return self._token_file.paths

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def linger(self, seconds: float) -> None:
        """Wait until every client that triggered an operation has asked for its result: a client that stops a job must learn
        where the savepoint is, although the job is gone by then. Wait no longer than `seconds`."""
        latest = time.monotonic() + seconds
        jobs = [job for job in self._jobs.all() if isinstance(job, JobService)]
        while any(job.has_unreported_results for job in jobs) and time.monotonic() < latest:
            time.sleep(0.05)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()
        if self._token_file is not None:
            self._token_file.remove()

    def __enter__(self) -> RestServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Served:
    """A server that `serve` has started."""

    run: JobRun
    server: RestServer
    address: tuple[str, int | None]
    """As it was asked for: port 0 is any, None the default."""


_served: list[_Served] = []


def serve(
    run: JobRun,
    *,
    host: str = LOOPBACK,
    port: int | None = None,
    token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    allow_actions: bool = False,
    show_values: bool = False,
    listening: socket.socket | None = None,
) -> RestServer:
    """Offer a running job over REST and in a browser: `tg.serve(job.start(…), port=0)`.

    Requests bear `server.token`, see `RestServer`; `server.ui_url` is the address for a browser. An earlier server of this
    process on the same port is closed first if it serves the same run, or one that has ended.

    Args:
        run: What `job.start` returned.
        host: The address to listen on. By default, only this machine.
        port: The port; 0 is any free one. By default 8081, or the next free one.
        token: The token that requests must bear. By default, that of the variable `TIDEGATE_TOKEN`, or a new one.
        allowed_hosts: Names by which clients may address the server, besides its address.
        allow_actions: Let the pages stop the job and take savepoints.
        show_values: Let the pages show keys and values of state.
        listening: The socket of `listen`, taken before the job was started.
    """
    # In a notebook a cell is run again and again: the server of the last time must not hold the port.
    for earlier in [each for each in _served if each.address == (host, port)]:
        if earlier.run.has_ended or (port != 0 and earlier.run is run):
            earlier.server.close()
            _served.remove(earlier)
    server = RestServer(
        JobService(run, show_values),
        host=host,
        token=token,
        allowed_hosts=allowed_hosts,
        allow_actions=allow_actions,
        listening=listening or listen(host, port, _ARGUMENTS),
    )
    _served.append(_Served(run, server, (host, port)))
    token_place = f"; its token is in {server.token_files[0]}" if server.token_files else ""
    log.info("REST of job %s at %s, its pages at %s%s%s", run.name, server.url, server.url, PREFIX, token_place)
    return server


def _errors(status: int, *messages: str) -> Response:
    return json_response(ErrorResponseBody([redacted(message) for message in messages]), status)


async def _body(request: Request) -> Body:
    raw = await request.body()
    if not raw.strip():
        return {}
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"The body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object.")
    return document
