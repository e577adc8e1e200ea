"""What a lineage has left in a target is found and ended when no job continues it, and nothing else is touched."""

from __future__ import annotations

import pickle
from itertools import count

from tidegate.connectors.sink import OutputCleaner, cleans_up
from tidegate.core.errors import ConnectorError
from tidegate.core.ids import Uid
from tidegate.testing.sink_contract.target import SinkTarget, check
from tidegate.testing.sink_trial import SinkTrial, dies_at, new_rows


class AbandonedContract:
    """Applies to sinks that offer a cleaner (`create_cleaner`)."""

    def test_what_an_abandoned_lineage_left_is_found_and_ended(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        if (cleaner := cleaner_of(trial)) is None:
            return
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.sweep()
        trial.epoch(2, 2)
        trial.attempt(0, new_rows(2))
        with dies_at(0):
            trial.attempt(1, new_rows(2))
        other = SinkTrial(target.sink())
        other.epoch(2, 2)
        other.complete()
        before = sorted(target.leavings())
        found = list(cleaner.find(trial.lineage, trial.uid))
        assert list(cleaner.find(trial.lineage, trial.uid)) == found
        assert sorted(target.leavings()) == before
        assert not list(cleaner.find(trial.lineage, Uid("another")))
        for _ in range(2):
            cleaner.end(found)
            assert not list(cleaner.find(trial.lineage, trial.uid))
            check(target, trial)
        assert other.release()
        other.epoch(1, 1)
        assert other.checkpoint()
        other.sweep()
        check(target, trial, other)
        assert target.leavings() == []

    def test_published_output_is_not_left(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        if (cleaner := cleaner_of(trial)) is None:
            return
        for _ in range(2):
            trial.epoch(2, 2)
            assert trial.checkpoint()
        assert not list(cleaner.find(trial.lineage, trial.uid))
        # A reader may remove rows. What was published stays published.
        target.take_away()
        assert not list(cleaner.find(trial.lineage, trial.uid))

    def test_a_history_that_comes_back_does_not_take_ended_output_for_published(self, target: SinkTarget) -> None:
        """Whether the commit had begun or not, and wherever the cleaner is killed."""
        for commit_step in count():
            for end_step in count():
                trial = SinkTrial(target.sink())
                if (cleaner := cleaner_of(trial)) is None:
                    return
                trial.epoch(2, 2)
                trial.complete()
                with dies_at(commit_step) as committing:
                    trial.release()
                with dies_at(end_step) as ending:
                    cleaner.end(list(cleaner.find(trial.lineage, trial.uid)))
                if accepts_all(trial):
                    missing = set(trial.expected) - set(target.rows())
                    assert not missing, f"killed at {committing.reached[-1:]} and {ending.reached[-1:]}"
                cleaner.end(list(cleaner.find(trial.lineage, trial.uid)))
                assert not list(cleaner.find(trial.lineage, trial.uid))
                if not ending.happened:
                    break
            if not committing.happened:
                return


def cleaner_of(trial: SinkTrial) -> OutputCleaner | None:
    """Create the cleaner as another process would; None if the sink offers none."""
    sink: object = pickle.loads(pickle.dumps(trial.sink))
    return sink.create_cleaner() if cleans_up(sink) else None


def accepts_all(trial: SinkTrial) -> bool:
    """Let another driver continue the lineage. Return whether its target says that everything is published."""
    try:
        return bool(trial.restart())
    except ConnectorError:
        return False
