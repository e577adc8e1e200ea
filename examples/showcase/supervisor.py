"""Runs the job with `tidegate run`, and starts it again when it dies: what Kubernetes or systemd does in production."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.servers.process import free_ports
from tidegate.control.rest.client import Client, Refused, Unreachable
from tidegate.testing.processes import kill_tree

ROOT = Path(__file__).resolve().parents[2]
JOB = Path(__file__).with_name("job.py")
TIDEGATE = (sys.executable, "-c", "from tidegate.control.cli import main; main()")
"""The command `tidegate`, for this Python."""
STOP_S = 300.0
"""How long the end of a job may take."""


class Supervisor:
    """One job, started as often as it dies. Logs are `job-N.log` in the folder."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], *, interval: str = "2 s", settings: Mapping[str, str] = {}
    ) -> None:
        self.folder = folder
        [self.port] = free_ports(1)
        # A token that stays the same, so that the page in a browser survives the death of the job.
        self._token = secrets.token_urlsafe(16)
        self._environment = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            **os.environ,
            **environment,
            "TIDEGATE_TOKEN": self._token,
            "TIDEGATE_LOCAL_DIR": str(folder / "local"),
        }
        self._settings = {
            "execution.checkpointing.dir": str(folder / "checkpoints"),
            "execution.checkpointing.savepoint-dir": str(folder / "savepoints"),
            "execution.checkpointing.interval": interval,
            "restart-strategy.type": "exponential-delay",
            "rest.port": str(self.port),
            **settings,
        }
        self.starts = 0
        self._ending = threading.Event()
        self.process = self._launch()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._thread.start()

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/ui/#token={self._token}"

    @property
    def log(self) -> Path:
        """Of the latest start."""
        return self.folder / f"job-{self.starts}.log"

    def is_running(self) -> bool:
        try:
            return any(job["state"] == "RUNNING" for job in self._client().jobs())
        except (Unreachable, Refused):
            return False

    def finish(self) -> None:
        """Stop the job, then run it once more to the end of its topics and of event time, so that every session closes.

        Returns when all output is published.
        """
        self._ending.set()
        self._thread.join()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)  # finishes the epoch and takes a last checkpoint
            self.process.wait(STOP_S)
        self.process = self._launch("--trigger", "available-now", "--drain")
        code = self.process.wait(STOP_S)
        if code:
            raise RuntimeError(f"The job ended with exit code {code}:\n{self.log.read_text()[-2_000:]}")

    def stop(self) -> None:
        """End the job and all its processes, however it is."""
        self._ending.set()
        self._thread.join()
        if self.process.poll() is None:
            kill_tree(self.process.pid)
            self.process.wait()

    def _client(self) -> Client:
        return Client(f"127.0.0.1:{self.port}", self._token)

    def _launch(self, *more: str) -> subprocess.Popen[bytes]:
        self.starts += 1
        settings = [f"-D{key}={value}" for key, value in self._settings.items()]
        with self.log.open("wb") as log:
            return subprocess.Popen(
                [*TIDEGATE, "run", str(JOB), *more, *settings], cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _watch(self) -> None:
        while not self._ending.wait(0.2):
            if self.process.poll() is not None:
                self.process = self._launch()
