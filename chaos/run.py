"""`python -m chaos run`: a real job on a real cluster, killed again and again, and every row counted at the end.

The walk goes through the fault matrix (`chaos.matrix`), cell by cell in an order the seed decides, then on to random
moments. `chaos.torment` has the job, its supervisor and each fault.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from chaos.matrix import cells
from chaos.torment import Hang, Torment, fault_environment, say, summary, versions
from tidegate.testing.cluster import StandaloneCluster
from tidegate.testing.faults import FaultOrders

SUMMARY = "Kill workers, executors, hosts and drivers of a real job on a 2-worker cluster; count every row at the end."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=6, help="how many faults (default: 6)")
    parser.add_argument(
        "--matrix", action="store_true", help="every cell of the fault matrix first, then --rounds random ones"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="rocksdb", choices=("rocksdb", "hashmap"))
    parser.add_argument("--changelog", action="store_true", help="checkpoints of what changed, several times a second")
    parser.add_argument("--unique", action="store_true", help="put a fresh uuid on every row")
    parser.add_argument("--batches", action="store_true", help="a job of functions over whole batches")
    parser.add_argument(
        "--calls", action="store_true", help="with async functions before, between and after the levels"
    )
    parser.add_argument(
        "--function", choices=("stateful-processor", "group-state"),
        help="rows wait in the state of a function of Spark's, transformWithState or applyInPandasWithState, for a timer",
    )  # fmt: skip
    parser.add_argument(
        "--pipeline", choices=("kafka-kafka", "kafka-postgres", "kafka-files-s3", "kafka-delta"),
        help="between real servers, which are killed too",
    )  # fmt: skip
    parser.add_argument(
        "--connector", action="store_true",
        help="a pipeline reads Kafka with Spark's connector, as a job on Spark 4.1 has to",
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
        "--histories", action="store_true",
        help="restore the checkpoint directory from a backup, or start a copy of it next to the original, and die meanwhile",
    )  # fmt: skip
    parser.add_argument("--in-place", action="store_true", help="die in the middle of rescales of the running job")
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


def run(options: argparse.Namespace) -> int:
    if options.pipeline is not None:
        # Late, for a quick start: servers are needed for pipelines only.
        if options.upserts or options.rescales:
            from chaos.rescales import run_rescales

            return run_rescales(options)
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
    verdict = torment.verdict()
    expected = todo if options.at_most is None else begun
    unhit = [str(cell) for cell in expected if not torment.hits[str(cell)]] if options.matrix else []
    result: dict[str, Any] = {
        "rounds": sum(torment.kills.values()),
        "kills": dict(torment.kills),
        "outcomes": dict(torment.outcomes),
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
        **versions(),
        "seed": options.seed,
        "backend": options.backend,
        "unique": options.unique,
        "batches": options.batches,
        "calls": options.calls,
        "function": options.function,
        "seconds": round(time.monotonic() - started, 1),
        **torment.findings(),
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
        shutil.rmtree(folder, ignore_errors=True)
    elif not fine:
        say(f"everything is kept in {folder}")
    return 0 if fine else 1


def _kind(options: argparse.Namespace) -> tuple[type[Torment], list[Any]]:
    if options.savepoints:
        from chaos.moves import Moves, move_cells  # Late, for a quick start.

        return Moves, list(move_cells())
    if options.histories:
        from chaos.histories import Histories, history_cells

        return Histories, list(history_cells())
    if options.in_place:
        from chaos.in_place import InPlace, rescale_cells

        return InPlace, list(rescale_cells())
    return Torment, list(cells(options.backend, options.changelog))


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
