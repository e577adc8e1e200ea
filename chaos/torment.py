"""A job on a cluster that is killed on purpose: its supervisor, its feed, and one fault after the other.

The job is a process that is started again whenever it ends, as a supervisor would. `chaos.run` decides which faults there are;
`chaos.moves`, `chaos.histories`, `chaos.in_place`, `chaos.pipeline` and `chaos.rescales` have jobs and faults of further kinds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tidegate.testing.faults
from chaos.matrix import Cell, How, Phase, Victim
from chaos.tally import Feed, Verdict, read_output, verify, visible
from tests.speed import Limit
from tidegate.testing.cluster import StandaloneCluster
from tidegate.testing.faults import FaultOrders
from tidegate.testing.processes import alive, descendants

PAUSE_S = 15.0
"""Longer than a new driver waits for the heartbeat of the old one, and than Spark waits for a silent executor."""
ARRIVAL_S = 90.0
"""How long a step may take to be reached."""
RECOVERY_S = 240.0
"""Longer than any recovery may take while nothing else runs: past it, the job hangs."""
ROOT = Path(__file__).resolve().parent.parent


class Hang(Exception):
    """The job did not come back in time."""


class Torment:
    """One job, one cluster, and what happened to them."""

    def __init__(
        self, cluster: StandaloneCluster, orders: FaultOrders, folder: Path, options: argparse.Namespace
    ) -> None:
        self.cluster, self.orders, self.folder = cluster, orders, folder
        self._options = options
        self._random = random.Random(options.seed)
        self.feed = Feed(folder)
        self.hits: Counter[str] = Counter()
        self.kills: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        """How the job took what it was asked for meanwhile."""
        self.recovery_s: dict[str, list[float]] = defaultdict(list)
        self.driver: subprocess.Popen[bytes] | None = None
        self.starts = self.gave_up = 0
        self.environment: dict[str, str] = {}
        """Further variables of the driver."""
        self.most_unseen = 1_000 if options.function else 3_000
        """Rows that were sent and cannot be seen yet: above that, no more are sent."""
        self._drivers: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}
        # The supervisor restarts the job while a walk may start a copy of it.
        self._launching = threading.Lock()
        self._stop = threading.Event()
        self._hold = threading.Event()

    # -- the job and its supervisor ----------------------------------------------------------------------------------

    def command(self) -> list[str]:
        """The module that is the job, and what it is told."""
        chosen = [f"--{name}" for name in ("unique", "batches", "calls", "changelog") if getattr(self._options, name)]
        function = ["--function", self._options.function] if self._options.function else []
        return ["chaos.counted", "--backend", self._options.backend, *chosen, *function]

    def arguments(self) -> list[str]:
        """Of the Python that is the driver."""
        return ["-m", *self.command(), "--master", self.cluster.url, "--folder", str(self.folder)]

    def visible(self) -> int:
        """How many rows readers see now."""
        return visible(self.folder)

    def launch(self) -> subprocess.Popen[bytes]:
        return self.spawn(self.arguments(), self.environment)

    def spawn(self, arguments: list[str], further: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a driver, with further variables."""
        with self._launching:
            self.starts += 1
            path = self.folder / f"driver-{self.starts:03d}.log"
        command = [sys.executable, *arguments]
        environment = {
            **os.environ,
            **fault_environment(self.orders),
            **further,
            "TIDEGATE_LOCAL_DIR": str(self.folder / "driver"),
        }
        with path.open("wb") as log:
            started = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip
        with self._launching:
            self._logs[started.pid] = path
            self._drivers = [*(driver for driver in self._drivers if driver.poll() is None), started]
        return started

    def log_of(self, driver: subprocess.Popen[bytes]) -> str:
        """What a driver has printed."""
        return self._logs[driver.pid].read_text(errors="replace")

    @contextmanager
    def supervised(self) -> Iterator[None]:
        """The job runs, is started again when it ends, and is fed, for the length of the block."""
        self.driver = self.launch()
        threads = [threading.Thread(target=work, daemon=True) for work in (self._supervise, self._keep_feeding)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(10)
            for driver in self._drivers:
                end(driver)

    def _supervise(self) -> None:
        while not self._stop.wait(0.2):
            if self.driver is not None and self.driver.poll() is not None and not self._hold.is_set():
                # Whoever is killed has a negative code. A job that gives up needs somebody to start it.
                self.gave_up += self.driver.returncode > 0
                self.driver = self.launch()

    def _keep_feeding(self) -> None:
        while not self._stop.wait(0.3):
            # A job that is down is not buried under rows: what is measured then is recovery, not catching up.
            if len(self.feed.rows) - self.visible() < self.most_unseen:
                self.feed.write(20)

    # -- one fault ----------------------------------------------------------------------------------------------------

    def strike(self, cell: Cell) -> bool:
        """Bring the fault of a cell about and wait until the job is well again. False: its step was not reached."""
        if cell.step.phase is Phase.RECOVERING:
            order = self._order(cell)
            self._kill_driver()
        else:
            self._await_checkpoint(self._slots(), RECOVERY_S)
            order = self._order(cell)
        try:
            pid = self.orders.wait(order, ARRIVAL_S + (60 if cell.step.phase is Phase.RECOVERING else 0))
        except TimeoutError:
            self.orders.clear()
            say(f"  {cell}: not reached")
            return False
        started, before = time.monotonic(), self._slots()
        self._carry_out(cell, pid)
        self._await_checkpoint(before, RECOVERY_S)
        took = time.monotonic() - started
        self.orders.clear()
        self.hits[str(cell)] += 1
        self.kills[f"{cell.victim} {cell.how}"] += 1
        self.recovery_s[f"{cell.victim} {cell.how}"].append(round(took, 2))
        say(f"  {cell}: back after {took:.1f} s")
        return True

    def _order(self, cell: Cell) -> str:
        if cell.how is How.LOST_REPLY:
            return self.orders.give(cell.step.point, "lose-reply")
        if cell.how is How.PAUSE:
            return self.orders.give(cell.step.point, "stop")
        match cell.victim:
            case Victim.EXECUTOR:
                return self.orders.give(cell.step.point, "kill-executor")
            case Victim.HOST:
                # Held until the whole host has been killed under it.
                return self.orders.give(cell.step.point, "sleep", seconds=20)
            case _:
                return self.orders.give(cell.step.point, "kill")

    def _carry_out(self, cell: Cell, pid: int) -> None:
        if cell.how is How.PAUSE and cell.victim is Victim.DRIVER:
            self._rival(pid)
        elif cell.how is How.PAUSE:
            time.sleep(PAUSE_S)
            self._wake(pid)
        elif cell.victim is Victim.HOST:
            host = self._host_of(pid)
            if host is not None:
                self._lose_host(host)

    def _rival(self, pid: int) -> None:
        """While the driver sleeps, another one is started and claims the job; then the sleeper wakes and must stop."""
        sleeper = self.driver
        assert sleeper is not None
        self._hold.set()
        try:
            before = self._slots()
            self.driver = self.launch()
            # A busy machine takes its time to start a driver; woken too early, the sleeper would rightly keep its job.
            limit = Limit(RECOVERY_S)
            while self._slots() == before and not limit.passed():
                time.sleep(0.1)
            self._wake(pid)
            try:
                sleeper.wait(timeout=120)
            except subprocess.TimeoutExpired:
                raise Hang("a driver that was paused and lost the job did not stop") from None
        finally:
            self._hold.clear()

    def _wake(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _kill_driver(self) -> None:
        assert self.driver is not None
        with suppress(ProcessLookupError):
            self.driver.send_signal(signal.SIGKILL)

    def _host_of(self, pid: int) -> int | None:
        for worker in self.cluster.workers:
            if worker.daemon is not None and pid in descendants(worker.daemon.pid):
                return worker.index
        return None

    def at_random(self) -> None:
        """A fault at no particular moment."""
        self._await_checkpoint(self._slots(), RECOVERY_S)
        time.sleep(self._random.uniform(0, 3))
        victim = self._random.choice(list(Victim))
        started, before = time.monotonic(), self._slots()
        self._kill(victim, self._random.randrange(len(self.cluster.workers)))
        self._await_checkpoint(before, RECOVERY_S)
        took = time.monotonic() - started
        self.kills[f"{victim} {How.KILL}"] += 1
        self.hits[f"at random / {victim} / {How.KILL}"] += 1
        self.recovery_s[f"{victim} {How.KILL}"].append(round(took, 2))
        say(f"  at random / {victim}: back after {took:.1f} s")

    def _kill(self, victim: Victim, worker: int) -> None:
        """Kill the driver, or what runs on a worker."""
        match victim:
            case Victim.PYTHON_WORKER:
                self.cluster.kill_python_workers(worker)
            case Victim.EXECUTOR:
                self.cluster.kill_executor(worker)
            case Victim.HOST:
                self._lose_host(worker)
            case Victim.DRIVER:
                self._kill_driver()

    def _lose_host(self, worker: int) -> None:
        """Kill a host with its disk. Another one comes in its place."""
        self.cluster.kill_worker(worker)
        time.sleep(1.0)
        self.cluster.restart_worker(worker)

    # -- what can be seen from outside --------------------------------------------------------------------------------

    def log_names(self) -> list[str]:
        """Names of the entries of the job's log."""
        return names_of_entries(self.folder / "checkpoints" / "counted")

    def log_entry(self, name: str) -> bytes | None:
        return read_entry(self.folder / "checkpoints" / "counted", name)

    def _slots(self) -> int:
        """The newest entry of the job's log."""
        return max(map(int, self.log_names()), default=0)

    def _await_checkpoint(self, after: int, timeout_s: float) -> None:
        """Return when a checkpoint was published after that entry."""
        limit = Limit(timeout_s)
        at = after + 1
        while not limit.passed():
            entry = self.log_entry(f"{at:012d}")
            with suppress(ValueError):
                if entry is not None:
                    if json.loads(entry)["kind"] == "checkpoint":
                        return
                    at += 1
                    continue
            time.sleep(0.05)
        raise Hang(f"no checkpoint was completed for {timeout_s:g} s")

    def settle(self) -> None:
        """No more rows come; wait until all that were sent can be seen."""
        self._stop.set()
        limit = Limit(RECOVERY_S)
        passing = time.monotonic() + 1.0  # The feed may be writing its last rows.
        while self.visible() < len(self.feed.rows):
            if self._options.function and time.monotonic() > passing:
                self.feed.pass_time()
                passing = time.monotonic() + 5.0
            if self.driver is not None and self.driver.poll() is not None:
                self.driver = self.launch()
            if limit.passed():
                return
            time.sleep(0.5)
        # Whatever comes too much, comes now.
        time.sleep(5)

    # -- who counts ---------------------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Compare what was sent with what readers find. The job must have ended."""
        return verify(self.feed.rows, read_output(self.folder))

    def findings(self) -> dict[str, Any]:
        """What else belongs into the report."""
        return {}


def names_of_entries(job: Path) -> list[str]:
    """Names of the entries of a job's log that have not been deleted."""
    with suppress(FileNotFoundError):  # a folder of old entries was deleted meanwhile
        return [file.name for file in (*job.glob("log/*"), *job.glob("entries/*/*")) if file.name.isdigit()]
    return []


def read_entry(job: Path, name: str) -> bytes | None:
    with suppress(FileNotFoundError):
        for file in (*job.glob(f"log/{name}"), *job.glob(f"entries/*/{name}")):
            return file.read_bytes()
    return None


def summary(times: list[float]) -> dict[str, float]:
    return {"n": len(times), "median": statistics.median(times), "max": max(times)}


def versions() -> dict[str, str]:
    """What the walk runs on."""
    import pyspark  # Late: the harness itself needs no Spark.

    return {"python": platform.python_version(), "spark": pyspark.__version__}


def python_path() -> str:
    """Where processes of the harness find it, and tidegate."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(path for path in paths if path)


def fault_environment(orders: FaultOrders) -> dict[str, str]:
    return {
        "PYTHONPATH": python_path(),
        "TIDEGATE_FAULTS": str(tidegate.testing.faults.__file__),
        tidegate.testing.faults.VARIABLE: str(orders.directory),
    }


def end(process: subprocess.Popen[bytes]) -> None:
    """With everything below it: a killed driver may leave its JVM for a moment."""
    below = descendants(process.pid)
    for pid in [process.pid, *below]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(timeout=20)
    latest = time.monotonic() + 10
    while any(alive(pid) for pid in below) and time.monotonic() < latest:
        time.sleep(0.1)


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)
