"""Real processes in tests: the process tree, how to kill a whole tree, and a leash that outlives the test run.

Everything here uses process ids and reads `/proc`, so it needs Linux. No process is ever found by name alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether the process still runs. A zombie, which has ended and waits for its parent, is not alive."""
    status = _status(pid)
    return status is not None and status[1] not in "ZX"


def command_line(pid: int) -> list[str]:
    """Return the arguments a process was started with; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Return the living processes whose parent is `pid` at this moment."""
    return sorted(child for child, parent in _parents() if parent == pid)


def descendants(pid: int) -> list[int]:
    """Return the living processes below `pid`, nearest first, without `pid` itself."""
    below: dict[int, list[int]] = {}
    for child, parent in _parents():
        below.setdefault(parent, []).append(child)
    found, queue = [], [pid]
    while queue:
        next_ones = sorted(below.get(queue.pop(0), []))
        found += next_ones
        queue += next_ones
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal each process; a process that is already gone is not an error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_gone(pids: Iterable[int], timeout_s: float = 10.0) -> None:
    """Wait until none of the processes is alive. Raises TimeoutError with those that are."""
    deadline = time.monotonic() + timeout_s
    left = [pid for pid in pids if alive(pid)]
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Still alive after {timeout_s:g} s: {left}. Check for a disk that does not respond.")
        time.sleep(0.01)
        left = [pid for pid in left if alive(pid)]


def kill_tree(pid: int, timeout_s: float = 10.0) -> list[int]:
    """SIGKILL a process and everything below it, and wait until all are gone. Return the killed process ids.

    1. Stop the root, then all processes below it, until a scan finds no new one: a stopped process starts no other.
    2. Kill them all. A crash between the steps leaves stopped processes, which the leash kills when this process ends.
    """
    send([pid], signal.SIGSTOP)
    seen: set[int] = {pid}
    while new := set(descendants(pid)) - seen:
        send(new, signal.SIGSTOP)
        seen |= new
    send(seen, signal.SIGKILL)
    wait_gone(seen, timeout_s)
    return sorted(seen)


class Leash:
    """Kills process trees when the process that created the leash ends, however it ends, including by SIGKILL.

    A small separate process reads the ids from a pipe; when the pipe closes, its owner has ended.
    """

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "tidegate.testing.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C and a kill of the owner's process group must not reach it
        )

    def hold(self, pid: int) -> None:
        """Kill this tree when this process ends."""
        self._write(f"+{pid}\n")

    def release(self, pid: int) -> None:
        """Forget this tree: it has already ended."""
        self._write(f"-{pid}\n")

    def close(self) -> None:
        """Kill everything still held, and the guard process."""
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.close()
        self._guard.wait(timeout=30)

    def _write(self, line: str) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(line.encode())
        self._guard.stdin.flush()


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (status := _status(int(entry))) is not None and status[1] not in "ZX":
            yield int(entry), status[0]


def _status(pid: int) -> tuple[int, str] | None:
    """Return the parent and the state letter of a process. The name before them may contain anything,
    so count from its last bracket.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0]


def _guard() -> None:
    # Ends with the pipe, which the kernel closes for an owner that was killed.
    held: set[int] = set()
    for line in sys.stdin:
        (held.add if line[0] == "+" else held.discard)(int(line[1:]))
    for pid in held:
        if alive(pid):
            kill_tree(pid)


if __name__ == "__main__":
    _guard()
