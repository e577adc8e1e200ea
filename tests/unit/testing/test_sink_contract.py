"""The contract suite must find the mistakes that sinks make: each is made here once, and the test that finds it named."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest

from tidegate.connectors.outcome import CommitRefused
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Slot
from tidegate.testing.sink_contract import SinkContract
from tidegate.testing.sink_trial import SinkTrial, dies_at
from tidegate.testing.table_sink import MemoryTable, TableCommitter, TableSink, table_named


class NoMarker(TableCommitter):
    def _append(self, request, rows):
        self._table.markers.clear()
        super()._append(request, rows)


class RowsBeforeMarker(TableCommitter):
    def _append(self, request, rows):
        before = dict(self._table.markers)
        done = super()._append(request, rows)
        after, self._table.markers = self._table.markers, before
        reach("between")
        self._table.markers = after
        return done


class MarkerBeforeRows(TableCommitter):
    def _append(self, request, rows):
        before = list(self._table.rows)
        super()._append(request, rows)
        after, self._table.rows = self._table.rows, before
        reach("between")
        self._table.rows = after


class SwallowsOutages(TableCommitter):
    def _append(self, request, rows):
        if not self._table.down:
            super()._append(request, rows)


def keyed_by(key):
    class Keyed(TableCommitter):
        def _append(self, request, rows):
            if self._table.down:
                raise ConnectionError
            marker = self._table.markers.get(key(request))
            if marker is None or marker < request.epoch:
                self._table.rows += rows
                self._table.markers[key(request)] = request.epoch

    return Keyed


class ForgetsTheTerm(TableCommitter):
    def _append(self, request, rows):
        if self._table.down:
            raise ConnectionError
        channel = (request.lineage, request.sink, request.slot)
        if self._table.markers.get(channel, 0) < request.epoch.number:
            self._table.rows += rows
            self._table.markers[channel] = request.epoch.number


class LooksWhetherRowsAreThere(TableCommitter):
    def _append(self, request, rows):
        if self._table.down:
            raise ConnectionError
        self._table.rows += [row for row in rows if row not in self._table.rows]


class SaysAlwaysNew(TableCommitter):
    def _append(self, request, rows):
        super()._append(request, rows)
        return True


class GivesUp(TableCommitter):
    def _append(self, request, rows):
        if self._table.down:
            raise CommitRefused("no")
        return super()._append(request, rows)


class LooksAwayAtStart(TableCommitter):
    def check_target(self): ...


class SweepsTooMuch(TableCommitter):
    def sweep(self, settled):
        """Takes all that is staged for leavings: what it marks as done will not be published."""
        for slot in (0, 1):
            later = EpochId(settled.epoch.term, settled.epoch.number + 1)
            self._table.markers[settled.lineage, settled.sink, Slot(slot)] = later


class SlotAfterSlot(TableCommitter):
    """Brings each slot through all its epochs before the next one begins."""

    def commit(self, requests):
        for request in sorted(requests, key=lambda r: (r.slot, r.epoch)):
            super().commit([request])


class OneByOne(TableCommitter):
    def commit(self, requests):
        for request in requests:
            super().commit([request])


class GoesOnAfterAFailure(TableCommitter):
    """Tries the other requests too, and tells of the failure at the end."""

    def commit(self, requests):
        failure = None
        for request in requests:
            try:
                super().commit([request])
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure


class MarksEveryEpoch(TableCommitter):
    def _append(self, request, rows):
        self._table.markers[request.lineage, request.epoch, request.slot] = request.epoch
        return super()._append(request, rows)


MISTAKES = [
    (SlotAfterSlot, "test_an_epoch_of_all_slots_is_seen_before_any_later_one"),
    (SlotAfterSlot, "test_epochs_of_slots_that_take_turns_come_in_order"),
    (SlotAfterSlot, "test_output_that_waits_through_a_rescale_comes_before_that_of_the_new_slots"),
    (SlotAfterSlot, "test_the_newest_value_of_a_key_is_the_last_although_its_slot_has_changed"),
    (SlotAfterSlot, "test_a_target_that_is_down_for_an_hour_gets_everything_once_and_in_order"),
    (OneByOne, "test_a_call_with_many_slots_and_epochs_is_one_commit"),
    (GoesOnAfterAFailure, "test_a_target_may_go_away_at_any_step_of_a_commit"),
    (NoMarker, "test_slots_are_published_by_tasks_side_by_side"),
    (NoMarker, "test_markers_outlive_sweeps_and_do_not_grow_with_epochs"),
    (MarksEveryEpoch, "test_markers_outlive_sweeps_and_do_not_grow_with_epochs"),
    (NoMarker, "test_a_commit_repeated_changes_nothing"),
    (NoMarker, "test_two_drivers_commit_at_the_same_time"),
    (NoMarker, "test_an_old_driver_that_wakes_up_changes_nothing"),
    (RowsBeforeMarker, "test_a_driver_may_die_at_any_step_of_a_commit"),
    (MarkerBeforeRows, "test_a_driver_may_die_at_any_step_of_a_commit"),
    (SwallowsOutages, "test_a_target_that_is_down_across_three_checkpoints_gets_everything_afterwards"),
    (SwallowsOutages, "test_epochs_come_in_order"),
    (keyed_by(lambda r: (r.sink, r.slot)), "test_a_cold_start_under_an_old_name_is_another_history"),
    (keyed_by(lambda r: (r.lineage, r.slot)), "test_two_sinks_of_one_job_share_a_target"),
    (keyed_by(lambda r: (r.lineage, r.sink)), "test_many_requests_in_one_call"),
    (keyed_by(lambda r: (r.lineage, r.sink)), "test_a_rescale_with_commits_pending_keeps_the_old_slots"),
    (ForgetsTheTerm, "test_a_rollback_does_not_mix_with_what_was_there"),
    (ForgetsTheTerm, "test_after_a_rollback_to_an_older_savepoint_output_is_produced_again"),
    (SaysAlwaysNew, "test_a_first_commit_is_distinguished_from_a_repeat"),
    (GivesUp, "test_a_target_that_is_down_is_tried_again"),
    (LooksAwayAtStart, "test_a_target_that_will_always_refuse_is_refused_before_the_first_row"),
    (SweepsTooMuch, "test_output_of_a_checkpoint_that_timed_out_comes_with_the_next"),
    (LooksWhetherRowsAreThere, "test_a_repeat_does_not_restore_rows_that_a_reader_removed"),
]


@dataclass(frozen=True)
class BrokenSink(TableSink):
    committer: type = TableCommitter

    def create_committer(self, context):
        return self.committer(table_named(self.name), context)

    def __reduce__(self):
        name, committer = self.name, self.committer
        _kept[name, committer.__qualname__] = self
        return _give, (name, committer.__qualname__)


_kept: dict[tuple[str, str], BrokenSink] = {}


def _give(*key):
    """Classes made in tests cannot be pickled; they stay here."""
    return _kept[key]


class Target:
    ordered = True

    def __init__(self, sink):
        self.made = sink
        self.table: MemoryTable = table_named(sink.name)

    def sink(self):
        return self.made

    def rows(self):
        return list(self.table.rows)

    def take_away(self):
        self.table.rows.clear()

    def outage(self):
        return self.table.outage()

    def refusing(self):
        self.table.missing = CommitRefused("there is no such table")
        return self.made, "no such table"

    def commits(self):
        return self.table.commits

    def markers(self):
        return list(self.table.markers)


@pytest.mark.parametrize(("committer", "finder"), MISTAKES)
def test_a_mistake_is_found(committer, finder):
    with pytest.raises(AssertionError):
        getattr(SinkContract(), finder)(Target(BrokenSink(uuid.uuid4().hex, committer)))


class PublishesAtOnce:
    """A writer that has no patience."""

    def __init__(self, sink, writer):
        self._sink, self._writer = sink, writer

    def write(self, batch):
        table_named(self._sink.name).rows.extend(tuple(row.values()) for row in batch.to_pylist())

    def prepare_commit(self):
        return None

    def abort(self): ...


@dataclass(frozen=True)
class Impatient(BrokenSink):
    def create_writer(self, context):
        return PublishesAtOnce(self, None)


@pytest.mark.parametrize(
    "finder",
    [
        "test_rows_are_seen_once_their_checkpoint_is_complete_and_not_before",
        "test_attempts_that_are_thrown_away_are_never_seen",
        "test_an_attempt_aborted_after_it_was_written_leaves_nothing_to_see",
        "test_what_a_rewind_discards_is_never_seen",
        "test_a_task_may_die_at_any_step_of_its_attempt",
    ],
)
def test_a_writer_without_patience_is_found(finder):
    with pytest.raises(AssertionError):
        getattr(SinkContract(), finder)(Target(Impatient(uuid.uuid4().hex)))


def test_a_death_is_at_the_step_that_was_chosen():
    trial = SinkTrial(TableSink(uuid.uuid4().hex))
    trial.epoch(1, 1)
    with dies_at(3) as death:
        trial.checkpoint()
    assert death.happened
    assert death.reached == ["trial.commit-begins", "trial.read", "trial.read", "table.1-read"]
    with dies_at(99) as death:
        assert trial.restart()
    assert not death.happened
