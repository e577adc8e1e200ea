"""One stream benchmark in progress: private directories for every run, and every epoch that was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import streams
from benchmarks.streams import Contestant, Dataset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
