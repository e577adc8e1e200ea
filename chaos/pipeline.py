"""`python -m chaos run --pipeline kafka-postgres`: a job between real servers; everything is killed, cut off and talked past.

What goes wrong goes wrong at a step of the job's protocols, or at no particular moment. At the end a reader finds every row
once, numbered per key without gap, and in order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from chaos.ends import ENDS, SOURCE_PARTITIONS, Ends, Row
from chaos.torment import RECOVERY_S, Hang, Torment, fault_environment, say, summary, versions
from tests.speed import Limit
from tidegate.core.errors import StorageError
from tidegate.storage import open_storage
from tidegate.testing.cluster import StandaloneCluster
from tidegate.testing.faults import FaultOrders

KEYS = 13
_ARRIVAL_S = 120.0
"""How long a step may take to be reached."""


class Kind(StrEnum):
    WORKER = "python-worker SIGKILL"
    EXECUTOR = "executor SIGKILL"
    DRIVER = "driver SIGKILL"
    SOURCE = "broker SIGKILL"
    TARGET = "target SIGKILL"
    CUT_SOURCE = "wire to the broker cut"
    CUT_TARGET = "wire to the target cut"
    LOST_REPLIES = "replies of the target lost"


_IN_TASKS = ("task.2-first-row", "task.4-sealed", "task.5-prepared", "task.6-sent", "upload.2-noted")
_IN_DRIVER = ("epoch.4-recorded", "publish.1-metadata", "publish.2-entry", "release.1-commit", "release.2-committed")
STEPS_OF_SINKS = {
    "kafka-kafka": ("kafka.1-marker-read", "kafka.2-sent", "kafka.3-marked", "kafka.4-committed"),
    "kafka-postgres": ("postgres.1-marked", "postgres.2-copied", "postgres.3-committed"),
    "kafka-files-s3": ("files.1-marked", "files.2-completed"),
    "kafka-delta": ("delta.1-read", "delta.2-checked", "delta.3-added"),
}


@dataclass
class TopicFeed:
    """Rows into the source's topic, in order within each key, and what they were. A broker that is down is waited for."""

    ends: Ends
    keys: int = KEYS
    rows: list[tuple[int, int]] = field(default_factory=list)
    _producer: Any = None

    def write(self, count: int) -> None:
        import confluent_kafka as ck

        if self._producer is None:
            settings = {
                "bootstrap.servers": self.ends.broker.bootstrap_servers,
                "enable.idempotence": True,
                "log_level": 0,
            }
            self._producer = ck.Producer(settings)
        for i in range(len(self.rows), len(self.rows) + count):
            k = random.Random(i).randrange(self.keys)
            self._producer.produce(
                self.ends.source, key=str(k), value=str(i), partition=k % SOURCE_PARTITIONS, on_delivery=_delivered
            )
            self.rows.append((k, i))
        self._producer.poll(0)

    def flush(self) -> None:
        if self._producer is not None and self._producer.flush(120):
            raise Hang("the broker does not take rows")


def _delivered(error: Any, message: Any) -> None:
    if error is not None:
        say(f"  the feed lost a row: {error}")


class PipelineTorment(Torment):
    """A pipeline between real servers, and what happened to it."""

    def __init__(
        self, cluster: StandaloneCluster, orders: FaultOrders, folder: Path, options: argparse.Namespace, ends: Ends
    ) -> None:
        super().__init__(cluster, orders, folder, options)
        self.ends = ends
        self.feed = TopicFeed(ends)  # type: ignore[assignment]
        self._seen = 0
        self._counting = threading.Lock()
        where, store = ends.checkpoints()
        self._plan = {
            "servers": ends.broker.wired_servers, "source": ends.source, "target": ends.target(), "checkpoints": where,
            "store": store, "connector": options.connector,
        }  # fmt: skip
        self.plan(2)
        # The harness looks at the job's log without the wire, which may be cut.
        direct = ends.store.address.options() if hasattr(ends, "store") else {}
        self._storage = open_storage(where or str(folder / "checkpoints"), **direct)

    def plan(self, parallelism: int) -> None:
        """What the job is told when it is started next."""
        self.parallelism = parallelism
        draft = self.folder / "plan.draft"
        draft.write_text(json.dumps(self._plan | {"parallelism": parallelism}))
        draft.rename(self.folder / "plan.json")

    # -- what differs from the job on files ----------------------------------------------------------------------------

    def command(self) -> list[str]:
        return ["chaos.plain_spark"] if self._options.plain_spark else ["chaos.piped"]

    def visible(self) -> int:
        with self._counting, suppress(Exception):
            self._seen = self.ends.count()
        return self._seen

    def log_names(self) -> list[str]:
        with suppress(StorageError, OSError):
            return [path.rpartition("/")[2] for path in self._log_paths()]
        return []

    def log_entry(self, name: str) -> bytes | None:
        with suppress(StorageError, OSError):
            for path in self._log_paths():
                if path.endswith(f"/{name}"):
                    return self._storage.get(path)
        return None

    def _log_paths(self) -> list[str]:
        return [found.path for folder in ("log", "entries") for found in self._storage.list(f"piped/{folder}")]

    def settle(self) -> None:
        """No more rows come; wait until each that was sent can be seen, however often."""
        self._stop.set()
        limit = Limit(RECOVERY_S)
        while not limit.passed():
            with suppress(Exception):
                if len({i for _, i, _ in self.ends.rows()}) >= len(self.feed.rows):
                    break
            if self.driver is not None and self.driver.poll() is not None:
                self.driver = self.launch()
            time.sleep(0.5)
        # Whatever comes too much, comes now.
        time.sleep(4)

    # -- one fault -----------------------------------------------------------------------------------------------------

    def round(self, kind: Kind, point: str | None) -> None:
        """Bring a fault about, at a point or at no particular moment, and wait until new rows are seen again."""
        self._await_rows(self.visible(), RECOVERY_S)
        started = time.monotonic()
        where, driver = "at random", self.driver
        if point is None:
            time.sleep(self._random.uniform(0, 2))
            started = time.monotonic()
            self._at_random(kind)
        else:
            order = self.orders.give(point, _ACTION.get(kind, "stop"))
            try:
                pid = self.orders.wait(order, _ARRIVAL_S)
            except TimeoutError:
                self.orders.clear()
                say(f"  {kind} at {point}: not reached")
                return
            where, started = f"at {point}", time.monotonic()
            if kind is Kind.DRIVER and driver is not None and pid != driver.pid:
                kind = Kind.WORKER  # A task came to that step, not the driver.
            if kind not in _ACTION:
                self._while_stopped(kind, pid)
        before = max(self.visible(), self._seen)
        self._await_rows(before, RECOVERY_S)
        took = time.monotonic() - started
        self.orders.clear()
        named = str(kind).replace("target", self.ends.server) if kind is Kind.TARGET else str(kind)
        self.kills[named] += 1
        self.hits[f"{named} {where}"] += 1
        self.recovery_s[named].append(round(took, 2))
        say(f"  {named} {where}: rows are seen again after {took:.1f} s")

    def _at_random(self, kind: Kind) -> None:
        worker = self._random.randrange(len(self.cluster.workers))
        match kind:
            case Kind.WORKER:
                self.cluster.kill_python_workers(worker)
            case Kind.EXECUTOR:
                self.cluster.kill_executor(worker)
            case Kind.DRIVER:
                self._kill_driver()
            case _:
                with self._wrong(kind):
                    time.sleep(self._random.choice((1.0, 4.0, 12.0)))

    def _while_stopped(self, kind: Kind, pid: int) -> None:
        """The driver stands at its step while the other side goes wrong; then it goes on, into what went wrong."""
        with self._wrong(kind):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            time.sleep(self._random.choice((0.5, 3.0)))

    @contextmanager
    def _wrong(self, kind: Kind) -> Iterator[None]:
        """A server is dead, or a wire is, for the length of the block."""
        match kind:
            case Kind.SOURCE:
                self.ends.broker.kill()
                yield
                self.ends.broker.start()
            case Kind.TARGET:
                self.ends.kill_target()
                yield
                self.ends.restart_target()
            case Kind.CUT_SOURCE:
                with self.ends.source_wire.cut():
                    yield
            case Kind.CUT_TARGET:
                with self.ends.target_wire.cut():
                    yield
            case _:
                with self.ends.target_wire.deaf():
                    yield

    def _await_rows(self, seen: int, timeout_s: float) -> None:
        limit = Limit(timeout_s)
        while self.visible() <= seen:
            if limit.passed():
                raise Hang(f"no new row was seen for {timeout_s:g} s")
            time.sleep(0.1)


_ACTION = {Kind.WORKER: "kill", Kind.EXECUTOR: "kill-executor", Kind.DRIVER: "kill"}
"""Who kills itself at a point. For all others the driver stops there until it is done."""


def plan_rounds(pipeline: str, rounds: int, seed: int, plain: bool, only: str | None) -> list[tuple[Kind, str | None]]:
    """Every kind in turn, half of them at a step. What speaks to a server goes wrong at the steps that speak to it."""
    chance = random.Random(seed)
    kinds = [kind for kind in Kind if only is None or only in kind]
    if pipeline == "kafka-kafka" and only is None:
        kinds = [kind for kind in kinds if kind not in (Kind.SOURCE, Kind.CUT_SOURCE)]  # both ends are one broker
    chance.shuffle(kinds)
    of_sink = STEPS_OF_SINKS[pipeline]
    places = {
        Kind.WORKER: _IN_TASKS,
        Kind.EXECUTOR: _IN_TASKS,
        Kind.DRIVER: (*_IN_DRIVER, *of_sink, *of_sink),
        Kind.SOURCE: ("epoch.2-collected", "publish.2-entry"),
        Kind.CUT_SOURCE: ("epoch.2-collected", "publish.2-entry"),
    }
    found: list[tuple[Kind, str | None]] = []
    for number in range(rounds):
        kind = kinds[number % len(kinds)]
        at_step = not plain and (number + number // len(kinds)) % 2 == 0
        found.append((kind, chance.choice(places.get(kind, of_sink)) if at_step else None))
    return found


@dataclass(frozen=True, slots=True)
class Count:
    """What a reader found."""

    expected: int
    lost: int
    duplicated: int
    wrong: tuple[str, ...]


def count_rows(fed: list[tuple[int, int]], found: list[Row], ordered: bool) -> Count:
    """Every row once, numbered per key from 1 without gap, in the order in which it was sent; with `ordered`, so as found."""
    times: dict[int, int] = defaultdict(int)
    by_key: dict[int, list[Row]] = defaultdict(list)
    for row in found:
        times[row[1]] += 1
        by_key[row[0]].append(row)
    wrong: list[str] = []
    for k, rows in sorted(by_key.items()):
        sent = [(k, i, n) for n, i in enumerate((i for key, i in fed if key == k), 1)]
        if sorted(rows) != sent:
            wrong.append(f"key {k}: numbers or order of what was sent differ")
        elif ordered and rows != sent:
            wrong.append(f"key {k}: rows are found in another order")
    strange = [i for i in times if i >= len(fed)]
    if strange:
        wrong.append(f"{len(strange)} rows were never sent")
    lost = sum(1 for _, i in fed if i not in times)
    return Count(len(fed), lost, sum(count - 1 for count in times.values()), tuple(wrong))


def run_pipeline(options: argparse.Namespace) -> int:
    if options.plain_spark and options.pipeline not in ("kafka-kafka", "kafka-postgres"):
        say("Spark alone is tried into Kafka and PostgreSQL.")
        return 2
    given = options.folder is not None
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tidegate-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    orders = FaultOrders(folder / "orders")
    started = time.monotonic()
    problem: str | None = None
    # Whoever is told to end, ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    environment = fault_environment(orders)
    with ENDS[options.pipeline](folder) as ends:
        say("the servers are up")
        with StandaloneCluster(directory=folder / "cluster", environment=environment, cores=2) as cluster:
            torment = PipelineTorment(cluster, orders, folder, options, ends)
            with torment.supervised():
                try:
                    for number, (kind, point) in enumerate(
                        plan_rounds(options.pipeline, options.rounds, options.seed, options.plain_spark, options.only),
                        1,
                    ):
                        if options.at_most is not None and time.monotonic() - started > options.at_most:
                            say(f"{options.at_most:g} s have passed")
                            break
                        say(f"round {number} of {options.rounds}")
                        torment.round(kind, point)
                    torment._stop.set()
                    torment.feed.flush()  # type: ignore[attr-defined]
                    torment.settle()
                except Hang as hang:
                    problem = f"hang: {hang}"
        ordered = options.pipeline in ("kafka-kafka", "kafka-postgres")
        count = count_rows(torment.feed.rows, ends.rows(), ordered)  # type: ignore[arg-type]
    # Spark alone does not number rows, so nothing can be said of their order.
    wrong = () if options.plain_spark else count.wrong
    result: dict[str, Any] = {
        "pipeline": options.pipeline,
        "plain_spark": options.plain_spark,
        "connector": options.connector,
        **versions(),
        "rounds": sum(torment.kills.values()),
        "kills": dict(torment.kills),
        "lost": count.lost,
        "duplicated": count.duplicated,
        "wrong": list(wrong),
        "rows": count.expected,
        "problem": problem,
        "hits": dict(torment.hits),
        "driver_starts": torment.starts,
        "gave_up": torment.gave_up,
        "recovery_s": {kind: summary(times) for kind, times in torment.recovery_s.items()},
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    say(
        f"{options.pipeline}: {result['rounds']} faults, {count.expected} rows: {count.lost} lost, "
        f"{count.duplicated} doubled, {len(wrong)} keys wrong, {torment.gave_up} times the job gave up"
        + (f"; {problem}" if problem else "")
    )
    fine = problem is None and not (count.lost or count.duplicated or wrong)
    if (fine or options.plain_spark) and not given:
        shutil.rmtree(folder, ignore_errors=True)
    elif not fine:
        say(f"everything is kept in {folder}")
    return 0 if fine or (options.plain_spark and problem is None) else 1
