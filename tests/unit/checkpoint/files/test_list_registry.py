"""References by list: what is freed when checkpoints are dropped, against a model that knows every object."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.checkpoint.files.list_registry import HeldList, ListId, ListRegistry
from tidegate.checkpoint.files.task_part import ListChange
from tidegate.checkpoint.metadata import FileList

TASKS = ("L1-S0", "L1-S1")


@dataclass
class Model:
    """A registry beside the truth: the objects of each list, and everything that is stored."""

    shared: ListRegistry = field(default_factory=ListRegistry)
    names: dict[ListId, frozenset[str]] = field(default_factory=dict)
    checkpoints: dict[int, dict[str, ListId]] = field(default_factory=dict)
    pinned: dict[int, dict[str, ListId]] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    next_object: int = 0

    def needed(self, task: str | None = None) -> set[str]:
        ids = [id for lists in (*self.checkpoints.values(), *self.pinned.values()) for id in lists.values()]
        return {name for id in ids if task in (None, id.task) for name in self.names[id]}

    def take(self, number: int, base: dict[str, ListId] | None, picks: dict[str, tuple[int, int]]) -> None:
        """A checkpoint: each task drops some objects of its list in the base, and adds some."""
        lists, changes = {}, {}
        for task in TASKS:
            before = None if base is None else base[task]
            old = frozenset() if before is None else self.names[before]
            drops, adds = picks[task]
            released = frozenset(sorted(old)[:drops])
            new = frozenset(f"{task}/{self.next_object + n}" for n in range(adds))
            self.next_object += adds
            if before is not None and not released and not new:
                lists[task] = before
            else:
                lists[task] = id = ListId(task, b"%d" % number)
                self.names[id] = (old - released) | new
                self.stored |= new
            digest = None if before is None else before.digest
            changes[task] = ListChange(digest, tuple(new), tuple(released))
        self.checkpoints[number] = lists
        self.shared.register(f"chk-{number}", map(held, lists.values()), changes)

    def clean(self) -> None:
        pinned = {id for lists in self.pinned.values() for id in lists.values()}
        self.shared.hold(map(held, pinned))
        for id in self.shared.dropped():
            if id not in pinned:
                self.delete(self.shared.remove(id, None if self.shared.to_load(id) is None else self.names[id]))

    def sweep(self) -> None:
        for task in TASKS:
            mine = {name for name in self.stored if name.startswith(task)}
            self.delete(mine - self.needed(task))
            self.shared.compare(task, {id.digest: names for id, names in self.names.items() if id.task == task})
            self.shared.unswept.discard(task)

    def delete(self, names: frozenset[str] | set[str]) -> None:
        assert not names & self.needed()
        self.stored -= names

    def restart(self) -> None:
        """A new owner knows only what is retained."""
        self.shared = ListRegistry()
        for number, lists in self.checkpoints.items():
            self.shared.register(f"chk-{number}", map(held, lists.values()))
        self.shared.unswept.update(TASKS)  # a start is followed by a sweep

    def check(self) -> None:
        assert self.needed() <= self.stored
        for task in set(TASKS) - self.shared.unswept:
            kept = {name for name in self.stored if name.startswith(task)}
            dropped = {name for id in self.shared.dropped() if id.task == task for name in self.names[id]}
            assert kept <= self.needed(task) | dropped


def held(id: ListId) -> HeldList:
    return HeldList(id, FileList())


SMALL = st.tuples(st.integers(0, 2), st.integers(0, 3))
MOVES = st.one_of(
    st.tuples(st.just("take"), st.integers(0, 3), SMALL, SMALL),
    st.tuples(st.just("take"), st.just(0), SMALL, SMALL),
    st.tuples(st.sampled_from(["full", "drop oldest", "drop any", "pin", "unpin", "clean", "sweep", "restart"])),
)


@pytest.mark.feature("F32", "F33")
@settings(max_examples=500, deadline=None)
@given(st.lists(MOVES, max_size=40))
def test_nothing_that_is_needed_is_freed_and_nothing_else_stays(moves: list[tuple]) -> None:  # type: ignore[type-arg]
    model, number = Model(), 0
    for kind, *how in moves:
        retained = list(model.checkpoints)
        if kind in ("take", "full") or not retained:
            number += 1
            back = how[0] if kind == "take" else 0
            base = model.checkpoints[retained[-1 - back % len(retained)]] if retained and kind == "take" else None
            picks = dict(zip(TASKS, how[1:] if kind == "take" else [(0, 2), (0, 1)]))
            model.take(number, base, picks)
        elif kind.startswith("drop") and len(retained) > 1:
            gone = retained[0] if kind == "drop oldest" else retained[len(retained) // 2]
            del model.checkpoints[gone]
            model.shared.drop(f"chk-{gone}")
        elif kind == "pin":
            model.pinned[retained[0]] = model.checkpoints[retained[0]]
        elif kind == "unpin" and model.pinned:
            model.pinned.popitem()
            model.shared.unswept.update(TASKS)  # what a former owner dropped is found by a sweep
        elif kind in ("clean", "sweep", "restart"):
            getattr(model, kind)()
        model.check()
    model.clean()
    model.sweep()
    model.check()
    assert model.stored == model.needed()


@pytest.mark.feature("F32", "F33")
def test_in_a_chain_nothing_is_loaded_and_nothing_is_left_to_a_sweep() -> None:
    model = Model()
    model.take(1, None, dict.fromkeys(TASKS, (0, 5)))
    for number in range(2, 30):
        model.take(number, model.checkpoints[number - 1], dict.fromkeys(TASKS, (2, 2)))
        if number > 3:
            del model.checkpoints[number - 3]
            model.shared.drop(f"chk-{number - 3}")
            assert all(model.shared.to_load(id) is None for id in model.shared.dropped())
            model.clean()
        assert not model.shared.unswept
        assert model.stored == model.needed()


def test_an_unknown_list_stops_freeing_until_lists_are_compared() -> None:
    model = Model()
    model.take(1, None, dict.fromkeys(TASKS, (0, 3)))
    model.take(2, model.checkpoints[1], dict.fromkeys(TASKS, (1, 1)))
    model.restart()
    model.shared.unswept.clear()
    model.take(3, model.checkpoints[2], dict.fromkeys(TASKS, (1, 1)))
    del model.checkpoints[1]
    model.shared.drop("chk-1")
    model.clean()
    assert model.shared.unswept == set(TASKS)
    model.sweep()
    assert model.stored == model.needed()
