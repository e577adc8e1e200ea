"""Just enough HTTP/1.1 to pass messages on unchanged and to know where each one ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

_BLOCK = 64 * 1024


class Disconnected(Exception):
    """The other side closed the connection between or within messages."""


@dataclass(frozen=True, slots=True)
class Head:
    """Start line and headers as they came."""

    raw: bytes

    @property
    def start(self) -> list[str]:
        return self.raw.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)

    def header(self, name: str) -> str | None:
        for line in self.raw.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name.encode():
                return value.strip().decode("latin-1")
        return None

    @property
    def status(self) -> int:
        return int(self.start[1])

    @property
    def closes(self) -> bool:
        return (self.header("connection") or "").lower() == "close"


async def read_head(reader: asyncio.StreamReader) -> Head:
    try:
        return Head(await reader.readuntil(b"\r\n\r\n"))
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise Disconnected from error


def body_of_request(head: Head, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    return _body(head, reader, until_closed=False)


def body_of_answer(head: Head, method: str, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    if method == "HEAD" or head.status in (204, 304) or head.status < 200:
        return _nothing()
    return _body(head, reader, until_closed=True)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""


async def _body(head: Head, reader: asyncio.StreamReader, until_closed: bool) -> AsyncIterator[bytes]:
    """The bytes of the body as they are on the wire, framing included, in blocks."""
    try:
        if "chunked" in (head.header("transfer-encoding") or "").lower():
            async for block in _chunks(reader):
                yield block
        elif (length := head.header("content-length")) is not None:
            async for block in _exactly(reader, int(length)):
                yield block
        elif until_closed:
            while block := await reader.read(_BLOCK):
                yield block
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise Disconnected from error


async def _exactly(reader: asyncio.StreamReader, left: int) -> AsyncIterator[bytes]:
    while left:
        block = await reader.read(min(left, _BLOCK))
        if not block:
            raise Disconnected
        left -= len(block)
        yield block


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        line = await reader.readuntil(b"\r\n")
        yield line
        size = int(line.split(b";", 1)[0], 16)
        if size == 0:
            break
        async for block in _exactly(reader, size + 2):
            yield block
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        yield line
    yield line
