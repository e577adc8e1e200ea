"""A sweep removes what no commit needs, and nothing else."""

from __future__ import annotations

from tidegate.testing.sink_contract.target import ShowsMarkers, SinkTarget, check
from tidegate.testing.sink_trial import SinkTrial, dies_at, new_rows


class CleanupContract:
    def test_a_sweep_removes_orphans_and_keeps_waiting_output(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        trial.attempt(0, new_rows(2))
        with dies_at(0):
            trial.attempt(1, new_rows(2))
        assert trial.checkpoint()
        done = trial.requests()
        with target.outage():
            trial.epoch(2, 2)
            assert not trial.checkpoint()
        if not trial.sweep(waiting=trial.completed):
            assert target.leavings() == []
            return
        trial.committer.commit(done)
        assert trial.release()
        check(target, trial)
        trial.epoch(1, 1)
        assert trial.sweep()
        assert target.leavings() == []
        check(target, trial)

    def test_a_start_from_long_ago_repeats_what_was_swept_and_changes_nothing(self, target: SinkTarget) -> None:
        """A start from an old savepoint does the same: the savepoint carries output that was committed after it was taken."""
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.sweep()
        assert trial.restart()
        check(target, trial)

    def test_a_sweep_leaves_other_histories_alone(self, target: SinkTarget) -> None:
        one, other = SinkTrial(target.sink()), SinkTrial(target.sink())
        one.epoch(2, 2)
        one.complete()
        other.epoch(2, 2)
        other.epoch(2, 2)
        assert other.checkpoint()
        other.sweep()
        assert one.release()
        check(target, one, other)

    def test_a_sweep_leaves_later_epochs_alone(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        assert trial.checkpoint()
        cleaned = trial.at
        trial.epoch(2, 2)
        trial.complete()
        later, trial.at = trial.at, cleaned
        trial.sweep()
        trial.at = later
        assert trial.release()
        check(target, trial)

    def test_markers_outlive_sweeps_and_do_not_grow_with_epochs(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        assert trial.checkpoint()
        trial.sweep()
        few = len(target.markers()) if isinstance(target, ShowsMarkers) else 0
        for _ in range(4):
            trial.epoch(2, 2)
            assert trial.checkpoint()
            trial.sweep()
        if isinstance(target, ShowsMarkers):
            assert len(target.markers()) <= few
        for requests in trial.small_calls():
            trial.new_committer().commit(requests)
        check(target, trial)
