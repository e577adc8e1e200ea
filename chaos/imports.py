"""`python -m chaos import`: a Spark query is stopped and imported, and the job that continues it is killed again and again.

1. Spark's `transformWithState` counts the rows of many keys, and is stopped.
2. `tidegate import spark` makes a savepoint of its checkpoint.
3. The job starts from it on a cluster. More rows come, and workers, executors, hosts and drivers are killed.
4. The query of Spark goes on as well, from its own checkpoint, over the same files. The job must have written what the query
   writes, row by row; and both must be what a few lines of Python compute from the input.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chaos.imported import FOLDER
from chaos.tally import Feed
from chaos.torment import (
    ROOT,
    Hang,
    Torment,
    fault_environment,
    names_of_entries,
    python_path,
    read_entry,
    say,
    summary,
)
from tidegate.testing.cluster import StandaloneCluster
from tidegate.testing.faults import FaultOrders

SUMMARY = (
    "Import a stopped Spark query and kill the job that continues it; compare with the query, which goes on as well."
)
_FILE_ROWS = 50_000
_MORE_ROWS = 400


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys of the query (default: 1,000,000)")
    parser.add_argument("--rounds", type=int, default=6, help="how many faults (default: 6)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument(
        "--folder", type=Path, help="keep everything there (default: a temporary folder, removed if all is well)"
    )


class ImportTorment(Torment):
    """The job that continues a query."""

    def __init__(
        self, cluster: StandaloneCluster, orders: FaultOrders, folder: Path, options: argparse.Namespace
    ) -> None:
        super().__init__(cluster, orders, folder, options)
        self.feed = self._distinct = feed_of(folder, options.keys)
        self._before = len(self.feed.rows)
        self.most_unseen = 20_000

    def command(self) -> list[str]:
        return ["chaos.imported"]

    def visible(self) -> int:
        return self._before + super().visible()

    def log_names(self) -> list[str]:
        return names_of_entries(self.folder / "checkpoints" / "imported")

    def log_entry(self, name: str) -> bytes | None:
        return read_entry(self.folder / "checkpoints" / "imported", name)

    def _keep_feeding(self) -> None:
        while not self._stop.wait(1.0):
            if len(self.feed.rows) - self.visible() < self.most_unseen:
                self._distinct.write_distinct(_MORE_ROWS)


class DistinctFeed(Feed):
    """Writes files in which no key has two rows."""

    def write_distinct(self, count: int) -> None:
        """Some keys, far from each other, others in every file."""
        first = len(self.rows)
        self.write_keys([(first * 7 + at * 101) % self.keys for at in range(min(count, self.keys // 101))])

    def write_keys(self, keys: Iterable[int]) -> None:
        first = len(self.rows)
        self.put([(key, first + at, (first + at) % 1000) for at, key in enumerate(keys)])


def feed_of(folder: Path, keys: int) -> DistinctFeed:
    """What the query has read: every key once. Writes it if it is not there."""
    feed = DistinctFeed(folder, keys)
    for start in range(0, keys, _FILE_ROWS):
        feed.write_keys(range(start, min(keys, start + _FILE_ROWS)))
    return feed


def run(options: argparse.Namespace) -> int:
    given = options.folder is not None
    folder = options.folder or Path(tempfile.mkdtemp(prefix="tidegate-import-"))
    folder.mkdir(parents=True, exist_ok=True)
    orders = FaultOrders(folder / "orders")
    started, problem = time.monotonic(), None
    with StandaloneCluster(directory=folder / "cluster", environment=fault_environment(orders), cores=2) as cluster:
        torment = ImportTorment(cluster, orders, folder, options)
        say(f"Spark counts {len(torment.feed.rows):,} rows")
        began = time.monotonic()
        _query(folder, "before")
        query_s = time.monotonic() - began
        carried = _import(folder)
        say(f"imported {carried['entries']:,} entries, {carried['state_size']:,} bytes, in {carried['seconds']} s")
        with torment.supervised():
            try:
                for number in range(options.rounds):
                    say(f"round {number + 1} of {options.rounds}")
                    torment.at_random()
                torment.settle()
            except Hang as hang:
                problem = f"hang: {hang}"
    say(f"Spark counts {len(torment.feed.rows) - options.keys:,} rows more")
    _query(folder, "after")
    before, spark, moved = (_output(folder / name) for name in ("before", "after", "out"))
    model = _model(torment.feed.rows)
    result: dict[str, Any] = {
        "rounds": sum(torment.kills.values()),
        "kills": dict(torment.kills),
        "lost": (spark - moved).total(),
        "duplicated": (moved - spark).total(),
        "spark_differs_from_model": ((before + spark - model) + (model - before - spark)).total(),
        "rows": len(torment.feed.rows),
        "rows_after_the_import": len(torment.feed.rows) - options.keys,
        "keys": options.keys,
        "problem": problem,
        "recovery_s": {kind: summary(times) for kind, times in torment.recovery_s.items()},
        "query_s": round(query_s, 1),
        "import_s": carried["seconds"],
        "entries": carried["entries"],
        "savepoint_bytes": carried["state_size"],
        "spark_state_bytes": _size(folder / "spark-checkpoint" / "state"),
        "driver_starts": torment.starts,
        "gave_up": torment.gave_up,
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
    }
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    fine = problem is None and not any(
        result[name] for name in ("lost", "duplicated", "spark_differs_from_model", "gave_up")
    )
    say(f"{result['rounds']} faults, {result['rows']:,} rows: {result['lost']} lost, {result['duplicated']} doubled")
    if fine and not given:
        shutil.rmtree(folder, ignore_errors=True)
    elif not fine:
        say(f"everything is kept in {folder}{'; ' + problem if problem else ''}")
    return 0 if fine else 1


def _process(arguments: list[str], folder: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        FOLDER: str(folder),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / "processes.log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, check=True
        )
    return done.stdout.decode()


def _query(folder: Path, out: str) -> None:
    _process(["-m", "chaos.imported", "--master", "local[2]", "--folder", str(folder), "--query", out], folder)


def _import(folder: Path) -> dict[str, Any]:
    command = ["-c", "from tidegate.control.cli.main import main; main()", "import", "spark"]
    chosen = ["--job", str(ROOT / "chaos" / "imported.py"), "--to", str(folder / "savepoint"), "-o", "json"]
    found: dict[str, Any] = json.loads(_process([*command, str(folder / "spark-checkpoint"), *chosen], folder))
    return found


def _output(folder: Path) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for path in folder.glob("*.json"):
        rows = (json.loads(line) for line in path.read_text().splitlines())
        found.update((row["k"], row["i"], row["n"], row["total"]) for row in rows)
    return found


def _model(rows: Iterable[tuple[int, int, int]]) -> Counter[tuple[int, ...]]:
    """What a query that never stops writes, computed without any engine."""
    state: dict[int, tuple[int, int]] = {}
    found: Counter[tuple[int, ...]] = Counter()
    for key, i, value in rows:
        n, total = state.get(key, (0, 0))
        state[key] = n + 1, total + value
        found[(key, i, n + 1, total + value)] += 1
    return found


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
