"""`python -m chaos run`: a real job on a real cluster, killed again and again, and every row counted at the end.

The walk goes through the fault matrix (`chaos.matrix`), cell by cell in an order the seed decides, then on to random
moments. The job is a process of its own that is started again whenever it ends, as a supervisor would.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tidegate.testing.faults
from chaos.matrix import Cell, How, Phase, Victim, cells
from chaos.tally import Feed, read_output, verify, visible
from tidegate.testing.cluster import StandaloneCluster
from tidegate.testing.faults import FaultOrders
from tidegate.testing.processes import alive, descendants

SUMMARY = "Kill workers, executors, hosts and drivers of a real job on a 2-worker cluster; count every row at the end."

PAUSE_S = 15.0
"""Longer than a new driver waits for the heartbeat of the old one, and than Spark waits for a silent executor."""
ARRIVAL_S = 90.0
"""How long a step may take to be reached."""
RECOVERY_S = 240.0
"""Longer than any recovery may take: past it, the job hangs."""
ROOT = Path(__file__).resolve().parent.parent


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=6, help="how many faults (default: 6)")
    parser.add_argument(
        "--matrix", action="store_true", help="every cell of the fault matrix first, then --rounds random ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="rocksdb", choices=("rocksdb", "hashmap"))
    parser.add_argument("--unique", action="store_true", help="put a fresh uuid on every row")
    parser.add_argument(
        "--pipeline", choices=("kafka-kafka", "kafka-postgres", "kafka-files-s3", "kafka-delta"),
        help="between real servers, which are killed too",
    )  # fmt: skip
    parser.add_argument(
        "--rescales", action="store_true",
        help="a pipeline whose target is away for minutes while the job is killed, stopped and started with another parallelism",
    )  # fmt: skip
    parser.add_argument(
        "--upserts", action="store_true", help="--rescales of kafka-postgres with the newest value of each key"
    )
    parser.add_argument(
        "--outage", type=float, default=120.0, metavar="SECONDS",
        help="how long a target is away with --rescales, half of it to twice as long (default: 120)",
    )  # fmt: skip
    parser.add_argument(
        "--clock-jumps", action="store_true", help="with --rescales, the wall clock of driver and workers jumps too"
    )
    parser.add_argument(
        "--savepoints", action="store_true", help="die in the middle of savepoints, stops, and starts from a savepoint"
    )
    parser.add_argument(
        "--plain-spark", action="store_true", help="the pipeline without tidegate: count its duplicates"
    )
    parser.add_argument(
        "--at-most", type=float, metavar="SECONDS", help="begin no further round, or cell of the matrix, after that"
    )
    parser.add_argument("--only", help="only cells whose name contains this")
    parser.add_argument(
        "--after", type=Path, metavar="FILE", help="the result of an earlier walk: its cells are not walked again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument(
        "--folder", type=Path, help="keep everything there (default: a temporary folder, removed if all is well)"
    )


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
        self.recovery_s: dict[str, list[float]] = defaultdict(list)
        self.driver: subprocess.Popen[bytes] | None = None
        self.starts = self.gave_up = 0
        self.environment: dict[str, str] = {}
        """Further variables of the driver."""
        self.most_unseen = 3_000
        """Rows that were sent and cannot be seen yet: above that, no more are sent."""
        self._drivers: list[subprocess.Popen[bytes]] = []
        self._stop = threading.Event()
        self._hold = threading.Event()

    # -- the job and its supervisor ----------------------------------------------------------------------------------

    def command(self) -> list[str]:
        """The module that is the job, and what it is told."""
        return ["chaos.counted", "--backend", self._options.backend, *(["--unique"] if self._options.unique else [])]

    def arguments(self) -> list[str]:
        """Of the Python that is the driver."""
        return ["-m", *self.command(), "--master", self.cluster.url, "--folder", str(self.folder)]

    def visible(self) -> int:
        """How many rows readers see now."""
        return visible(self.folder)

    def launch(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        log = (self.folder / f"driver-{self.starts:03d}.log").open("wb")
        command = [sys.executable, *self.arguments()]
        environment = {
            **os.environ,
            **fault_environment(self.orders),
            **self.environment,
            "TIDEGATE_LOCAL_DIR": str(self.folder / "driver"),
        }
        with log:
            started = subprocess.Popen(
                command, env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=ROOT,
                start_new_session=True,
            )  # fmt: skip
        self._drivers = [*(driver for driver in self._drivers if driver.poll() is None), started]
        return started

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
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        elif cell.victim is Victim.HOST:
            host = self._host_of(pid)
            if host is not None:
                self.cluster.kill_worker(host)
                time.sleep(1.0)
                self.cluster.restart_worker(host)

    def _rival(self, pid: int) -> None:
        """While the driver sleeps, another one is started and claims the job; then the sleeper wakes and must stop."""
        sleeper = self.driver
        assert sleeper is not None
        self._hold.set()
        try:
            before = self._slots()
            self.driver = self.launch()
            # A busy machine takes its time to start a driver; woken too early, the sleeper would rightly keep its job.
            latest = time.monotonic() + RECOVERY_S
            while self._slots() == before and time.monotonic() < latest:
                time.sleep(0.1)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            try:
                sleeper.wait(timeout=120)
            except subprocess.TimeoutExpired:
                raise Hang("a driver that was paused and lost the job did not stop") from None
        finally:
            self._hold.clear()

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
        worker = self._random.randrange(len(self.cluster.workers))
        match victim:
            case Victim.PYTHON_WORKER:
                self.cluster.kill_python_workers(worker)
            case Victim.EXECUTOR:
                self.cluster.kill_executor(worker)
            case Victim.HOST:
                self.cluster.kill_worker(worker)
                time.sleep(1.0)
                self.cluster.restart_worker(worker)
            case Victim.DRIVER:
                self._kill_driver()
        self._await_checkpoint(before, RECOVERY_S)
        took = time.monotonic() - started
        self.kills[f"{victim} {How.KILL}"] += 1
        self.hits[f"at random / {victim} / {How.KILL}"] += 1
        self.recovery_s[f"{victim} {How.KILL}"].append(round(took, 2))
        say(f"  at random / {victim}: back after {took:.1f} s")

    # -- what can be seen from outside --------------------------------------------------------------------------------

    def log_names(self) -> list[str]:
        """Names of the entries of the job's log."""
        with suppress(FileNotFoundError):
            return [name for name in os.listdir(self.folder / "checkpoints" / "counted" / "log") if name.isdigit()]
        return []

    def log_entry(self, name: str) -> bytes | None:
        with suppress(FileNotFoundError):
            return (self.folder / "checkpoints" / "counted" / "log" / name).read_bytes()
        return None

    def _slots(self) -> int:
        """The newest entry of the job's log."""
        return max(map(int, self.log_names()), default=0)

    def _await_checkpoint(self, after: int, timeout_s: float) -> None:
        """Return when a checkpoint was published after that entry."""
        latest = time.monotonic() + timeout_s
        at = after + 1
        while time.monotonic() < latest:
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
        latest = time.monotonic() + RECOVERY_S
        while self.visible() < len(self.feed.rows):
            if self.driver is not None and self.driver.poll() is not None:
                self.driver = self.launch()
            if time.monotonic() > latest:
                return
            time.sleep(0.5)
        # Whatever comes too much, comes now.
        time.sleep(5)


def run(options: argparse.Namespace) -> int:
    if options.pipeline is not None:
        from chaos.pipeline import run_pipeline

        return run_pipeline(options)
    given = options.folder is not None
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    orders = FaultOrders(folder / "orders")
    started = time.monotonic()
    walked = {} if options.after is None else json.loads(options.after.read_text())["hits"]
    tormenting, every = _kind(options)
    todo = [cell for cell in every if str(cell) not in walked and (options.only is None or options.only in str(cell))]
    problem: str | None = None
    begun: list[Any] = []
    with StandaloneCluster(directory=folder / "cluster", environment=fault_environment(orders), cores=2) as cluster:
        torment = tormenting(cluster, orders, folder, options)
        with torment.supervised():
            try:
                # Also where the shell that started it in the background had it ignore both.
                for stopping in (signal.SIGINT, signal.SIGTERM):
                    signal.signal(stopping, signal.default_int_handler)
                try:
                    walk(torment, todo, options, begun)
                except KeyboardInterrupt:
                    problem = "stopped by hand before its end"
                torment.settle()
            except Hang as hang:
                problem = f"hang: {hang}"
    verdict = verify(torment.feed.rows, read_output(folder))
    expected = todo if options.at_most is None else begun
    unhit = [str(cell) for cell in expected if not torment.hits[str(cell)]] if options.matrix else []
    result: dict[str, Any] = {
        "rounds": sum(torment.kills.values()),
        "kills": dict(torment.kills),
        "lost": verdict.lost,
        "duplicated": verdict.duplicated,
        "wrong": list(verdict.wrong),
        "rows": verdict.expected,
        "problem": problem,
        "hits": walked | dict(torment.hits),
        "unhit": unhit,
        "driver_starts": torment.starts,
        "gave_up": torment.gave_up,
        "recovery_s": {kind: summary(times) for kind, times in torment.recovery_s.items()},
        "seed": options.seed,
        "backend": options.backend,
        "unique": options.unique,
        "seconds": round(time.monotonic() - started, 1),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    fine = verdict.exact and problem is None and not unhit and not torment.gave_up
    say(
        f"{result['rounds']} faults, {verdict.expected} rows: {verdict.lost} lost, {verdict.duplicated} doubled, "
        f"{len(verdict.wrong)} wrong results, {len(unhit)} cells not reached{'; ' + problem if problem else ''}"
    )
    for wrong in verdict.wrong[:10]:
        say(f"  {wrong}")
    if fine and not given:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
    elif not fine:
        say(f"everything is kept in {folder}")
    return 0 if fine else 1


def _kind(options: argparse.Namespace) -> tuple[type[Torment], list[Any]]:
    if options.savepoints:
        from chaos.moves import Moves, move_cells

        return Moves, list(move_cells())
    return Torment, list(cells(options.backend))


def walk(torment: Torment, todo: list[Any], options: argparse.Namespace, begun: list[Any]) -> None:
    """Go through all cells, or through `--rounds` of them. `begun` receives the cells of the matrix that were tried."""
    chance, started = random.Random(options.seed), time.monotonic()
    if options.matrix:
        order = list(todo)
        chance.shuffle(order)
        for number, cell in enumerate(order, 1):
            if options.at_most is not None and time.monotonic() - started > options.at_most:
                say(f"{options.at_most:g} s have passed; {len(order) - number + 1} cells are left for another walk")
                break
            say(f"cell {number} of {len(order)}")
            begun.append(cell)
            torment.strike(cell)
        for cell in [cell for cell in begun if not torment.hits[str(cell)]]:
            torment.strike(cell)  # A step may be missed once: a driver that died took the order's chance with it.
        for _ in range(options.rounds):
            torment.at_random()
        return
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        # A step may not come along, as a sweep does not where nothing was left behind.
        if number % 2 or not any(torment.strike(cell) for cell in chance.sample(todo, min(3, len(todo)))):
            torment.at_random()


def summary(times: list[float]) -> dict[str, float]:
    return {"n": len(times), "median": statistics.median(times), "max": max(times)}


def fault_environment(orders: FaultOrders) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
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
