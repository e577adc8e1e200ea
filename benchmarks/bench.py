"""One stream benchmark in progress: private directories for every run, and every epoch that was seen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from benchmarks import harness, streams
from benchmarks.streams import Contestant, Dataset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Data = TypeVar("Data")


@contextmanager
def opened(partitions: int, prepare: Callable[[Path], Data]) -> Iterator[tuple[Bench, Data]]:
    """A bench on a session of its own, and what `prepare` has put into its folder; both gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        work = Path(scratch)
        harness.say("preparing data")
        data = prepare(work)
        spark = streams.session(partitions)
        try:
            yield Bench(spark, work), data
        finally:
            spark.stop()


class Bench:
    """Runs contestants over datasets, each run in a directory of its own."""

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self._spark, self._work, self._runs = spark, work, 0
        self.seen: dict[str, list[list[streams.Epoch]]] = {}

    def rate(self, contestant: Contestant, dataset: Dataset) -> Callable[[], float]:
        """Rows by seconds after the warm-up, of one run."""

        def sample() -> float:
            epochs = self.epochs("rate", contestant, dataset)
            return sum(epoch.rows for epoch in epochs) / sum(epoch.seconds for epoch in epochs)

        return sample

    def epochs(self, what: str, contestant: Contestant, dataset: Dataset) -> list[streams.Epoch]:
        """The epochs of one run after the warm-up."""
        self._runs += 1
        private = self._work / f"run-{self._runs}"
        private.mkdir()
        epochs = contestant.run(self._spark, dataset, private)
        self.seen.setdefault(f"{what} {contestant.name}", []).append(epochs)
        return streams.measured(dataset, epochs)

    def as_json(self) -> dict[str, Any]:
        """Every epoch of every run, warm-up included."""
        return {name: [[asdict(epoch) for epoch in run] for run in runs] for name, runs in self.seen.items()}
