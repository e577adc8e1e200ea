"""Restore assignment: nothing lost, nothing twice, for any old and new parallelism."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    Distribution,
    ElementCount,
    OperatorInfo,
    SnapshotKind,
    StateInfo,
    TaskState,
)
from tidegate.checkpoint.task.assignment import (
    BroadcastCopy,
    KeyedShare,
    KeyGroupsBroken,
    ListRun,
    MaxParallelismChanged,
    RestoreTarget,
    TaskRestore,
    UnclaimedState,
    assign_key_groups,
    plan_restore,
    split_evenly,
)
from tidegate.core.errors import RestoreError
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.state.keys.key_groups import range_of_slot, slot_of
from tidegate.state.version import VersionId

MAX = 128
SIZES = [1, 2, 3, 8]
PAIRS = list(itertools.product(SIZES, SIZES))
KEYED = StateInfo(name="total", id=1, kind="value", value={})
SPLIT = StateInfo(name="offsets", id=2, kind="list", value={}, distribution=Distribution.SPLIT)
UNION = StateInfo(name="all", id=3, kind="list", value={}, distribution=Distribution.UNION)
RULES = StateInfo(name="rules", id=4, kind="map", value={}, distribution=Distribution.BROADCAST)


def task(slot: int, level: int = 1) -> TaskId:
    return TaskId(level, Slot(slot))


def old_tasks(parallelism: int, level: int = 1, elements: int = 0, max_parallelism: int = MAX) -> tuple[TaskState, ...]:
    """Old tasks; the one of slot `s` holds `elements + s` elements of each list."""
    at = VersionId(EpochId(Term(1), 1), AttemptId(1))
    return tuple(
        TaskState(
            task=task(slot, level),
            key_groups=range_of_slot(slot, parallelism, max_parallelism),
            backend="rocksdb",
            version=at,
            elements=tuple(ElementCount(state.id, elements + slot) for state in (SPLIT, UNION)),
        )
        for slot in range(parallelism)
    )


def snapshot(*tasks: TaskState, operators: tuple[OperatorInfo, ...]) -> CheckpointMetadata:
    epoch, kind = EpochId(Term(1), 1), SnapshotKind.CHECKPOINT
    return CheckpointMetadata(
        job="job",
        lineage=Lineage("a"),
        checkpoint_id=1,
        term=Term(1),
        epoch=epoch,
        kind=kind,
        triggered_ms=0,
        completed_ms=0,
        tidegate_version="0",
        spark_version="4",
        max_parallelism=MAX,
        parallelism=1,
        clock_ms=0,
        tasks=tasks,
        operators=operators,
    )


def operator(uid: str, *states: StateInfo, level: int = 1) -> OperatorInfo:
    return OperatorInfo(Uid(uid), level, 1, "rocksdb", None, states)


def restore(old: int, new: int, *states: StateInfo, elements: int = 0) -> tuple[TaskRestore, ...]:
    taken = snapshot(*old_tasks(old, elements=elements), operators=(operator("op", *states),))
    return plan_restore(taken, RestoreTarget(MAX, new, {Uid("op"): 1}))


@pytest.mark.feature("A13", "A14", "H13", "N14")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_every_key_group_goes_to_the_one_task_that_serves_it(old: int, new: int) -> None:
    went: Counter[int] = Counter()
    for planned in restore(old, new, KEYED):
        for share in planned.keyed:
            first, last = share.key_groups
            went.update(range(first, last + 1))
            for group in range(first, last + 1):
                assert slot_of(group, new, MAX) == planned.task.slot
                assert slot_of(group, old, MAX) == share.source.slot
    assert went == Counter(range(MAX))


@pytest.mark.feature("H13", "I3")
@given(st.data())
def test_no_key_group_is_lost_or_doubled_at_any_size(data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, 300))
    old, new = data.draw(st.integers(1, limit)), data.draw(st.integers(1, limit))
    held = [(task(slot), range_of_slot(slot, old, limit)) for slot in range(old)]
    shares = assign_key_groups(held, new, limit)
    went = [(slot, group) for slot, mine in enumerate(shares) for _, (a, b) in mine for group in range(a, b + 1)]
    assert went == [(slot_of(group, new, limit), group) for group in range(limit)]
    assert all(a >= dict(held)[t][0] and b <= dict(held)[t][1] for mine in shares for t, (a, b) in mine)


@pytest.mark.feature("A7", "H13", "I36")
@given(st.sets(st.integers(1, 99), max_size=10), st.integers(1, 100))
def test_old_ranges_may_be_cut_anywhere(cuts: set[int], new: int) -> None:
    edges = [0, *sorted(cuts), 100]
    held = [(task(i), (a, b - 1)) for i, (a, b) in enumerate(itertools.pairwise(edges))]
    went = [g for mine in assign_key_groups(held, new, 100) for _, (a, b) in mine for g in range(a, b + 1)]
    assert went == list(range(100))


@pytest.mark.feature("I24")
@pytest.mark.parametrize("parallelism", SIZES)
def test_unchanged_parallelism_takes_every_version_as_it_is(parallelism: int) -> None:
    planned = restore(parallelism, parallelism, KEYED, SPLIT, RULES, elements=2)
    assert [p.as_is for p in planned] == [task(slot) for slot in range(parallelism)]
    assert [p.sources for p in planned] == [(task(slot),) for slot in range(parallelism)]
    assert [p.split for p in planned] == [(ListRun(SPLIT.id, task(slot), 0, 2 + slot),) for slot in range(parallelism)]


@pytest.mark.feature("H13", "I38")
def test_files_are_reused_whole_or_cut_by_range_if_all_their_states_are_needed() -> None:
    (merged,) = restore(2, 1, KEYED)
    assert merged.keyed == (KeyedShare(task(0), (0, 63), (1,), True), KeyedShare(task(1), (64, 127), (1,), True))
    assert merged.as_is is None
    halves = [KeyedShare(task(0), groups, (1,), True) for groups in ((0, 63), (64, 127))]
    assert [p.keyed for p in restore(1, 2, KEYED)] == [(half,) for half in halves]


@pytest.mark.feature("A26", "N15")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_list_elements_are_split_evenly(old: int, new: int) -> None:
    planned = restore(old, new, SPLIT, elements=3)
    dealt = [[(r.source, r.first + i) for r in p.split for i in range(r.count)] for p in planned]
    everything = sorted((task(slot), i) for slot in range(old) for i in range(3 + slot))
    assert sorted(itertools.chain(*dealt)) == everything
    if old != new:
        assert max(map(len, dealt)) - min(map(len, dealt)) <= 1


@pytest.mark.feature("A26")
def test_remainders_of_several_lists_do_not_fall_on_one_task() -> None:
    first, start = split_evenly([(task(0), 4)], 1, 3)
    second, after = split_evenly([(task(0), 4)], 2, 3, start)
    assert [sum(r.count for r in runs) for runs in first] == [2, 1, 1]
    assert [sum(r.count for r in runs) for runs in second] == [1, 2, 1]
    assert (start, after) == (1, 2)


@pytest.mark.feature("A26")
@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 12), st.integers(0, 11))
def test_runs_keep_the_order_of_elements(counts: list[int], new: int, start: int) -> None:
    runs, _ = split_evenly([(task(i), n) for i, n in enumerate(counts)], 1, new, start % new)
    in_turn = [run for i in range(new) for run in runs[(start % new + i) % new]]
    dealt = [(run.source.slot, run.first + i) for run in in_turn for i in range(run.count)]
    assert dealt == [(i, k) for i, n in enumerate(counts) for k in range(n)]


@pytest.mark.feature("A27", "N15")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_union_lists_go_whole_to_every_task(old: int, new: int) -> None:
    everything = tuple(ListRun(UNION.id, task(slot), 0, 1 + slot) for slot in range(old))
    planned = restore(old, new, UNION, elements=1)
    assert [p.union for p in planned] == [everything] * new
    assert all(p.as_is is None for p in planned)


@pytest.mark.feature("A29", "N15")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_every_task_gets_one_copy_of_broadcast_state(old: int, new: int) -> None:
    assert [p.broadcast for p in restore(old, new, RULES)] == [
        (BroadcastCopy(RULES.id, task(i % old)),) for i in range(new)
    ]


@pytest.mark.feature("I37", "I38")
def test_state_follows_its_uid_to_another_level() -> None:
    other = StateInfo(name="other", id=9, kind="value", value={})
    taken = snapshot(*old_tasks(2), operators=(operator("stays", KEYED), operator("moves", other)))
    planned = plan_restore(taken, RestoreTarget(MAX, 2, {Uid("stays"): 1, Uid("moves"): 2}))
    by_task = {p.task: p for p in planned}
    assert by_task[task(0, 1)].keyed == (KeyedShare(task(0), (0, 63), (1,), False),)
    assert by_task[task(0, 2)].keyed == (KeyedShare(task(0), (0, 63), (9,), False),)
    assert {p.as_is for p in planned} == {None}


@pytest.mark.feature("I32")
def test_a_new_operator_starts_empty_next_to_restored_ones() -> None:
    taken = snapshot(*old_tasks(1), operators=(operator("old", KEYED),))
    planned = plan_restore(taken, RestoreTarget(MAX, 1, {Uid("old"): 1, Uid("new"): 2}))
    assert [(p.task, p.sources) for p in planned] == [(task(0, 1), (task(0),)), (task(0, 2), ())]


@pytest.mark.feature("I16", "I17")
def test_state_without_its_operator_is_refused_unless_allowed() -> None:
    taken = snapshot(*old_tasks(2), operators=(operator("kept", KEYED), operator("gone", SPLIT)))
    target = RestoreTarget(MAX, 2, {Uid("kept"): 1})
    with pytest.raises(UnclaimedState, match="ignore-unclaimed-state") as caught:
        plan_restore(taken, target)
    assert caught.value.uids == (Uid("gone"),)
    planned = plan_restore(taken, dataclasses.replace(target, allow_non_restored_state=True))
    assert [(p.split, p.as_is) for p in planned] == [((), None), ((), None)]


@pytest.mark.feature("A13")
def test_max_parallelism_may_not_change() -> None:
    taken = snapshot(*old_tasks(2), operators=(operator("op", KEYED),))
    with pytest.raises(MaxParallelismChanged, match="Set max parallelism to 128"):
        plan_restore(taken, RestoreTarget(256, 2, {Uid("op"): 1}))


@pytest.mark.feature("A11", "H13")
@pytest.mark.parametrize(
    ("ranges", "held"),
    [
        ([(0, 60), (64, 127)], "61 of level 1 is held by no task"),
        ([(0, 64), (64, 127)], "64 of level 1 is held by two tasks"),
        ([(0, 63), (64, 126)], "127 of level 1 is held by no task"),
        ([(1, 63), (64, 127)], "0 of level 1 is held by no task"),
        ([(0, 63), (64, 128)], "128 of level 1 is held by a task"),
        ([], "0 of level 0 is held by no task"),
    ],
)
def test_a_snapshot_with_holes_or_overlaps_is_refused(ranges: list[tuple[int, int]], held: str) -> None:
    with pytest.raises(KeyGroupsBroken, match=held):
        assign_key_groups([(task(i), kept) for i, kept in enumerate(ranges)], 3, MAX)


def test_a_snapshot_without_one_of_its_tasks_is_refused() -> None:
    first, _, third = old_tasks(3)
    with pytest.raises(RestoreError, match="not numbered"):
        plan_restore(snapshot(first, third, operators=(operator("op", SPLIT),)), RestoreTarget(MAX, 3, {Uid("op"): 1}))


def test_ten_thousand_tasks_are_planned_without_a_copy_of_the_union_for_each() -> None:
    tasks = tuple(
        dataclasses.replace(t, elements=(ElementCount(UNION.id, 1),)) for t in old_tasks(5_000, max_parallelism=32_768)
    )
    taken = dataclasses.replace(snapshot(*tasks, operators=(operator("op", KEYED, UNION),)), max_parallelism=32_768)
    planned = plan_restore(taken, RestoreTarget(32_768, 10_000, {Uid("op"): 1}))
    assert len(planned) == 10_000
    assert len({id(p.union) for p in planned}) == 1
