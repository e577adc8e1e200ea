"""A service that answers slowly, in a process of its own: one line in, one line out, over TCP.

Every answer comes `latency` after its question, however many are asked at a time, and a share of them are errors. The line `?`
asks for what the server has seen since the last such line, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.streams import ROOT

ERROR = "error"


@dataclass(frozen=True, slots=True)
class CallServer:
    """The address of a running server."""

    port: int
    latency_s: float

    def seen(self) -> dict[str, int]:
        """Calls, errors and the most calls at a time since it was asked last."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection, connection.makefile("rw") as lines:
            lines.write("?\n")
            lines.flush()
            found: dict[str, int] = json.loads(lines.readline())
        return found


@contextmanager
def serving(latency_s: float, error_share: float) -> Iterator[CallServer]:
    command = [sys.executable, "-m", __name__, str(latency_s), str(error_share)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield CallServer(int(process.stdout.readline()), latency_s)
        finally:
            process.kill()


class _Service:
    def __init__(self, latency_s: float, error_share: float) -> None:
        self._latency_s, self._error_share = latency_s, error_share
        self._random = random.Random(7)
        self._calls = self._errors = self._now = self._most = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while question := (await reader.readline()).decode().strip():
            writer.write(f"{await self._answer(question)}\n".encode())
        writer.close()

    async def _answer(self, question: str) -> str:
        if question == "?":
            seen = {"calls": self._calls, "errors": self._errors, "most": self._most}
            self._calls = self._errors = self._most = 0
            return json.dumps(seen)
        self._calls += 1
        self._now += 1
        self._most = max(self._most, self._now)
        await asyncio.sleep(self._latency_s)
        self._now -= 1
        if self._random.random() < self._error_share:
            self._errors += 1
            return ERROR
        return question.upper()


async def _serve(service: Any) -> None:
    server = await asyncio.start_server(service.connected, "127.0.0.1", 0, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(_Service(float(sys.argv[1]), float(sys.argv[2]))))
