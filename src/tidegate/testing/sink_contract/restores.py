"""Rewinds, restarts, rollbacks, cold starts and rescales keep the output of each history apart."""

from __future__ import annotations

from tidegate.testing.sink_contract.target import SinkTarget, check, check_same
from tidegate.testing.sink_trial import SinkTrial


class RestoreContract:
    def test_what_a_rewind_discards_is_never_seen(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.epoch(3, 3)
        trial.rewind()
        trial.epoch(4, 4)
        assert trial.checkpoint()
        check(target, trial)

    def test_a_rollback_does_not_mix_with_what_was_there(self, target: SinkTarget) -> None:
        """The new term numbers its epochs from one again; all of them are later than the epochs of the old term."""
        trial = SinkTrial(target.sink())
        for _ in range(3):
            trial.epoch(2, 2)
            assert trial.checkpoint()
        trial.epoch(5, 5)
        assert trial.restart()
        trial.epoch(2, 2)
        assert trial.checkpoint()
        check(target, trial)

    def test_after_a_rollback_to_an_older_savepoint_output_is_produced_again(self, target: SinkTarget) -> None:
        """The sink does not mistake rows published after the savepoint for those of the new run, although their epochs have
        the same numbers. The target was not rolled back, so the sink does not publish again what the savepoint carries."""
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        trial.complete()
        savepoint = list(trial.completed)
        assert trial.release()
        trial.epoch(3, 3)
        assert trial.checkpoint()
        assert trial.start_from(savepoint)
        check(target, trial)
        trial.epoch(3, 3)
        assert trial.checkpoint()
        check(target, trial)

    def test_a_cold_start_under_an_old_name_is_another_history(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        for _ in range(3):
            trial.epoch(2, 2)
            assert trial.checkpoint()
        before = list(trial.expected)
        trial.cold_start()
        trial.epoch(2, 2)
        assert trial.checkpoint()
        check_same(target.rows(), before + trial.expected)

    def test_two_sinks_of_one_job_share_a_target(self, target: SinkTarget) -> None:
        one, other = SinkTrial(target.sink(), "one"), SinkTrial(target.sink(), "other")
        other.lineage = one.lineage
        for trial in (one, other):
            trial.epoch(2, 2)
            assert trial.checkpoint()
        check(target, one, other)

    def test_a_rescale_with_commits_pending_keeps_the_old_slots(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink(), parallelism=4)
        trial.epoch(1, 2, 3, 4)
        with target.outage():
            assert not trial.checkpoint()
            assert not trial.restart(parallelism=2)
            trial.epoch(2, 2)
        assert trial.checkpoint()
        assert trial.restart(parallelism=3)
        trial.epoch(1, 1, 1)
        assert trial.checkpoint()
        check(target, trial)

    def test_an_old_driver_that_wakes_up_changes_nothing(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        assert trial.checkpoint()
        sleeper, late = trial.committer, trial.requests()
        assert trial.restart()
        trial.epoch(2, 2)
        assert trial.checkpoint()
        sleeper.commit(late)
        check(target, trial)
