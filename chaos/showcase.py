"""`python -m chaos showcase`: the shop of `examples/showcase`, on a cluster of two hosts; all that it runs on is killed in turn.

The driver, its executors, their Python workers, the broker and the database die, at a step of the job's protocols or at no
particular moment. At the end the verifier of the showcase compares all outputs with what was sent, row by row.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from chaos.counted import DELAYS, SPARK
from chaos.torment import RECOVERY_S, Hang, fault_environment, say, summary
from examples.showcase.generator import Generator
from examples.showcase.servers import Servers
from examples.showcase.supervisor import Supervisor
from examples.showcase.totals import TotalsReader
from examples.showcase.verifier import Verdict, all_exact, verify
from tidegate.testing.cluster import StandaloneCluster
from tidegate.testing.faults import FaultOrders

SUMMARY = "Kill the driver, executors, Python workers, the broker and the database of the showcase; verify every row."

_ARRIVAL_S = 60.0
"""How long a step may take to be reached."""


class Kind(StrEnum):
    DRIVER = "driver SIGKILL"
    WORKER = "python-worker SIGKILL"
    EXECUTOR = "executor SIGKILL"
    BROKER = "broker SIGKILL"
    DATABASE = "database SIGQUIT"


STEPS: dict[Kind, tuple[str, ...]] = {
    Kind.DRIVER: (
        "epoch.4-recorded", "publish.1-metadata", "publish.2-entry", "release.1-commit", "release.2-committed",
        "kafka.2-sent", "kafka.4-committed", "postgres.2-copied", "postgres.3-committed",
        "iceberg.2-checked", "iceberg.3-added",
    ),
    Kind.WORKER: ("task.2-first-row", "task.4-sealed", "task.5-prepared", "task.6-sent"),
    Kind.EXECUTOR: ("task.2-first-row", "task.4-sealed", "task.6-sent"),
}  # fmt: skip
"""Where who dies. Servers die at no particular moment."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kills", type=int, default=10, help="how many processes die (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=10, help="orders per second (default: 10)")
    parser.add_argument("--only", choices=[kind.name.lower() for kind in Kind], help="only kills of this kind")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument(
        "--folder", type=Path, help="keep everything there (default: a temporary folder, removed if all is well)"
    )


class ShopTorment:
    """The running shop, and what happened to it."""

    def __init__(self, folder: Path, servers: Servers, cluster: StandaloneCluster, options: argparse.Namespace) -> None:
        self._servers, self._cluster = servers, cluster
        self._random = random.Random(options.seed)
        self._orders = FaultOrders(folder / "orders")
        settings = [word for key, value in SPARK.items() for word in ("--conf", f"{key}={value}")]
        environment = {
            **servers.addresses(),
            **fault_environment(self._orders),
            "PYSPARK_SUBMIT_ARGS": shlex.join(["--master", cluster.url, *settings, "pyspark-shell"]),
        }
        chosen = {
            **{key: str(value) for key, value in DELAYS.items()},
            "execution.checkpointing.tolerable-failed-checkpoints": "100",
        }
        self.generator = Generator(servers.kafka.bootstrap_servers, folder, seed=options.seed, rate=options.rate)
        self.supervisor = Supervisor(folder, environment, settings=chosen)
        self._reader = TotalsReader(servers, self.generator, self.supervisor)
        self._driver_pid = self.supervisor.process.pid
        self.kills: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self.recovery_s: dict[str, list[float]] = defaultdict(list)

    def round(self, kind: Kind, point: str | None) -> None:
        """Bring one death about, and wait until new settled orders are seen again."""
        self._await_rows(self._reader.settled())
        where, started = "at random", time.monotonic()
        if point is not None:
            order = self._orders.give(point, "kill-executor" if kind is Kind.EXECUTOR else "kill")
            try:
                pid = self._orders.wait(order, _ARRIVAL_S)
            except TimeoutError:
                say(f"  {kind} at {point}: not reached; it dies at random instead")
                self._orders.clear()
                point = None
            else:
                where, started = f"at {point}", time.monotonic()
                if kind is Kind.DRIVER and pid != self._driver_pid:
                    kind = Kind.WORKER  # A task came to that step, and not the driver.
        if point is None:
            time.sleep(self._random.uniform(0, 3))
            started = time.monotonic()
            while not self._kill(kind):
                time.sleep(0.5)  # It is between two lives. What nobody dies of does not count.
                if time.monotonic() > started + RECOVERY_S:
                    raise Hang(f"{kind}: there was no such process for {RECOVERY_S:g} s")
        self._await_rows(self._reader.settled())
        took = time.monotonic() - started
        self._orders.clear()
        self.kills[kind] += 1
        self.hits[f"{kind} {where}"] += 1
        self.recovery_s[kind].append(round(took, 2))
        say(f"  {kind} {where}: new rows after {took:.1f} s; {self._reader.read()}")

    def _kill(self, kind: Kind) -> bool:
        """Return whether a process was there to die."""
        host = self._random.randrange(len(self._cluster.workers))
        match kind:
            case Kind.DRIVER:
                process = self.supervisor.process
                if process.poll() is not None:
                    return False
                process.send_signal(signal.SIGKILL)
            case Kind.WORKER:
                return bool(self._cluster.kill_python_workers(host))
            case Kind.EXECUTOR:
                return bool(self._cluster.kill_executor(host))
            case Kind.BROKER:
                self._servers.kafka.kill()
                time.sleep(self._random.choice((1.0, 4.0)))
                self._servers.kafka.start()
            case Kind.DATABASE:
                with self._servers.postgres.outage():
                    time.sleep(self._random.choice((1.0, 4.0)))
        return True

    def _await_rows(self, seen: int) -> None:
        latest = time.monotonic() + RECOVERY_S
        while self._reader.settled() <= seen:
            self._driver_pid = self.supervisor.process.pid
            if time.monotonic() > latest:
                raise Hang(f"no new settled order was seen for {RECOVERY_S:g} s; read {self.supervisor.log}")
            time.sleep(0.2)

    @contextmanager
    def running(self) -> Iterator[None]:
        self.generator.start()
        try:
            yield
        finally:
            self.supervisor.stop()
            self._reader.close()


def plan_kills(count: int, seed: int, only: str | None = None) -> list[tuple[Kind, str | None]]:
    """Every kind in turn, in an order that the seed decides; every other one at a step, where there are steps."""
    chance = random.Random(seed)
    kinds = [kind for kind in Kind if only is None or kind.name.lower() == only]
    chance.shuffle(kinds)
    found: list[tuple[Kind, str | None]] = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        at_step = kind in STEPS and sum(divmod(number, len(kinds))) % 2 == 0
        found.append((kind, chance.choice(STEPS[kind]) if at_step else None))
    return found


def run(options: argparse.Namespace) -> int:
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tidegate-showcase-"))
    folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started, problem = time.monotonic(), None
    verdicts: list[Verdict] = []
    environment = fault_environment(FaultOrders(folder / "orders"))
    with Servers(folder) as servers:
        say("the servers are up")
        with StandaloneCluster(directory=folder / "cluster", environment=environment, cores=2) as cluster:
            torment = ShopTorment(folder, servers, cluster, options)
            say(f"watch it at {torment.supervisor.ui_url}")
            with torment.running():
                try:
                    for number, (kind, point) in enumerate(plan_kills(options.kills, options.seed, options.only), 1):
                        say(f"kill {number} of {options.kills}")
                        torment.round(kind, point)
                    torment.generator.stop()
                    torment.supervisor.finish()
                    verdicts = verify(torment.generator.journal, servers)
                except (Hang, RuntimeError) as error:
                    problem = f"{type(error).__name__}: {error}"
    result = _result(torment, verdicts, problem) | {
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    for verdict in verdicts:
        say(str(verdict))
    say(_summary(result))
    fine = problem is None and all_exact(verdicts)
    if fine and options.folder is None:
        shutil.rmtree(folder, ignore_errors=True)
    elif not fine:
        say(f"everything is kept in {folder}")
    return 0 if fine else 1


def _summary(result: dict[str, Any]) -> str:
    if result["lost"] is None:
        return f"{result['rounds']} kills; the rows were not verified: {result['problem']}"
    counted = f"{result['lost']} lost, {result['duplicated']} doubled, {len(result['wrong'])} wrong"
    return f"{result['rounds']} kills, {result['rows']} rows: {counted}"


def _result(torment: ShopTorment, verdicts: list[Verdict], problem: str | None) -> dict[str, Any]:
    return {
        "rounds": sum(torment.kills.values()),
        "kills": dict(torment.kills),
        "hits": dict(torment.hits),
        "lost": sum(verdict.lost.total() for verdict in verdicts) if verdicts else None,
        "duplicated": sum(verdict.doubled.total() for verdict in verdicts) if verdicts else None,
        "wrong": [f"{verdict.output}: {row}" for verdict in verdicts for row in verdict.wrong],
        "rows": sum(verdict.expected for verdict in verdicts),
        "outputs": {verdict.output: verdict.expected for verdict in verdicts},
        "orders": torment.generator.orders,
        "payments": torment.generator.payments,
        "problem": problem,
        "driver_starts": torment.supervisor.starts,
        "recovery_s": {kind: summary(times) for kind, times in torment.recovery_s.items()},
    }
