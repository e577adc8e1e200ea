"""Tasks take turns at storing whole versions. What a checkpoint may still start from is never given up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.driver.driver_kit import Driver
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.task.version_upload import Materialized, Stored
from tidegate.core.clock import Instant, MonotonicMs
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term
from tidegate.runtime.checkpoints.materializations import Materializations
from tidegate.runtime.checkpoints.term import RunningTerm
from tidegate.state.version import VersionId

TASKS = tuple(TaskId(1, Slot(slot)) for slot in range(4))


def at(ms: int) -> Instant:
    return Instant(wall_ms=ms, monotonic_ms=MonotonicMs(ms))


def made(id: int) -> Materialized:
    return Materialized(Stored(Term(1), id, b"digest"), VersionId(EpochId(Term(1), id), AttemptId(1)))


@pytest.mark.feature("G13")
def test_every_task_is_materialized_once_in_an_interval() -> None:
    turns = Materializations(1000, TASKS, 3)
    assert turns.due(at(0)) == ()
    seen: list[TaskId] = []
    for ms in range(0, 1001, 50):
        due = turns.due(at(ms))
        assert not due or ms % 250 == 0
        if due:
            turns.begin(ms, due, at(ms))
            for task in due:
                turns.acknowledge(task, made(ms), at(ms + 10))
        seen += due
    assert sorted(seen) == list(TASKS)


def test_the_first_materialization_may_be_of_any_task() -> None:
    """A job that restarts more often than the interval passes would never come to the last tasks."""
    turns = Materializations(1000, TASKS, 3, first=2)
    turns.due(at(0))
    assert turns.due(at(250)) == (TASKS[2],)


@pytest.mark.parametrize(("chance", "first"), [(0.0, 0), (0.4, 1), (0.99, 3)])
def test_a_materializer_begins_at_a_random_task(tmp_path: Path, chance: float, first: int) -> None:
    with Driver(tmp_path) as driver:
        job = replace(driver.loop.checkpointer._job, parallelism=len(TASKS))
        term = RunningTerm(driver.owned, job, driver.loop.sinks, CheckpointStatsTracker(), chance=lambda: chance)
        turns = term.checkpointer._materializer._turns
    assert turns._number == first


def test_without_an_interval_there_are_none() -> None:
    turns = Materializations(None, TASKS, 3)
    assert [turns.due(at(ms)) for ms in (0, 10**9)] == [(), ()]


def test_one_task_is_materialized_at_a_time() -> None:
    turns = Materializations(400, TASKS, 3)
    turns.due(at(0))
    turns.begin(7, turns.due(at(100)), at(100))
    assert turns.due(at(900)) == ()
    assert turns.is_under_way(7)


@pytest.mark.parametrize(("failures", "too_many"), [(1, False), (2, False), (3, True)])
def test_failures_in_a_row_are_tolerated_up_to_a_number(failures: int, too_many: bool) -> None:
    turns = Materializations(400, TASKS, 2)
    turns.begin(1, TASKS, at(0))
    assert [turns.fail(task, at(1)) for task in TASKS[:failures]][-1] is too_many


def test_a_task_that_repeats_its_failure_has_failed_once() -> None:
    """It answers with every epoch, until the other tasks of its turn have ended."""
    turns = Materializations(400, TASKS, 1)
    turns.begin(1, TASKS, at(0))
    assert [turns.fail(TASKS[0], at(ms)) for ms in range(5)] == [False] * 5
    assert turns.failed == 1


def test_a_success_ends_the_row() -> None:
    turns = Materializations(400, TASKS, 1)
    turns.begin(1, TASKS, at(0))
    assert not turns.fail(TASKS[0], at(1))
    turns.acknowledge(TASKS[1], made(1), at(1))
    assert not turns.fail(TASKS[2], at(1))


def test_an_id_stays_reserved_while_a_checkpoint_in_progress_was_offered_it() -> None:
    turns = Materializations(400, TASKS, 3)
    turns.begin(1, TASKS[:1], at(0))
    turns.acknowledge(TASKS[0], made(1), at(1))
    turns.use(dict(turns.ready))
    assert turns.released({1}) == ()
    assert turns.released(()) == (1,)


def test_a_rewind_forgets_all_materializations() -> None:
    turns = Materializations(400, TASKS, 3)
    turns.begin(1, TASKS[:1], at(0))
    turns.acknowledge(TASKS[0], made(1), at(1))
    turns.forget()
    assert (dict(turns.ready), turns.released(()), turns.is_under_way(1)) == ({}, (), False)


@given(st.lists(st.sampled_from(["turn", "answer", "fail", "begin", "complete", "abort"]), max_size=60))
def test_an_id_is_given_up_only_when_nothing_can_start_from_it(steps: list[str]) -> None:
    turns = Materializations(4, TASKS, 100)
    now, id = 0, 0
    waiting: list[TaskId] = []
    pending: list[dict[TaskId, Materialized]] = []
    released: set[int] = set()
    begun: set[int] = set()
    for step in steps:
        now += 10
        if step == "turn" and (due := turns.due(at(now))):
            id += 1
            turns.begin(id, due, at(now))
            begun.add(id)
            waiting = list(due)
        elif step == "answer" and waiting:
            turns.acknowledge(waiting.pop(), made(id), at(now))
        elif step == "fail" and waiting:
            turns.fail(waiting.pop(), at(now))
        elif step == "begin" and len(pending) < 2:
            pending.append(dict(turns.ready))
        elif step == "complete" and pending:
            turns.use(pending.pop(0))
        elif step == "abort" and pending:
            pending.pop()
        offered = {each.stored.checkpoint_id for one in pending for each in one.values()}
        released |= set(turns.released(offered))
        usable = offered | {each.stored.checkpoint_id for each in turns.ready.values()}
        assert not released & usable
    if not waiting:
        turns.use(dict(turns.ready))
        assert released | set(turns.released(())) == begun, "files that nothing needs would never be deleted"
