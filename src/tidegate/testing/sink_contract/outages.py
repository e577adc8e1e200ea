"""Output waits while its target is unavailable or its checkpoint is late."""

from __future__ import annotations

from collections import Counter

from tidegate.connectors.outcome import CommitOutcome, outcome_of
from tidegate.connectors.sink import checks_target
from tidegate.core.faults import reach
from tidegate.testing.sink_contract.target import SinkTarget, check
from tidegate.testing.sink_trial import SinkTrial


class OutageContract:
    def test_a_target_that_is_down_across_three_checkpoints_gets_everything_afterwards(
        self, target: SinkTarget
    ) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        assert trial.checkpoint()
        with target.outage():
            for _ in range(3):
                trial.epoch(2, 2)
                assert not trial.checkpoint()
        trial.epoch(2, 2)
        assert trial.checkpoint()
        check(target, trial)

    def test_the_check_before_a_start_passes_and_changes_nothing(self, target: SinkTarget) -> None:
        """A committer without a check passes as well."""
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        seen, left = target.rows(), target.leavings()
        for _ in range(2):
            assert _checked(trial) is CommitOutcome.COMMITTED
        assert (target.rows(), sorted(target.leavings())) == (seen, sorted(left))
        assert trial.checkpoint()
        check(target, trial)

    def test_a_target_that_is_down_ends_no_start(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        with target.outage():
            assert not _checked(trial).stops_the_job

    def test_a_target_that_is_down_is_tried_again(self, target: SinkTarget) -> None:
        """The outage is no reason to stop the job: no output is rejected, and none is in doubt."""
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        trial.complete()
        with target.outage():
            for _ in range(2):
                assert _attempted(trial) is CommitOutcome.RETRY_LATER
        assert trial.release()
        check(target, trial)

    def test_output_of_a_checkpoint_that_timed_out_comes_with_the_next(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        assert trial.checkpoint()
        first = trial.at
        seen = target.rows()
        trial.epoch(3, 3)
        # The checkpoint of this epoch times out. A sweep after the previous checkpoint neither publishes nor removes its rows.
        trial.sweep(upto=first)
        assert Counter(target.rows()) == Counter(seen)
        trial.epoch(2, 2)
        assert trial.checkpoint()
        check(target, trial)


def _checked(trial: SinkTrial) -> CommitOutcome:
    try:
        if checks_target(trial.committer):
            trial.committer.check_target()
    except Exception as error:
        return outcome_of(error)
    return CommitOutcome.COMMITTED


def _attempted(trial: SinkTrial) -> CommitOutcome:
    try:
        reach("trial.commit-begins")
        trial.committer.commit(trial.requests())
    except Exception as error:
        return outcome_of(error)
    return CommitOutcome.COMMITTED
