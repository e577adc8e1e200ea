"""A proxy in front of an HTTP server that does to chosen requests what networks and servers do to unlucky ones.

Requests pass unchanged, Host header included, so signatures made for the proxy's address hold at the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.servers.http1 import Disconnected, Head, body_of_answer, body_of_request, read_head
from tests.servers.loop_server import LoopServer


@dataclass(frozen=True, slots=True)
class DropReply:
    """The server applies the request; the client sees its connection break instead of the answer."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The connection breaks before the server sees anything."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The client is told `status`, although the server applied the request, or without asking it."""

    status: int
    applied: bool


@dataclass(frozen=True, slots=True)
class CutRequest:
    """The connection breaks after so many bytes of the body have reached the server."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class CutReply:
    """The connection breaks after so many bytes of the answer's body have reached the client."""

    after_bytes: int


@dataclass(frozen=True, slots=True)
class Throttle:
    """Bodies flow at this speed, both ways."""

    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Delay:
    """The request waits before it reaches the server."""

    seconds: float


class Line:
    """Bodies of all requests together flow at this speed, as over one line that they share."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s, self._free_at = bytes_per_s, 0.0

    def seconds_for(self, count: int) -> float:
        """Take so many bytes of the line, after those taken before. Returns how long until they have passed."""
        now = time.monotonic()
        self._free_at = max(now, self._free_at) + count / self._bytes_per_s
        return self._free_at - now


Fault = DropReply | Refuse | Answer | CutRequest | CutReply | Throttle | Line | Delay


@dataclass(slots=True)
class Rule:
    """Does `fault` to requests that match, from the `nth` on (1 = first), `times` times (None = always), by chance."""

    fault: Fault
    method: str = ".*"
    path: str = ".*"
    nth: int = 1
    times: int | None = 1
    chance: float = 1.0
    matched: int = field(default=0, init=False)
    hit: int = field(default=0, init=False)

    def claims(self, method: str, path: str, draw: random.Random) -> bool:
        if not re.fullmatch(self.method, method) or not re.search(self.path, path):
            return False
        self.matched += 1
        if (
            self.matched < self.nth
            or (self.times is not None and self.hit >= self.times)
            or draw.random() >= self.chance
        ):
            return False
        self.hit += 1
        return True


@dataclass(slots=True)
class Seen:
    """One request that came by. `answered` is what the server said; None if it was not asked or did not answer."""

    method: str
    path: str
    fault: Fault | None
    answered: int | None = None


class FaultyProxy:
    """Listens on a free loopback port, in a thread of its own, until `stop`."""

    def __init__(self, host: str, port: int, seed: int = 0, redirects_to: int | None = None) -> None:
        """`redirects_to`: the port of a second server, to which the first one sends clients on. They stay with the proxy, which
        tells the servers' requests apart by a parameter that a NameNode adds."""
        self._upstream = (host, port)
        self._second = None if redirects_to is None else (host, redirects_to)
        self._draw = random.Random(seed)
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self.seen: list[Seen] = []
        self._server = LoopServer("faulty-proxy", self._serve)
        self.port = self._server.port

    def script(self, *rules: Rule) -> None:
        """Replace the rules; the first that claims a request decides. Forgets what was seen."""
        with self._lock:
            self._rules = list(rules)
            self.seen = []

    def stop(self) -> None:
        self._server.stop()

    def _see(self, method: str, path: str) -> Seen:
        """Decide about a request and note it, before its client can hear of anything."""
        with self._lock:
            fault = next((rule.fault for rule in self._rules if rule.claims(method, path, self._draw)), None)
            seen = Seen(method, path, fault)
            self.seen.append(seen)
            return seen

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client, with one to the server behind it."""
        servers = [_Upstream(*each) for each in (self._upstream, self._second) if each is not None]
        try:
            while True:
                head = await read_head(reader)
                upstream = servers["namenoderpcaddress=" in head.start[1] if self._second else 0]
                if not await self._pass_on(head, reader, writer, upstream):
                    return
        except (Disconnected, ConnectionError, asyncio.CancelledError):
            return
        finally:
            for upstream in servers:
                upstream.close()
            writer.close()

    async def _pass_on(
        self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: _Upstream
    ) -> bool:
        """One request and its answer; whether the connection goes on."""
        seen = self._see(head.start[0], head.start[1])
        fault = seen.fault
        if isinstance(fault, Refuse):
            return False
        if isinstance(fault, Delay):
            await asyncio.sleep(fault.seconds)
        pace = _Pace(
            fault.bytes_per_s if isinstance(fault, Throttle) else None, fault if isinstance(fault, Line) else None
        )
        request = body_of_request(head, reader)
        if isinstance(fault, Answer) and not fault.applied:
            await _drain(request)
            return await _answer(writer, fault.status)
        server_reader, server_writer = await upstream.connection()
        server_writer.write(head.raw)
        if not await _copy(request, server_writer, pace, fault.after_bytes if isinstance(fault, CutRequest) else None):
            return False
        reply = await read_head(server_reader)
        while reply.status < 200:
            writer.write(reply.raw)
            reply = await read_head(server_reader)
        seen.answered = reply.status
        answer = body_of_answer(reply, seen.method, server_reader)
        if isinstance(fault, DropReply | Answer):
            await _drain(answer)
            return await _answer(writer, fault.status) if isinstance(fault, Answer) else False
        writer.write(self._led_back(reply))
        if not await _copy(answer, writer, pace, fault.after_bytes if isinstance(fault, CutReply) else None):
            return False
        return not (head.closes or reply.closes)

    def _led_back(self, reply: Head) -> bytes:
        """An answer whose redirection to the second server leads through the proxy."""
        if self._second is None or reply.status != 307:
            return reply.raw
        return re.sub(rb"(?<=\nLocation: http://)[^/]+", f"127.0.0.1:{self.port}".encode(), reply.raw)


class _Upstream:
    """The connection to one server, made when first needed."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class _Pace:
    """Holds a flow to a number of bytes per second, of its own or of a line that it shares."""

    def __init__(self, bytes_per_s: float | None, line: Line | None = None) -> None:
        self._bytes_per_s, self._line = bytes_per_s, line
        self._began = time.monotonic()
        self._passed = 0

    async def keep(self, count: int) -> None:
        if self._bytes_per_s is not None:
            self._passed += count
            await asyncio.sleep(max(0.0, self._began + self._passed / self._bytes_per_s - time.monotonic()))
        if self._line is not None:
            await asyncio.sleep(self._line.seconds_for(count))


async def _copy(body: AsyncIterator[bytes], writer: asyncio.StreamWriter, pace: _Pace, limit: int | None) -> bool:
    """Pass a body on; False when it was cut at `limit` bytes."""
    passed = 0
    async for block in body:
        if limit is not None and passed + len(block) > limit:
            writer.write(block[: limit - passed])
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            return False
        passed += len(block)
        writer.write(block)
        await writer.drain()
        await pace.keep(len(block))
    await writer.drain()
    return True


async def _drain(body: AsyncIterator[bytes]) -> None:
    async for _ in body:
        pass


async def _answer(writer: asyncio.StreamWriter, status: int) -> bool:
    code = {409: "ConditionalRequestConflict", 412: "PreconditionFailed", 503: "SlowDown"}.get(status, "InternalError")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>scripted</Message></Error>".encode()
    head = f"HTTP/1.1 {status} Scripted\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    return True
