"""A commit that is repeated, split or run concurrently publishes every row once."""

from __future__ import annotations

import threading

from tidegate.connectors.outcome import CommitOutcome
from tidegate.connectors.sink import Committable, publishes_in
from tidegate.testing.sink_contract.target import SinkTarget, check
from tidegate.testing.sink_trial import SinkTrial


class RepeatContract:
    def test_a_commit_repeated_changes_nothing(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        for _ in range(3):
            trial.epoch(2, 2)
            assert trial.checkpoint()
        for request in trial.requests():
            trial.committer.commit([request])
        trial.committer.commit(trial.requests())
        trial.new_committer().commit(trial.requests())
        check(target, trial)

    def test_a_first_commit_is_distinguished_from_a_repeat(self, target: SinkTarget) -> None:
        """Applies if the committer distinguishes the two. A call that was half done is not a repeat."""
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        trial.complete()
        first = trial.committer.commit(trial.requests())
        trial.epoch(2, 2)
        trial.complete()
        half = trial.new_committer().commit(trial.requests())
        again = trial.new_committer().commit(trial.requests())
        check(target, trial)
        if first is None or half is None or again is None:
            assert first is half is again is None
            return
        assert set(first) == {CommitOutcome.COMMITTED}
        new = [request.epoch == trial.at for request in trial.requests()]
        assert half == [CommitOutcome.COMMITTED if each else CommitOutcome.ALREADY_COMMITTED for each in new]
        assert set(again) == {CommitOutcome.ALREADY_COMMITTED}

    def test_a_repeat_does_not_restore_rows_that_a_reader_removed(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(3, 3)
        assert trial.checkpoint()
        target.take_away()
        assert trial.restart()
        assert target.rows() == []

    def test_many_requests_in_one_call(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        for _ in range(3):
            trial.epoch(2, 2)
        trial.complete()
        trial.committer.commit(trial.requests())
        check(target, trial)

    def test_two_drivers_commit_at_the_same_time(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink())
        trial.epoch(20, 20)
        trial.epoch(20, 20)
        trial.complete()
        ready = threading.Barrier(2)

        def drive() -> None:
            committer = trial.new_committer()
            ready.wait(10)
            for requests in trial.small_calls():
                try:
                    committer.commit(requests)
                except Exception:
                    return  # one of them may lose; only what readers find counts

        drivers = [threading.Thread(target=drive) for _ in range(2)]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join(60)
        assert trial.restart()
        check(target, trial)

    def test_slots_are_published_by_tasks_side_by_side(self, target: SinkTarget) -> None:
        """One process publishes all slots before and after. If the sink does not publish in tasks, one process publishes
        every epoch."""
        trial = SinkTrial(target.sink(), parallelism=3)

        def publish(slots: set[int]) -> None:
            committer = trial.new_committer()
            mine: list[Committable] = [request for request in trial.requests() if request.slot in slots]
            for _ in range(10):
                try:
                    committer.commit(mine)
                except Exception:
                    continue  # another committer delayed this one
                break
            close = getattr(committer, "close", None)
            if close is not None:
                close()

        everyone = [{0, 1, 2}]
        tasks = [{0}, {1}, {2}] if publishes_in(target.sink()) == "task" else everyone
        for hands in (everyone, tasks, [{0, 2}, {1}] if tasks != everyone else everyone, everyone, tasks):
            trial.epoch(2, 2, 2)
            trial.epoch(1, 0, 2)
            trial.complete()
            threads = [threading.Thread(target=publish, args=(slots,)) for slots in hands]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(120)
            check(target, trial)
