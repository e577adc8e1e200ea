"""What every exactly-once sink must keep, as tests to inherit. They need pytest to be run, but no Spark.
A sink that may repeat rows inherits `OrderContract` alone.

    class TestMySink(SinkContract):
        @pytest.fixture
        def target(self, tmp_path):
            return MyTarget(tmp_path)          # a SinkTarget: the sink, and how a reader looks at what it wrote

Steps of the sink at which a process may die are its fault points (`tidegate.core.faults.reach`); a sink without any is
killed between its calls and wherever it stages or reads.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from itertools import count
from typing import Protocol, runtime_checkable

from tidegate.connectors.outcome import CommitOutcome, outcome_of
from tidegate.connectors.sink import CommitRequest, Sink, publishes_in
from tidegate.core.faults import reach
from tidegate.testing.sink_trial import Row, SinkTrial, dies_at, error_at, new_rows, request_of, watching


class SinkTarget(Protocol):
    """Where one test's rows go. Its sink takes rows of `sink_trial.SCHEMA`."""

    ordered: bool
    """Whether `rows` gives each slot's rows in the order in which they were published."""

    def sink(self) -> Sink: ...

    def rows(self) -> list[Row]:
        """What a reader finds now."""
        ...

    def take_away(self) -> None:
        """A reader removes all it finds, as one that moves files or empties a table would."""
        ...

    def outage(self) -> AbstractContextManager[object]:
        """While it lasts, the target takes no commits."""
        ...

    def leavings(self) -> list[str]:
        """Names of what lies about unseen: staged rows, open transactions, markers of single commits."""
        ...


@runtime_checkable
class CountsCommits(Protocol):
    """A target that can tell in how many transactions rows came. Then a call with many requests must be one of them."""

    def commits(self) -> int:
        """How many there were since the target was made."""
        ...


@runtime_checkable
class ShowsMarkers(Protocol):
    """A target whose markers can be listed. Then they must not grow in number with the epochs."""

    def markers(self) -> list[str]: ...


def check(target: SinkTarget, *trials: SinkTrial) -> None:
    """Readers find every row of what completed once, and nothing else."""
    _same(target.rows(), [row for trial in trials for row in trial.expected])


def _attempted(trial: SinkTrial) -> CommitOutcome:
    try:
        reach("trial.commit-begins")
        trial.committer.commit(trial.requests())
    except Exception as error:
        return outcome_of(error)
    return CommitOutcome.COMMITTED


def _same(found: Iterable[Row], expected: Iterable[Row]) -> None:
    counted, wanted = Counter(found), Counter(expected)
    assert counted == wanted, f"missing {wanted - counted or 'none'}, too many {counted - wanted or 'none'}"


def check_order(target: SinkTarget, trial: SinkTrial, rows: list[Row] | None = None) -> None:
    """Nothing is seen, or was before, of an epoch that came ahead of an earlier one."""
    epochs = [trial.epoch_by_number[n] for n, _ in (target.rows() if rows is None else rows)]
    if not epochs:
        return
    wanted = Counter(trial.epoch_by_number[n] for n, _ in trial.expected)
    late = {epoch: count for epoch, count in (wanted - Counter(epochs)).items() if epoch < max(epochs)}
    assert not late, f"rows of epoch {max(epochs)} are seen, and rows of earlier ones are missing: {late}"
    if target.ordered:
        assert epochs == sorted(epochs), "a row of an earlier epoch comes after one of a later epoch"


class OrderContract:
    """What holds for every sink: order across slots, epochs and rescales; outages; calls with many requests."""

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
        """As in a stream without keys, whose rows change their slot from epoch to epoch."""
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
        """A checkpoint every five minutes, each of which is refused; in the middle another driver takes over."""
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
        """Where the target can tell how many there were."""
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


class SinkContract(OrderContract):
    # -- what readers see --------------------------------------------------------------------------------------------

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

    # -- repeats -----------------------------------------------------------------------------------------------------

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

    def test_a_first_commit_is_told_from_a_repeat(self, target: SinkTarget) -> None:
        """By committers that tell them apart. What is half done is no repeat."""
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

    def test_a_repeat_does_not_bring_back_what_a_reader_took_away(self, target: SinkTarget) -> None:
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
                    return  # one of them may lose; what counts is what readers find

        drivers = [threading.Thread(target=drive) for _ in range(2)]
        for driver in drivers:
            driver.start()
        for driver in drivers:
            driver.join(60)
        assert trial.restart()
        check(target, trial)

    def test_slots_are_published_by_tasks_side_by_side(self, target: SinkTarget) -> None:
        """And by one process for all of them, before and after. Where tasks do not publish, one process does it all."""
        trial = SinkTrial(target.sink(), parallelism=3)

        def publish(slots: set[int]) -> None:
            committer = trial.new_committer()
            mine: list[CommitRequest] = [request for request in trial.requests() if request.slot in slots]
            for _ in range(10):
                try:
                    committer.commit(mine)
                except Exception:
                    continue  # another one held it up for a moment
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

    # -- deaths ------------------------------------------------------------------------------------------------------

    def test_a_driver_may_die_at_any_step_of_a_commit(self, target: SinkTarget) -> None:
        """And a reader may take away what it sees before the next driver comes."""
        for step in count():
            trial = SinkTrial(target.sink())
            trial.epoch(3, 3)
            trial.epoch(3, 0)
            with dies_at(step) as death:
                trial.checkpoint()
            seen = target.rows()
            target.take_away()
            assert trial.restart(), death.reached
            _same(seen + target.rows(), trial.expected)
            target.take_away()
            if not death.happened:
                break
        assert step >= 2

    def test_a_task_may_die_at_any_step_of_its_attempt(self, target: SinkTarget) -> None:
        """The epoch is run again, once in the same run and once by another driver."""
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
        from tidegate.testing.sink_trial import batch_of

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

    def test_a_target_may_go_away_at_any_step_of_a_commit(self, target: SinkTarget) -> None:
        """The same committer is asked again, and what it published before is neither lost nor repeated."""
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

    # -- targets that are away ---------------------------------------------------------------------------------------

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

    def test_a_target_that_is_down_is_tried_again(self, target: SinkTarget) -> None:
        """It is no reason to stop the job: nothing is refused, and nothing in doubt."""
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
        settled, seen = trial.at, target.rows()
        trial.epoch(3, 3)
        # Its checkpoint times out. Clean-up goes on after the one before; nothing more may be seen, and nothing lost.
        trial.sweep(upto=settled)
        assert Counter(target.rows()) == Counter(seen)
        trial.epoch(2, 2)
        assert trial.checkpoint()
        check(target, trial)

    # -- histories that turn -----------------------------------------------------------------------------------------

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
        """The new term counts its epochs from one again; they are later than all of the old term."""
        trial = SinkTrial(target.sink())
        for _ in range(3):
            trial.epoch(2, 2)
            assert trial.checkpoint()
        trial.epoch(5, 5)
        assert trial.restart()
        trial.epoch(2, 2)
        assert trial.checkpoint()
        check(target, trial)

    def test_after_a_rollback_to_an_older_savepoint_output_is_made_anew(self, target: SinkTarget) -> None:
        """What was published after the savepoint is not taken for what the new run publishes, although its epochs have
        the same numbers. The target was not rolled back; what the savepoint carries is not published again."""
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
        _same(target.rows(), before + trial.expected)

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

    # -- clean-up ----------------------------------------------------------------------------------------------------

    def test_a_sweep_removes_leavings_and_keeps_what_waits(self, target: SinkTarget) -> None:
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
        if not trial.sweep(waiting=[request_of(c) for c in trial.completed]):
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
        """As one from an old savepoint does: it carries what was committed after it was taken."""
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
        settled = trial.at
        trial.epoch(2, 2)
        trial.complete()
        later, trial.at = trial.at, settled
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
