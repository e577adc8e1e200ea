"""Readers see the rows of completed checkpoints, and no others."""

from __future__ import annotations

from tidegate.testing.sink_contract.target import SinkTarget, check
from tidegate.testing.sink_trial import SinkTrial, batch_of, new_rows


class VisibilityContract:
    def test_rows_are_seen_once_their_checkpoint_is_complete_and_not_before(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(5, 3)
        trial.epoch(0, 4)
        assert target.rows() == []
        assert trial.checkpoint()
        check(target, trial)

    def test_an_epoch_without_rows_harms_nobody(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(0, 0)
        assert trial.checkpoint()
        trial.epoch(2, 0)
        assert trial.checkpoint()
        check(target, trial)

    def test_epochs_come_in_order(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink(), parallelism=1)
        with target.outage():
            for _ in range(4):
                trial.epoch(3)
                assert not trial.checkpoint()
        assert trial.restart()
        check(target, trial)
        if target.ordered:
            assert target.rows() == trial.expected

    def test_attempts_that_are_thrown_away_are_never_seen(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink(), parallelism=1)
        trial.epoch(2)
        trial.at = trial.at.next()
        rows = new_rows(3)
        _, failing = trial.open_writer(0)
        failing.abort()
        trial.attempt(0, rows)
        accepted = trial.attempt(0, rows)
        trial.attempt(0, rows)
        trial.accept([accepted], rows)
        assert trial.checkpoint()
        assert trial.restart()
        check(target, trial)

    def test_an_attempt_aborted_after_it_was_written_leaves_nothing_to_see(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink(), parallelism=1)
        trial.at = trial.at.next()
        _, writer = trial.open_writer(0)
        writer.write(batch_of(new_rows(3)))
        writer.abort()
        _, writer = trial.open_writer(0)
        writer.write(batch_of(new_rows(3)))
        writer.prepare_commit()
        writer.abort()
        trial.epoch(2)
        assert trial.checkpoint()
        check(target, trial)
