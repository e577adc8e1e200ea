"""Child processes of the tests: free ports, a log, an end by process id, and no orphans when the tests are killed."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.speed import Limit

_PR_SET_PDEATHSIG = 1


def free_ports(count: int) -> list[int]:
    """Distinct ports of the loopback interface that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class ServerProcess:
    """One started program, whose temporary files go to the folder of its log. `stop` may be called more than once.

    `user`: who runs it, for programs that refuse to be root. `stop_signal`: by which it ends at once and in order.
    """

    def __init__(
        self, command: Sequence[str], log: Path, user: int | None = None, stop_signal: signal.Signals = signal.SIGTERM
    ) -> None:
        self.log = log
        self._stop_signal = stop_signal
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                list(command),
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
                user=user,
                env={**os.environ, "TMPDIR": str(log.parent)},
            )

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = 60.0) -> None:
        limit = Limit(timeout_s)
        while not ready():
            if self._process.poll() is not None or limit.passed():
                self.stop()
                raise RuntimeError(f"{self._process.args!r} did not become ready:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, as a crash would have it."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(self._stop_signal)
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
