"""Output that is committed with its epoch."""

from __future__ import annotations

import pytest

from tidegate.connectors.outcome import CommitInDoubt, CommitRefused, RetryLater
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.graph.model import Graph
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.sink_threads import OutputStopped


class Raises:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def commit(self, requests: object) -> None:
        raise self.error


def commit(error: Exception) -> None:
    committers = Committers(Graph("job", ()), None)
    committers.committers[Uid("out")] = Raises(error)  # type: ignore[assignment]
    row = Committable(lineage=Lineage("l"), sink=Uid("out"), slot=Slot(0), epoch=EpochId(Term(1), 7), payload=b"")
    committers.commit((row,), for_good=False)


@pytest.mark.parametrize("error", [CommitRefused("no such table"), CommitInDoubt("the broker forgot it")])
def test_rows_that_a_target_refuses_stop_the_job(error: Exception) -> None:
    with pytest.raises(OutputStopped, match=rf"'out' \(of epoch 1.7\).*{error}.*reads its rows again"):
        commit(error)


@pytest.mark.parametrize("error", [RetryLater("busy"), OSError("down")])
def test_an_error_that_may_pass_is_left_to_the_restart_strategy(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        commit(error)
