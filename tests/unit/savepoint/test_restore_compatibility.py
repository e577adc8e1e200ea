"""State of another type, or under another uid, on its way into a job: converted when it is restored, or refused before."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, mapping, value
from tidegate.checkpoint.metadata import OperatorInfo, QueryFile, SourcePosition
from tidegate.checkpoint.task.assignment import RestoreTarget, UnclaimedState, plan_restore
from tidegate.checkpoint.task.version_restore import RestoreOrder, restore
from tidegate.core.ids import AttemptId, EpochId, Slot, TaskId, Term, Uid
from tidegate.graph.states import Distribution, StateKind, StateSpec
from tidegate.runtime.checkpoints.restore_point import plan_return
from tidegate.runtime.sources.source_notes import load_notes
from tidegate.savepoint.canonical_read import CanonicalTask
from tidegate.savepoint.compatibility import JobNow
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.entries import StateLayout
from tidegate.savepoint.evolution import DROPPED, MigrationFailed
from tidegate.savepoint.restore_compatibility import (
    Fitted,
    StateChanged,
    UidsCannotBeMapped,
    converter,
    fit,
    shown,
    translated,
)
from tidegate.savepoint.snapshot import CANONICAL, NATIVE, StoredSnapshot
from tidegate.state.accessors.operator_states import read_elements
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import key_group_range
from tidegate.state.version import VersionId
from tidegate.storage import open_storage


@dataclass
class Rule:
    limit: int
    note: str


NewRule = make_dataclass("Rule", [("maximum", float), ("color", str, "red")])
"""`limit` renamed and widened, `note` dropped, `color` added."""
NOTES = StateSpec(name="notes", kind=StateKind.LIST, value=int, distribution=Distribution.SPLIT)
KEYS = [f"u{n}" for n in range(40)]


def fill(held: Any) -> None:
    held.lists.lists["notes"].update([held.slot, 10 + held.slot])


OLD = Operator(
    "rules",
    ("string",),
    (value("rule", Rule), mapping("seen", str, int), listing("last", int), NOTES),
    {
        "rule": {key: Rule(n, "x") for n, key in enumerate(KEYS)},
        "seen": {key: {"a": n} for n, key in enumerate(KEYS)},
        "last": {key: [n, n + 1] for n, key in enumerate(KEYS)},
    },
    also=fill,
)
NEW_STATES = (
    value("rule", NewRule), mapping("seen", str, float), listing("last", float),
    StateSpec(name="notes", kind=StateKind.LIST, value=float, distribution=Distribution.SPLIT),
)  # fmt: skip
RENAMES = {("rules", "rule"): {"limit": "maximum", "note": DROPPED}}


def declared(*states: StateSpec, uid: str = "rules", key: tuple[str, ...] = ("string",)) -> OperatorInfo:
    ids = {(uid, name): n for n, name in enumerate(("rule", "seen", "last", "notes", "more"), 1)}
    return Operator(uid, key, states, {}).info(ids, 2, "hashmap")


@dataclass
class Landing:
    """A job that restores a snapshot without Spark, and what its tasks then hold."""

    folder: Path
    snapshot: StoredSnapshot
    backend: str
    parallelism: int

    def land(
        self, operator: OperatorInfo, fitted: Fitted, level: int = 1, allow: bool = False
    ) -> dict[tuple[str, Any, Any, Any], Any]:
        metadata = self.snapshot.metadata
        levels = {operator.uid: level}
        target = RestoreTarget(
            metadata.max_parallelism, self.parallelism, levels, allow, fitted.rewritten, fitted.dropped
        )
        return dict(
            found for plan in plan_restore(metadata, target) for found in self._task(operator, fitted, plan).items()
        )

    def _task(self, operator: OperatorInfo, fitted: Fitted, plan: Any) -> dict[tuple[str, Any, Any, Any], Any]:
        backend, directory = backend_named(self.backend), self.folder / str(plan.task)
        old = tuple(t for t in self.snapshot.metadata.tasks if t.task in plan.sources)
        order = RestoreOrder(plan=plan, sources=old, root=self.snapshot.root, stored=None, migrations=fitted.migrations)
        target = VersionId(EpochId(Term(2), 1), AttemptId(plan.task.slot))
        made = restore(self.snapshot.storage, directory, order, backend, {}, target, CanonicalTask, converter)
        store = backend.begin(directory, made, VersionId(EpochId(Term(2), 2), AttemptId(0)), plan.key_groups)
        found = {}
        try:
            for state in operator.states:
                layout = StateLayout(operator, state)
                prefix = state.id.to_bytes(2, "big")
                inside = [(k, v) for k, v in store.scan(*key_group_range(*plan.key_groups)) if k[2:4] == prefix]
                entries = list(layout.typed(inside)) if layout.keyed else []
                if not layout.keyed:
                    entries = list(layout.typed_elements(read_elements(store, state.id) or ()))
                slot = None if layout.keyed else plan.task.slot
                found |= {
                    (e.state, e.key, e.map_key, e.position if slot is None else (slot, e.position)): e.value
                    for e in entries
                }
        finally:
            store.abandon()
        return found


@pytest.fixture
def chk(tmp_path: Path) -> StoredSnapshot:
    return StoredSnapshot.open(History(tmp_path, backend="rocksdb").checkpoint(1, OLD))


@pytest.mark.feature("I31", "I40")
@pytest.mark.parametrize(
    ("backend", "parallelism", "form"),
    [("hashmap", 2, None), ("rocksdb", 2, None), ("rocksdb", 3, CANONICAL), ("hashmap", 3, NATIVE)],
)
def test_state_of_another_type_is_converted_on_its_way_in(
    chk: StoredSnapshot, tmp_path: Path, backend: str, parallelism: int, form: str | None
) -> None:
    origin = chk
    if form is not None:
        copy_snapshot(chk, open_storage(str(tmp_path / "sp")), form)
        origin = StoredSnapshot.open(tmp_path / "sp")
    now = declared(*NEW_STATES)
    fitted = fit(origin.metadata, JobNow((now,), (Uid("clicks"),), renames=RENAMES), False)
    found = Landing(tmp_path / "restored", origin, backend, parallelism).land(now, fitted)
    for n, key in enumerate(KEYS):
        assert found["rule", key, None, None] == {"maximum": float(n), "color": "red"}
        assert found["seen", key, "a", None] == float(n)
        assert [found["last", key, None, at] for at in (0, 1)] == [n, n + 1]
    notes = sorted(number for (state, *_), number in found.items() if state == "notes")
    assert notes == [0, 1, 10, 11]
    assert all(type(number) is float for number in notes)


@pytest.mark.feature("I31")
def test_only_tasks_with_such_state_are_rewritten(chk: StoredSnapshot) -> None:
    same = fit(chk.metadata, JobNow((declared(*OLD.states),)), True)
    assert same.rewritten == frozenset()
    plans = plan_restore(chk.metadata, RestoreTarget(128, 2, {Uid("rules"): 1}))
    assert [plan.as_is for plan in plans] == [TaskId(1, Slot(0)), TaskId(1, Slot(1))]
    changed = fit(chk.metadata, JobNow((declared(*NEW_STATES),), renames=RENAMES), True)
    plans = plan_restore(chk.metadata, RestoreTarget(128, 2, {Uid("rules"): 1}, rewritten=changed.rewritten))
    assert [plan.as_is for plan in plans] == [None, None]


@pytest.mark.feature("I31")
def test_a_value_that_has_no_equal_in_the_new_type_stops_the_restore(tmp_path: Path) -> None:
    large = Operator("rules", ("string",), (value("rule", int),), {"rule": {"ann": 2**60 + 1}})
    chk = StoredSnapshot.open(History(tmp_path).checkpoint(1, large))
    now = declared(value("rule", float))
    with pytest.raises(MigrationFailed, match=f"State 'rule' cannot be migrated: {2**60 + 1}"):
        Landing(tmp_path, chk, "hashmap", 2).land(now, fit(chk.metadata, JobNow((now,)), True))


@pytest.mark.feature("I31")
@pytest.mark.parametrize(
    ("states", "key", "said"),
    [
        ((value("rule", str),), ("string",), "State 'rule' of 'rules' is incompatible"),
        (
            (value("rule", NewRule), NOTES),
            ("string",),
            "declare that with --renamed rules/rule:limit=maximum",
        ),
        ((mapping("seen", int, int), NOTES), ("string",), "Keys never change"),
        ((value("rule", Rule), NOTES), ("bigint",), "Keys never change"),
        ((value("rule", Rule),), ("string",), "State 'notes' of 'rules' is dropped"),
    ],
)
def test_what_cannot_be_restored_is_refused_with_what_to_do_and_every_verdict(
    chk: StoredSnapshot, states: tuple[StateSpec, ...], key: tuple[str, ...], said: str
) -> None:
    with pytest.raises(StateChanged, match=said) as refused:
        fit(chk.metadata, JobNow((declared(*states, key=key),), (Uid("clicks"),)), False)
    assert "tidegate compat" in str(refused.value)
    assert any("clicks: as is" in shown(verdict) for verdict in refused.value.verdicts)


@pytest.mark.feature("I16", "I17")
def test_a_start_without_one_of_the_operators_needs_leave_to_drop_its_state(chk: StoredSnapshot) -> None:
    now = JobNow((declared(value("rule", int), uid="other"),))
    with pytest.raises(UnclaimedState, match="'rules'"):
        plan_return(chk.metadata, now, parallelism=2, max_parallelism=128, allow=False)
    plans, _ = plan_return(chk.metadata, now, parallelism=2, max_parallelism=128, allow=True)
    assert [plan.sources for plan in plans] == [(), ()]


@pytest.mark.feature("I31")
def test_leave_to_drop_state_is_no_leave_to_change_it(chk: StoredSnapshot) -> None:
    with pytest.raises(StateChanged):
        fit(chk.metadata, JobNow((declared(value("rule", str)),)), True)


@pytest.mark.feature("I37")
def test_a_mapped_uid_takes_its_states_numbers_and_positions_along(tmp_path: Path) -> None:
    more = {
        "positions": (SourcePosition(Uid("clicks"), ('{"0":15}',)),),
        "query": (QueryFile("batch", "{}"), QueryFile("sources/clicks/3", "a file that was read")),
    }
    chk = StoredSnapshot.open(History(tmp_path).checkpoint(1, OLD, **more)).metadata
    uids = {"rules": "limits", "clicks": "taps"}
    new = translated(chk, uids)
    now = declared(*OLD.states, uid="limits")
    assert {str(v.outcome) for v in fit(new, JobNow((now,), (Uid("taps"),)), False).compatibility.verdicts} == {"as is"}
    assert {number.uid for number in new.state_numbers} == {"limits"}
    (taps,), _ = load_notes(open_storage(str(tmp_path)), "", new, [Uid("taps")], False)
    assert taps.notes == {"3": b"a file that was read"}
    with pytest.raises(UnclaimedState, match="'rules'"):
        plan_restore(chk, RestoreTarget(128, 2, {Uid("limits"): 1}))
    assert translated(new, uids) == new  # the map may stay in the configuration of the job


@pytest.mark.feature("I37")
@pytest.mark.parametrize(
    ("uids", "said"),
    [
        ({"rulez": "limits"}, "no 'rulez' to map"),
        ({"rules": "clicks"}, "Two operators would have the uid 'clicks'"),
        ({"rules": "x", "clicks": "x"}, "Two operators would have the uid 'x'"),
        ({"rules": "clicks", "clicks": "rules"}, "both an old and a new uid"),
    ],
)
def test_a_uid_mapping_that_cannot_be_repeated_is_refused(chk: StoredSnapshot, uids: dict[str, str], said: str) -> None:
    with pytest.raises(UidsCannotBeMapped, match=said):
        translated(chk.metadata, uids)
