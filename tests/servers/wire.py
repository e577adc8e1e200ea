"""A wire to a server that can be cut, and that can lose what the server answers. It knows nothing of what is said on it."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import time
from collections.abc import Iterator

from tests.servers.loop_server import LoopServer


class State(enum.Enum):
    OPEN = "open"
    CUT = "cut"
    """Connections break, and new ones break at once."""
    DEAF = "deaf"
    """What clients send arrives; no answer does, until the connections break when the wire is mended."""


class Wire:
    """Listens on a free loopback port, in a thread of its own, until `stop`. `lead_to` says where it leads."""

    def __init__(self) -> None:
        self._upstream: tuple[str, int] | None = None
        self._state = State.OPEN
        self._writers: set[asyncio.StreamWriter] = set()
        self.lost_bytes = 0
        """How much of answers was lost."""
        self.reached_at: float | None = None
        """When the first connection since it was last mended reached the server, in monotonic seconds."""
        self._server = LoopServer("wire", self._serve)
        self.port = self._server.port

    def lead_to(self, host: str, port: int) -> Wire:
        self._upstream = (host, port)
        return self

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """While it lasts, nobody gets through."""
        with self._in(State.CUT):
            yield

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """While it lasts, requests arrive and answers are lost."""
        with self._in(State.DEAF):
            yield

    @contextlib.contextmanager
    def _in(self, state: State) -> Iterator[None]:
        self._server.call(self._switch(state))
        try:
            yield
        finally:
            self._server.call(self._switch(State.OPEN))

    def stop(self) -> None:
        self._server.call(self._switch(State.CUT))
        self._server.stop()

    async def _switch(self, state: State) -> None:
        self._state = state
        self.reached_at = None
        if state is not State.DEAF:
            # A connection on which answers were lost cannot be mended.
            for writer in list(self._writers):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state is State.CUT or self._upstream is None:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        if self._state is State.OPEN and self.reached_at is None:
            self.reached_at = time.monotonic()
        ends = {writer, far_writer}
        self._writers |= ends
        try:
            await asyncio.gather(self._carry(reader, far_writer, False), self._carry(far_reader, writer, True))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._writers -= ends
            for end in ends:
                end.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        while data := await reader.read(1 << 16):
            if answers and self._state is State.DEAF:
                self.lost_bytes += len(data)
                continue
            writer.write(data)
            await writer.drain()
        # One side has finished: so has the conversation.
        raise ConnectionResetError
