"""Clients of `benchmarks.call_server` without Spark: processes that each make as many calls at a time as a task may.

What they reach is what the machine and the server can do at that moment, with no epochs around the calls.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

from benchmarks.call_server import ERROR, CallServer
from benchmarks.streams import ROOT


def rate(server: CallServer, processes: int, capacity: int, calls: int) -> float:
    """Calls per second of so many processes, each with so many calls."""
    command = [sys.executable, "-m", __name__, str(server.port), str(capacity), str(calls)]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    slowest_s = max(float(process.communicate()[0]) for process in started)
    return processes * calls / slowest_s


async def _ask(port: int, left: list[str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while left:
        question = left.pop()
        answer = ERROR
        while answer == ERROR:
            writer.write(f"{question}\n".encode())
            answer = (await reader.readline()).decode().strip()
    writer.close()


async def _ask_all(port: int, capacity: int, calls: int) -> float:
    left = [f"user-{n % 1000}" for n in range(calls)]
    begin = time.monotonic()
    await asyncio.gather(*(_ask(port, left) for _ in range(capacity)))
    return time.monotonic() - begin


if __name__ == "__main__":
    print(asyncio.run(_ask_all(*map(int, sys.argv[1:4]))))
