"""A tormented job that is run with `tidegate run`, and can be asked over REST, as a user's job is."""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from chaos import moved
from chaos.counted import CHANGELOG, DELAYS
from chaos.torment import ARRIVAL_S, ROOT, Hang, Torment
from tests.servers.process import free_ports
from tidegate.control.rest.client import Client, Refused, Unreachable

WELL_S = 120.0
"""How long a job may take until it answers."""
TIDEGATE = ("-c", "from tidegate.control.cli import main; main()")
"""The command of that name, for the Python that runs this."""


class Served(Torment):
    """The job, its address, and what can be seen of it."""

    def __init__(self, cluster: Any, orders: Any, folder: Path, options: argparse.Namespace) -> None:
        super().__init__(cluster, orders, folder, options)
        self._port = 0
        self.start: list[str] = []
        """What the next start says beyond the plain command. A supervisor repeats only the plain one."""
        os.environ |= {moved.MASTER: cluster.url, moved.FOLDER: str(folder)}

    def arguments(self) -> list[str]:
        (self._port,) = free_ports(1)
        start, self.start = self.start, []
        return self.run_command(self.folder / "checkpoints", self._port, start)

    def run_command(self, directory: Path, port: int, start: list[str]) -> list[str]:
        """Of a job that keeps its checkpoints in a directory."""
        settings = {
            "execution.checkpointing.dir": directory,
            "execution.checkpointing.savepoint-dir": self.folder / "savepoints",
            "execution.checkpointing.interval": "2 s",
            "execution.checkpointing.incremental": "true",
            "execution.checkpointing.data-inline-threshold": "0",
            "execution.checkpointing.tolerable-failed-checkpoints": "100",
            "state.backend.type": self._options.backend,
            "rest.port": port,
            **DELAYS,
            **(CHANGELOG if self._options.changelog else {}),
        }
        told = (f"-D{key}={value}" for key, value in settings.items())
        return [*TIDEGATE, "run", str(ROOT / "chaos" / "moved.py"), *start, *told]

    def arrived(self, order: str) -> bool:
        """Wait until somebody is at the step of the order. False: nobody comes."""
        try:
            self.orders.wait(order, ARRIVAL_S)
        except TimeoutError:
            return False
        return True

    def client(self) -> tuple[Client, str]:
        """Of the job, as soon as it answers."""
        latest = time.monotonic() + WELL_S
        while time.monotonic() < latest:
            client = Client(f"127.0.0.1:{self._port}")
            with suppress(Unreachable, Refused):
                for job in client.jobs():
                    if job["state"] == "RUNNING":
                        return client, str(job["jid"])
            time.sleep(0.2)
        raise Hang(f"the job does not answer within {WELL_S:g} s")

    def is_up(self) -> bool:
        if self.driver is None:
            return False
        with suppress(subprocess.TimeoutExpired):
            self.driver.wait(0.5)
        return self.driver.poll() is None

    def await_gone(self) -> None:
        """The driver is expected to be gone, or to go."""
        assert self.driver is not None
        try:
            self.driver.wait(60)
        except subprocess.TimeoutExpired:
            raise Hang("a driver that was stopped or killed is still there") from None
