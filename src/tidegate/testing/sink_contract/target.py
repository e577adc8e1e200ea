"""The target of a sink as a reader sees it, and what a reader must find there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from tidegate.connectors.sink import Sink
from tidegate.testing.sink_trial import Row, SinkTrial


class SinkTarget(Protocol):
    """Where one test's rows go. Its sink takes rows of `sink_trial.SCHEMA`."""

    ordered: bool
    """Whether `rows` gives each slot's rows in the order in which they were published."""

    def sink(self) -> Sink: ...

    def rows(self) -> list[Row]:
        """What a reader finds now."""
        ...

    def take_away(self) -> None:
        """A reader removes all rows it finds, as one that moves files or empties a table does."""
        ...

    def outage(self) -> AbstractContextManager[object]:
        """While it lasts, the target takes no commits."""
        ...

    def leavings(self) -> list[str]:
        """Names of what readers do not see: staged rows, open transactions, markers of single commits."""
        ...


@runtime_checkable
class CountsCommits(Protocol):
    """A target that counts its transactions. A call with many requests must then be one transaction."""

    def commits(self) -> int:
        """The number of transactions since the target was created."""
        ...


@runtime_checkable
class ShowsMarkers(Protocol):
    """A target that lists its markers. Their number must then not grow with the epochs."""

    def markers(self) -> list[str]: ...


def check(target: SinkTarget, *trials: SinkTrial) -> None:
    """Readers find every row of the completed checkpoints once, and nothing else."""
    check_same(target.rows(), [row for trial in trials for row in trial.expected])


def check_same(found: Iterable[Row], expected: Iterable[Row]) -> None:
    """Both hold the same rows, each as often as the other."""
    counted, wanted = Counter(found), Counter(expected)
    assert counted == wanted, f"missing {wanted - counted or 'none'}, too many {counted - wanted or 'none'}"


def check_order(target: SinkTarget, trial: SinkTrial, rows: list[Row] | None = None) -> None:
    """Readers see no row of an epoch, and saw none, while rows of an earlier epoch are missing."""
    epochs = [trial.epoch_by_number[n] for n, _ in (target.rows() if rows is None else rows)]
    if not epochs:
        return
    wanted = Counter(trial.epoch_by_number[n] for n, _ in trial.expected)
    late = {epoch: count for epoch, count in (wanted - Counter(epochs)).items() if epoch < max(epochs)}
    assert not late, f"rows of epoch {max(epochs)} are seen, and rows of earlier ones are missing: {late}"
    if target.ordered:
        assert epochs == sorted(epochs), "a row of an earlier epoch comes after one of a later epoch"
