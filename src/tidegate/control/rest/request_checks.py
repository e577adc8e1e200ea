"""What a request must be before anything looks at it: sent to this server by name, by a program that knows the token, and short.

A browser sends requests for any page that is open in it, also to loopback. Such a request is recognised by its `Host` (a name
that an attacker made point here), its `Origin`, `Sec-Fetch-Site`, and by the content types that forms can have; and it cannot
carry the token.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.control.messages.operation import ErrorResponseBody
from tidegate.control.rest.addresses import WILDCARDS, plain_host

MAX_BODY_BYTES = 1 << 20

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_HARMLESS = ("GET", "HEAD", "OPTIONS")
_OWN_SITE = ("same-origin", "none")
"""What browsers put into Sec-Fetch-Site for a page of this server, and for an address that a person typed."""


def json_response(message: object, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(message), status, headers, media_type="application/json")


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The names that this server answers to."""

    names: frozenset[str]
    configured: frozenset[str] = frozenset()
    """Those of them that the user listed, such as the name of a proxy. Pages of these may call, too."""
    addresses: bool = False
    """Whether any IP address will do. No page can be made to have one as its name unless it is served from there."""

    @staticmethod
    def of(bound: str, configured: Iterable[str] = ()) -> AllowedHosts:
        """Loopback, the address that the server listens on, and the configured ones. On all interfaces: this machine."""
        listed = frozenset(plain_host(name.strip().rstrip(".")) for name in configured if name.strip())
        host = plain_host(bound)
        everywhere = host in WILDCARDS
        own = {socket.gethostname().lower()} if everywhere else {host}
        return AllowedHosts(frozenset({"localhost", *own, *listed}), listed, everywhere)

    def admits(self, host: str) -> bool:
        """Return whether a `Host` header names this server."""
        name = _name(host)
        return name is not None and (name in self.names or _is_address(name, self.addresses))

    def admits_origin(self, origin: str, host: str) -> bool:
        """Return whether a page of this `Origin` may call: one of this very server, or of a configured name."""
        scheme, separator, address = origin.partition("://")
        if not separator or scheme not in ("http", "https"):
            return False
        return address.lower() == host.lower() or _name(address) in self.configured


def _name(host: str) -> str | None:
    match = _HOST.fullmatch(host)
    if match is None:
        return None
    return plain_host(match["name"].rstrip("."))


def _is_address(name: str, any_address: bool) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback or any_address
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class _Refusal:
    status: int
    message: str


class RequestChecks:
    """Wraps an application. Refuses requests that fail a check; passes on the others with their body, which it has read.

    1. `Host` must name this server. 2. `Origin` and `Sec-Fetch-Site`, if a browser sends them, must not be another site's.
    3. The token must be right. 4. A POST, and anything else that changes something and has a body, must be JSON. 5. The body
    must be short.
    """

    def __init__(
        self,
        app: ASGIApp,
        hosts: AllowedHosts,
        token: str | None,
        max_body_bytes: int = MAX_BODY_BYTES,
        open_below: str | None = None,
        pages_may_act: bool = True,
    ) -> None:
        """What is below the path `open_below` can be read without a token. `pages_may_act`: requests of pages in a browser
        may change something.
        """
        self._app = app
        self._hosts = hosts
        self._token = token
        self._max_body_bytes = max_body_bytes
        self._open_below = open_below
        self._pages_may_act = pages_may_act

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope["method"], scope["path"], headers)
        body = b""
        if refusal is None and _has_body(headers):
            content = await self._read(receive)
            if content is None:
                refusal = self._too_long()
            else:
                body = content
        if refusal is not None:
            more = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
            # What is left of the request is not read.
            body_of_error = ErrorResponseBody([refusal.message])
            answer = json_response(body_of_error, refusal.status, {"Connection": "close", **more})
            await answer(scope, receive, send)
            return
        await self._app(scope, _replayed(body, receive), send)

    def _is_open(self, method: str, path: str) -> bool:
        below = self._open_below
        return (
            below is not None and method in _HARMLESS and (path.startswith(below) or path in ("/", below.rstrip("/")))
        )

    def _refusal(self, method: str, path: str, headers: Headers) -> _Refusal | None:
        # 1. Only this stops a page whose name an attacker made point here: to the browser, its requests are of its own site.
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._hosts.admits(hosts[0]):
            return _Refusal(
                403,
                "This server does not answer to the name in the Host header. Call it by its address, or list the name in "
                "rest.allowed-hosts.",
            )

        # 2. Programs send neither header. A browser sends them for every page, and a page cannot change them.
        origins = headers.getlist("origin")
        site = headers.get("sec-fetch-site", "none")
        if site.lower() not in _OWN_SITE or not all(self._hosts.admits_origin(each, hosts[0]) for each in origins):
            return _Refusal(
                403, "This request comes from a web page of another site, and those may not call this server."
            )

        # 3.
        if self._token is not None and not self._is_open(method, path) and not _bears(headers, self._token):
            return _Refusal(
                401,
                "This server asks for a token: Authorization: Bearer …. The command line finds it by itself for jobs that "
                "the same user runs on the same machine; elsewhere, set TIDEGATE_TOKEN.",
            )
        if method not in _HARMLESS and not self._pages_may_act and (origins or "sec-fetch-site" in headers):
            return _Refusal(
                403,
                "The pages of this server only show the job. Start it with --allow-actions (tg.serve(…, allow_actions=True)) "
                "to let them change something.",
            )

        # 4. A form of any page may be sent without a question by the browser, but never as JSON.
        if method not in _HARMLESS and (method == "POST" or _has_body(headers)):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                return _Refusal(
                    415, "Send this request with Content-Type: application/json, also when its body is empty."
                )

        # 5. What the client announces; `_read` counts what comes.
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 18 or int(length) > self._max_body_bytes:
            return self._too_long()
        return None

    def _too_long(self) -> _Refusal:
        return _Refusal(413, f"The body of a request has at most {self._max_body_bytes} bytes.")

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the whole body, or None as soon as it is too long."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return bytes(body)  # The client is gone.
            body += message.get("body", b"")
            if len(body) > self._max_body_bytes:
                return None
            if not message.get("more_body", False):
                return bytes(body)


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


def _bears(headers: Headers, token: str) -> bool:
    values = headers.getlist("authorization")
    return len(values) == 1 and hmac.compare_digest(values[0].encode(), f"Bearer {token}".encode())


def _replayed(body: bytes, receive: Receive) -> Receive:
    is_replayed = False

    async def again() -> Message:
        nonlocal is_replayed
        if is_replayed:
            return await receive()
        is_replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
