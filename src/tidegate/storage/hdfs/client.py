"""Requests of WebHDFS: to the active NameNode, and from there to a DataNode."""

from __future__ import annotations

import contextlib
import http.client
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tidegate.storage.errors import StorageRefused, StorageUnavailable
from tidegate.storage.hdfs.address import HdfsAddress
from tidegate.storage.hdfs.connections import Connections

_PREFIX = "/webhdfs/v1"
_NOT_ACTIVE = {"StandbyException", "ObserverRetryOnActiveException", "RetriableException"}
"""The last one comes from a NameNode that starts. None of them acts on a request."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole response of a server."""

    status: int
    body: bytes
    location: str | None = None

    @property
    def refusal(self) -> str | None:
        """The class of the exception that the server raised, such as `FileNotFoundException`; None after success."""
        if self.status < 400:
            return None
        return str(self._exception().get("exception") or f"HTTP status {self.status}")

    @property
    def message(self) -> str:
        """What the server says about its exception, without the stack trace."""
        return str(self._exception().get("message") or "no reason was given").partition("\n")[0]

    @property
    def unexplained(self) -> bool:
        """Whether an error does not have the form of WebHDFS: another server sent it."""
        return not self._exception()

    def _exception(self) -> dict[str, Any]:
        with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode(self.body, type=dict[str, dict[str, Any]]).get("RemoteException", {})
        return {}


class WebHdfsClient:
    """Sends each request once to each NameNode at most, until one of them acts on it. Thread-safe.

    Raises `StorageUnavailable` if no response came: then a server may have acted on the request, or may still do so. All
    responses are returned, refusals as well.
    """

    def __init__(self, address: HdfsAddress) -> None:
        self.address = address
        self._connections = Connections(address.timeout_ms / 1000, address.connect_timeout_ms / 1000)
        self._active = 0

    def ask(self, method: str, path: str, op: str, **params: str) -> Reply:
        """Send a request to the active NameNode. `path` is that of a file, from the top of the file system."""
        query = urlencode({"op": op, **self.address.credentials(), **params}, quote_via=quote)
        target = f"{_PREFIX}{quote(path)}?{query}"
        failures = []
        for _ in self.address.name_nodes:
            server = self.address.name_nodes[self._active]
            try:
                connection = self._connections.take(server)
            except OSError as error:
                failures.append(f"{server}: {error}")
                self._pass_over(server)
                continue
            try:
                reply = self._exchange(server, connection, method, target, b"")
            except (OSError, http.client.HTTPException) as error:
                self._pass_over(server)
                # Not the next NameNode: this one may have acted on the request, and only the caller knows whether it
                # may be repeated.
                raise self._unavailable(path, f"the NameNode {server} did not respond ({_said(error)})") from error
            if reply.refusal not in _NOT_ACTIVE:
                return reply
            failures.append(f"{server}: {reply.refusal}")
            self._pass_over(server)
        raise self._unavailable(path, f"no NameNode is reachable and active ({'; '.join(failures)})")

    def locate(self, method: str, path: str, op: str, avoid: set[str], **params: str) -> Reply:
        """Ask the NameNode for a DataNode: the response has its location, or is a refusal.

        `avoid` holds DataNodes that failed before: a NameNode takes ten minutes to notice that one is dead. If no others
        are left, all are tried again.
        """
        if avoid:
            reply = self.ask(method, path, op, excludedatanodes=",".join(sorted(avoid)), **params)
            # With all DataNodes excluded, a NameNode raises an IOException.
            if reply.refusal != "IOException":
                return reply
            avoid.clear()
        return self.ask(method, path, op, **params)

    def follow(self, method: str, path: str, location: str, avoid: set[str], data: bytes = b"") -> Reply:
        """Send `data` to the DataNode at `location`, or fetch from it. If it does not respond, it is added to `avoid`."""
        place = urlsplit(location)
        if place.scheme != "https" and all(each.startswith("https:") for each in self.address.name_nodes):
            raise StorageRefused(
                self.address.url,
                path,
                f"A NameNode of {self.address.url} sends clients on to {place.netloc} without "
                "TLS. Set dfs.http.policy to HTTPS_ONLY on all nodes.",
            )
        server = f"{place.scheme}://{place.netloc}"
        try:
            connection = self._connections.take(server)
            return self._exchange(server, connection, method, f"{place.path}?{place.query}", data)
        except (OSError, http.client.HTTPException) as error:
            # A redirect has the name of a DataNode, and `excludedatanodes` takes its address.
            avoid.add(_ip_address(place.hostname or ""))
            raise self._unavailable(
                path,
                f"the DataNode {place.netloc} did not respond ({_said(error)}); DataNodes must be reachable by the "
                "names under which they registered",
            ) from error

    def fetch(self, path: str, avoid: set[str], **params: str) -> Reply:
        """Read a file, or a part of it."""
        reply = self.locate("GET", path, "OPEN", avoid, **params)
        return reply if reply.location is None else self.follow("GET", path, reply.location, avoid)

    def _exchange(
        self, server: str, connection: http.client.HTTPConnection, method: str, target: str, data: bytes
    ) -> Reply:
        """Send one request and read all of its response. The connection is kept only after success."""
        try:
            # The DataNode compares the body with this length before it answers 201.
            headers = {"Content-Type": "application/octet-stream", "Content-Length": str(len(data))}
            connection.request(method, target, data or None, headers if method == "PUT" else {})
            response = connection.getresponse()
            reply = Reply(response.status, response.read(), response.getheader("Location"))
        except BaseException:
            connection.close()
            raise
        # The response was read to its end: the next request finds nothing of it.
        self._connections.give_back(server, connection)
        # A `Location` of another status is no redirect: 201 has that of the file.
        return Reply(reply.status, reply.body, reply.location if reply.status == 307 else None)

    def _pass_over(self, server: str) -> None:
        """Try the next NameNode first from now on, unless another thread has already moved on."""
        nodes = self.address.name_nodes
        if nodes[self._active] == server:
            self._active = (self._active + 1) % len(nodes)

    def _unavailable(self, path: str, what: str) -> StorageUnavailable:
        return StorageUnavailable(
            self.address.url,
            path,
            f"{path!r} was not served: {what}. Check that HDFS is healthy and that its web addresses are reachable from "
            "here (hdfs.web-address).",
        )


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _ip_address(host: str) -> str:
    with contextlib.suppress(OSError):
        return socket.gethostbyname(host)
    return host
