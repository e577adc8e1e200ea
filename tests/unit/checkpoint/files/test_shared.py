"""Shared files: counted references, and sweeps that go by term."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.checkpoint.history_kit import LAYOUT
from tidegate.checkpoint.files.shared import Boundary, SharedRegistry, orphans
from tidegate.checkpoint.layout import FileScope
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term, Uid

TASK = TaskId(1, Slot(0))


def state(term: int, checkpoint: int, name: str = "a") -> str:
    return LAYOUT.shared(Term(term), TASK, AttemptId(3), checkpoint, name)


def rows(term: int, epoch: int) -> str:
    return LAYOUT.staged(EpochId(Term(term), epoch), Uid("out"), AttemptId(3), "r")


@pytest.mark.feature("F32", "F33", "N12")
def test_reference_counts_while_the_oldest_checkpoint_is_dropped() -> None:
    shared = SharedRegistry()
    shared.register("chk-1", ["1.sst", "2.sst"])
    shared.register("chk-2", ["1.sst", "2.sst", "3.sst", "4.sst"])
    shared.register("chk-3", ["1-2-3.sst", "4.sst", "5.sst"])
    assert shared.counts() == {"1.sst": 2, "2.sst": 2, "3.sst": 1, "4.sst": 2, "5.sst": 1, "1-2-3.sst": 1}
    assert shared.drop("chk-1") == frozenset()
    assert shared.counts() == {"1.sst": 1, "2.sst": 1, "3.sst": 1, "4.sst": 2, "5.sst": 1, "1-2-3.sst": 1}
    assert shared.drop("chk-2") == {"1.sst", "2.sst", "3.sst"}
    assert shared.counts() == {"1-2-3.sst": 1, "4.sst": 1, "5.sst": 1}


@pytest.mark.feature("F32")
def test_a_file_that_two_tasks_of_one_checkpoint_link_counts_once() -> None:
    shared = SharedRegistry()
    shared.register("chk-1", ["a", "a"])
    assert shared.count("a") == 1
    assert shared.drop("chk-1") == {"a"}


@pytest.mark.feature("F33")
def test_files_of_dropped_checkpoints_are_unreferenced_until_they_are_forgotten() -> None:
    shared = SharedRegistry()
    shared.register("chk-1", ["a", "b", "rows"])
    shared.register("chk-1", ["a", "b"])
    assert shared.unreferenced() == {"rows"}
    shared.drop("chk-1", exclusive=["chk-1/_metadata"])
    shared.register("chk-2", ["b"])
    assert shared.unreferenced() == {"a", "rows", "chk-1/_metadata"}
    shared.forget(["a", "rows"])
    assert shared.unreferenced() == {"chk-1/_metadata"}
    shared.drop("chk-2")
    assert shared.unreferenced() == {"b", "chk-1/_metadata"}


@pytest.mark.feature("F32")
@given(st.lists(st.tuples(st.integers(0, 4), st.frozensets(st.sampled_from("abcdefg")) | st.none())))
def test_counts_are_what_the_checkpoints_say(moves: list[tuple[int, frozenset[str] | None]]) -> None:
    shared, held = SharedRegistry(), dict[str, frozenset[str]]()
    for number, files in moves:
        name = f"chk-{number}"
        before = {f for h in held.values() for f in h}
        if files is None:
            held.pop(name, None)
            assert shared.drop(name) == before - {f for h in held.values() for f in h}
        else:
            held[name] = files
            shared.register(name, files)
    assert shared.counts() == {f: sum(f in h for h in held.values()) for h in held.values() for f in h}


BOUNDARY = Boundary(Term(5), last_id=7, pending_id=9, epoch=EpochId(Term(5), 40))


@pytest.mark.feature("E16")
@pytest.mark.parametrize(
    ("path", "passed"),
    [
        (state(4, 99), True),  # a former driver's: it can publish nothing any more
        (state(6, 1), False),  # a successor's: never ours to judge
        (state(5, 8), True),  # of our own checkpoint 8, which failed
        (state(5, 9), False),  # may be acknowledged in a moment
        (rows(4, 99), True),
        (rows(6, 1), False),
        (rows(5, 40), True),  # carried by the newest checkpoint, or an orphan
        (rows(5, 41), False),  # waits for the next one
        (LAYOUT.metadata(7), True),
        (LAYOUT.metadata(8), False),  # a successor may yet give out this name
        (LAYOUT.metadata(7, Term(3)), True),
        (LAYOUT.log(1), False),
        (LAYOUT.owner, False),
        (LAYOUT.pin("x"), False),
        ("other-job/shared/1/t/1/chk-1-a", False),
        ("savepoints/1/_metadata", False),
    ],
)
def test_what_a_sweep_may_touch(path: str, passed: bool) -> None:
    assert BOUNDARY.has_passed(LAYOUT, path) is passed
    assert orphans(LAYOUT, [path], BOUNDARY, []) == ((path,) if passed else ())
    assert orphans(LAYOUT, [path], BOUNDARY, [path]) == ()


@pytest.mark.feature("E8", "E10")
def test_names_contain_their_scope() -> None:
    scopes = [LAYOUT.parse(p) for p in (state(2, 3), rows(2, 3), LAYOUT.exclusive(3, "x"))]
    assert [s and (s.scope, s.number) for s in scopes] == [
        (FileScope.SHARED, 3), (FileScope.TASKOWNED, 3), (FileScope.EXCLUSIVE, 3)
    ]  # fmt: skip


@pytest.mark.feature("E7", "N25")
def test_the_layout_is_flinks() -> None:
    assert LAYOUT.metadata(1) == "job/chk-1/_metadata"
    assert state(1, 2, "u").startswith("job/shared/")
    assert rows(1, 2).startswith("job/taskowned/")
