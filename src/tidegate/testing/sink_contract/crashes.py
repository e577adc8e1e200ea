"""A process may die, or its target fail, at any step of an attempt or of a commit."""

from __future__ import annotations

from itertools import count

from tidegate.testing.sink_contract.target import SinkTarget, check, check_order, check_same
from tidegate.testing.sink_trial import SinkTrial, dies_at, error_at, new_rows


class CrashContract:
    def test_a_driver_may_die_at_any_step_of_a_commit(self, target: SinkTarget) -> None:
        """A reader may remove what it sees before the next driver starts."""
        for step in count():
            trial = SinkTrial(target.sink())
            trial.epoch(3, 3)
            trial.epoch(3, 0)
            with dies_at(step) as death:
                trial.checkpoint()
            seen = target.rows()
            target.take_away()
            assert trial.restart(), death.reached
            check_same(seen + target.rows(), trial.expected)
            target.take_away()
            if not death.happened:
                break  # The commit has fewer steps than this: each of them was tried.
        assert step >= 2

    def test_a_task_may_die_at_any_step_of_its_attempt(self, target: SinkTarget) -> None:
        """The epoch runs again, once in the same run and once under another driver."""
        for step in count():
            trial = SinkTrial(target.sink())
            rows = new_rows(4)
            with dies_at(step) as death:
                trial.epoch_of(rows[:2], rows[2:])
            if not death.happened:
                break
            trial.epoch_of(rows[:2], rows[2:])
            assert trial.checkpoint()
            with dies_at(step):
                trial.epoch(2, 2)
            assert trial.restart()
            trial.epoch(2, 2)
            assert trial.checkpoint()
            check(target, trial)
            target.take_away()
        assert step >= 2

    def test_a_target_may_go_away_at_any_step_of_a_commit(self, target: SinkTarget) -> None:
        """The same committer repeats the call. The rows that it published before are neither lost nor repeated."""
        for step in count():
            trial = SinkTrial(target.sink())
            trial.epoch(2, 2)
            trial.epoch(0, 2)
            trial.complete()
            with error_at(step, ConnectionError("the target went away")) as fault:
                trial.release()
            check_order(target, trial)
            assert trial.release(), fault.reached
            trial.epoch(1, 1)
            assert trial.checkpoint(), fault.reached
            check(target, trial)
            target.take_away()
            if not fault.happened:
                break
        assert step >= 2
