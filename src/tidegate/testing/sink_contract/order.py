"""Epochs are published in order, by every sink: a sink that may repeat rows keeps this part of the contract too."""

from __future__ import annotations

from tidegate.testing.sink_contract.target import CountsCommits, SinkTarget, check, check_order
from tidegate.testing.sink_trial import Row, SinkTrial, new_rows, watching


class OrderContract:
    """Every sink keeps the order of epochs across slots, rescales, outages and calls with many requests."""

    def test_an_epoch_of_all_slots_is_seen_before_any_later_one(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink(), parallelism=3)
        for _ in range(3):
            trial.epoch(2, 1, 2)
        trial.complete()
        seen: list[list[Row]] = []
        with watching(lambda: seen.append(target.rows())):
            assert trial.release()
        for rows in seen:
            check_order(target, trial, rows)
        check_order(target, trial)
        check(target, trial)

    def test_epochs_of_slots_that_take_turns_come_in_order(self, target: SinkTarget) -> None:
        """In a stream without keys, rows change their slot from epoch to epoch."""
        trial = SinkTrial(target.sink(), parallelism=3)
        for counts in ((0, 0, 2), (2, 0, 0), (0, 2, 0), (0, 0, 2)):
            trial.epoch(*counts)
        assert trial.checkpoint()
        check_order(target, trial)
        check(target, trial)

    def test_output_that_waits_through_a_rescale_comes_before_that_of_the_new_slots(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink(), parallelism=4)
        trial.epoch(1, 1, 1, 1)
        assert trial.checkpoint()
        with target.outage():
            for _ in range(2):
                trial.epoch(2, 2, 2, 2)
                assert not trial.checkpoint()
            assert not trial.rescale(2)
            for _ in range(2):
                trial.epoch(2, 2)
                assert not trial.checkpoint()
        assert trial.release()
        check_order(target, trial)
        check(target, trial)

    def test_the_newest_value_of_a_key_is_the_last_although_its_slot_has_changed(self, target: SinkTarget) -> None:
        trial = SinkTrial(target.sink(), parallelism=4)
        [(key, _)] = new_rows(1)
        with target.outage():
            trial.epoch_of([], [], [], [(key, "old")])
            assert not trial.checkpoint()
            assert not trial.rescale(2)
            trial.epoch_of([], [(key, "new")])
            assert not trial.checkpoint()
        assert trial.release()
        found = [name for n, name in target.rows() if n == key]
        assert set(found) in ({"new", "old"}, {"new"})
        assert len(found) <= 2
        if target.ordered:
            assert found[-1] == "new"

    def test_a_target_that_is_down_for_an_hour_gets_everything_once_and_in_order(self, target: SinkTarget) -> None:
        """The target refuses a checkpoint every five minutes; halfway through, another driver takes over."""
        trial = SinkTrial(target.sink())
        trial.epoch(1, 1)
        assert trial.checkpoint()
        with target.outage():
            for minutes in range(0, 60, 5):
                trial.epoch(1, minutes % 2)
                assert not trial.checkpoint()
                assert not trial.release()
                if minutes == 30:
                    assert not trial.rescale(2)
        assert trial.release()
        check_order(target, trial)
        check(target, trial)

    def test_a_call_with_many_slots_and_epochs_is_one_commit(self, target: SinkTarget) -> None:
        """Applies if the target counts its commits."""
        trial = SinkTrial(target.sink(), parallelism=8)
        for _ in range(10):
            trial.epoch(*[1] * 8)
        before = target.commits() if isinstance(target, CountsCommits) else 0
        assert trial.checkpoint()
        if isinstance(target, CountsCommits):
            made = target.commits() - before
            assert made == 1, f"80 requests in one call made {made} commits"
        check_order(target, trial)
        check(target, trial)
