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
    """Whether `rows` returns each slot's rows in the order in which they were published."""

    def sink(self) -> Sink: ...

    def rows(self) -> list[Row]:
        """Return what a reader finds now."""
        ...

    def take_away(self) -> None:
        """Remove all rows that a reader finds, as one that moves files or empties a table does."""
        ...

    def outage(self) -> AbstractContextManager[object]:
        """While it lasts, the target accepts no commits."""
        ...

    def leavings(self) -> list[str]:
        """Return the names of what readers do not see: staged rows, open transactions, markers of single commits."""
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


@runtime_checkable
class Refuses(Protocol):
    """A target that can refuse a sink for good, as after a wrong password. Its committer must say so at once."""

    def refusing(self) -> tuple[Sink, str]:
        """Return a sink whose target will always refuse it, and a text that names the target: its address, or its table."""
        ...


def check(target: SinkTarget, *trials: SinkTrial) -> None:
    """Check that readers find every row of the completed checkpoints once, and nothing else."""
    check_same(target.rows(), [row for trial in trials for row in trial.expected])


def check_same(found: Iterable[Row], expected: Iterable[Row]) -> None:
    """Check that both hold the same rows, each equally often."""
    counted, wanted = Counter(found), Counter(expected)
    assert counted == wanted, f"missing {wanted - counted or 'none'}, too many {counted - wanted or 'none'}"


def check_order(target: SinkTarget, trial: SinkTrial, rows: list[Row] | None = None) -> None:
    """Check that readers see, and saw, no row of an epoch while rows of an earlier epoch are missing."""
    epochs = [trial.epoch_by_number[n] for n, _ in (target.rows() if rows is None else rows)]
    if not epochs:
        return
    wanted = Counter(trial.epoch_by_number[n] for n, _ in trial.expected)
    late = {epoch: count for epoch, count in (wanted - Counter(epochs)).items() if epoch < max(epochs)}
    assert not late, f"rows of epoch {max(epochs)} are visible, but rows of earlier ones are missing: {late}"
    if target.ordered:
        assert epochs == sorted(epochs), "a row of an earlier epoch comes after one of a later epoch"
