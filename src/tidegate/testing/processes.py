"""Real processes in tests: who descends from whom, how to end a whole tree, and a leash that outlives the test run.

Everything here goes by process id and reads `/proc`, so it needs Linux. Nothing is ever found by name alone.
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
    """Whether the process still runs. One that has ended and only waits for its parent to ask is not alive."""
    status = _status(pid)
    return status is not None and status[1] not in "ZX"


def command_line(pid: int) -> list[str]:
    """The arguments a process was started with; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """Living processes whose parent is `pid` at this moment."""
    return sorted(child for child, parent in _parents() if parent == pid)


def descendants(pid: int) -> list[int]:
    """Living processes below `pid`, nearest first, without `pid` itself."""
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
    """Signal each process; one that is already gone is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_gone(pids: Iterable[int], timeout_s: float = 10.0) -> None:
    """Return when none of the processes is alive. Raises TimeoutError with those that are."""
    deadline = time.monotonic() + timeout_s
    left = [pid for pid in pids if alive(pid)]
    while left:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Still alive after {timeout_s:g} s: {left}. Look for a disk that does not answer.")
        time.sleep(0.01)
        left = [pid for pid in left if alive(pid)]


def kill_tree(pid: int, timeout_s: float = 10.0) -> list[int]:
    """SIGKILL a process and everything below it, and wait until all are gone. Returns who was killed.

    1. Stop the root, then whoever is below it, until a look finds nobody new: a stopped process starts no other.
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
    """Ends process trees when the process that made the leash ends, however it ends, SIGKILL included.

    A small process of its own reads the ids from a pipe; the end of the pipe is the end of its owner.
    """

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "tidegate.testing.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def hold(self, pid: int) -> None:
        """End this tree with us."""
        self._tell(f"+{pid}\n")

    def release(self, pid: int) -> None:
        """Forget this tree: it has been ended."""
        self._tell(f"-{pid}\n")

    def close(self) -> None:
        """End whatever is still held, and the guard."""
        assert self._guard.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._guard.stdin.close()
        self._guard.wait(timeout=30)

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(line.encode())
        self._guard.stdin.flush()


def _parents() -> Iterator[tuple[int, int]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (status := _status(int(entry))) is not None and status[1] not in "ZX":
            yield int(entry), status[0]


def _status(pid: int) -> tuple[int, str] | None:
    """Parent and state letter of a process. The name before them may hold anything, so count from its last bracket."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0]


def _guard() -> None:
    held: set[int] = set()
    for line in sys.stdin:
        (held.add if line[0] == "+" else held.discard)(int(line[1:]))
    for pid in held:
        if alive(pid):
            kill_tree(pid)


if __name__ == "__main__":
    _guard()
