"""Calls per second to a service that answers after 50 ms: an async function, against what its capacity allows, and against
functions that call for one row after the other.

The service is a real server in a process of its own (`benchmarks.call_server`), which answers every call after the same time and
one in fifty with an error, that is then tried again. At best, a task makes `capacity / latency` calls per second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import call_client, harness, streams
from benchmarks.bench import opened
from benchmarks.call_server import CallServer, serving
from benchmarks.contestants import calls
from benchmarks.streams import Contestant, Dataset


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    repetitions: int = 3
    epoch_s: int = 10
    """How long an epoch takes at best."""
    epochs: int = 2
    warm_up: int = 1
    latency_s: float = 0.05
    error_share: float = 0.02
    capacity: int = 10
    large_capacity: int = 100


QUICK = Size(repetitions=1, epoch_s=1)


def run(
    json_path: Path, quick: bool, *, only: Sequence[str] | None = None, repetitions: int | None = None
) -> dict[str, Any]:
    """Measure every contestant, or those that `only` names: `bare`, `async`, `ordered`, `large`, `map`, `spark`."""
    size = QUICK if quick else Size()
    rounds = repetitions or size.repetitions
    tasks = len(os.sched_getaffinity(0))

    def prepare(work: Path) -> Callable[[int], Dataset]:
        return lambda capacity: _dataset(work / f"rows-{capacity}", size, tasks, capacity)

    with serving(size.latency_s, size.error_share) as server, opened(tasks, prepare) as (bench, dataset):
        some, many, one = dataset(size.capacity), dataset(size.large_capacity), dataset(1)
        each = {
            "async": (calls.asynchronous(server, size.capacity, ordered=False), some, size.capacity),
            "ordered": (calls.asynchronous(server, size.capacity, ordered=True), some, size.capacity),
            "large": (calls.asynchronous(server, size.large_capacity, ordered=False), many, size.large_capacity),
            "map": (calls.in_turn(server), one, 1),
            "spark": (calls.plain_spark(server), one, 1),
        }
        chosen = {name: it for name, it in each.items() if only is None or name in only}
        bare = f"asyncio without Spark, {size.capacity} at a time"
        checks = {
            it[0].name: _Checked(server, it[0], bench.rate(it[0], it[1]), tasks * it[2]) for it in chosen.values()
        }
        samples: dict[str, Callable[[], float]] = {}
        if only is None or "bare" in only:
            each_client = some.rows_per_epoch // tasks
            samples[bare] = lambda: call_client.rate(server, tasks, size.capacity, each_client)
        samples |= {name: check.sample for name, check in checks.items()}
        rates = harness.interleave(samples, rounds, unit="calls/s")
    at_best = {it[0].name: tasks * it[2] / size.latency_s for it in each.values()}
    names = {name: it[0].name for name, it in each.items()}
    ratios = {
        f"{name} / capacity by latency": _to_best(rates[name], at_best[name], 0.8 if name == names["async"] else None)
        for name in rates
        if name in at_best
    }
    ratios["async / without Spark"] = harness.ratio(rates, names["async"], bare, at_least=0.8)
    ratios["async / map"] = harness.ratio(rates, names["async"], names["map"])
    ratios["async / mapInPandas"] = harness.ratio(rates, names["async"], names["spark"], at_least=0.8 * size.capacity)
    return {
        "size": asdict(size) | {"repetitions": rounds, "tasks": tasks},
        "notes": [
            f"{tasks} tasks, an answer after {size.latency_s * 1000:g} ms, {size.error_share:.0%} of them errors.",
            "The rate of an epoch contains its fixed costs, in which no call is made.",
            "In order, a call that is tried again holds back those behind it: with these errors about 15 % of the rate.",
            "Every contestant has epochs of the same length at best, so functions that call in turn get fewer rows.",
        ],
        "figures": {f"rate {name}": figure.as_json() for name, figure in rates.items()},
        "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
        "server": {name: check.seen for name, check in checks.items()},
        "epochs": bench.as_json(),
    }


class _Checked:
    """Takes samples of a contestant, and asks the server what it has seen of each."""

    def __init__(self, server: CallServer, contestant: Contestant, rate: Callable[[], float], most: int) -> None:
        self._server, self._contestant, self._rate, self._most = server, contestant, rate, most
        self.seen: list[dict[str, int]] = []

    def sample(self) -> float:
        self._server.seen()
        rate = self._rate()
        seen = self._server.seen()
        self.seen.append(seen)
        assert seen["most"] <= self._most, f"{self._contestant.name} made {seen['most']} calls at a time"
        return rate


def _dataset(directory: Path, size: Size, tasks: int, capacity: int) -> Dataset:
    """As many rows for each task as take it `epoch_s` with so many calls at a time, in one file."""
    rows = round(size.epoch_s * capacity / size.latency_s) * tasks
    return streams.prepare(
        directory, rows_per_epoch=rows, files_per_epoch=tasks, epochs=size.epochs, warm_up=size.warm_up, keys=1000
    )


def _to_best(figure: harness.Figure, at_best: float, at_least: float | None) -> dict[str, Any]:
    rounds = [sample / at_best for sample in figure.samples]
    paired = harness.Figure("", tuple(rounds))
    low, high = paired.quartiles
    return harness.bounded(paired.median, at_least=at_least) | {"q1": low, "q3": high, "rounds": rounds}
