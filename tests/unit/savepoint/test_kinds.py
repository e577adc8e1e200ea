"""Every kind of state is read, copied, re-cut and restored: windows, timers, times to live, operator state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.savepoint.checkpoint_kit import NOW_MS, Held, History, Operator
from tidegate.checkpoint.task.assignment import RestoreTarget, plan_restore
from tidegate.checkpoint.task.version_restore import RestoreOrder, restore
from tidegate.core.ids import AttemptId, EpochId, Term, Uid
from tidegate.core.times import TimeDomain
from tidegate.graph.states import TIMERS, Distribution, StateKind, StateSpec
from tidegate.graph.ttl import StateTtlConfig
from tidegate.savepoint.canonical_read import CanonicalTask
from tidegate.savepoint.changes import Changes
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.entries import UnreadableState
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.savepoint.verify import verify
from tidegate.state.accessors.folding import ReducingAccessor
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.accessors.ttl import Stamp
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec, TimeWindow
from tidegate.state.version import VersionId
from tidegate.storage import open_storage

USERS = [f"u{n}" for n in range(20)]
WINDOW = TimeWindow(0, 60_000)
HOUR = StateTtlConfig("1 h")
SPECS = (
    StateSpec(name="largest", kind=StateKind.REDUCING, value=int, function=max),
    StateSpec(name="ordered", kind=StateKind.SORTED_MAP, value=str, map_key=int),
    StateSpec(name="seen", kind=StateKind.MAP, value=int, map_key=str, ttl=HOUR),
    StateSpec(name="last", kind=StateKind.LIST, value=str, ttl=HOUR),
    StateSpec(name="in_window", kind=StateKind.VALUE, value=float, windowed=True),
    TIMERS,
    StateSpec(name="offsets", kind=StateKind.LIST, value=int, distribution=Distribution.SPLIT),
    StateSpec(name="all", kind=StateKind.LIST, value=str, distribution=Distribution.UNION),
    StateSpec(name="rules", kind=StateKind.MAP, value=float, map_key=str, distribution=Distribution.BROADCAST),
)


def largest_of(keyed: KeyedStates) -> ReducingAccessor:
    accessor = keyed.accessors["largest"]
    assert isinstance(accessor, ReducingAccessor)
    return accessor


def fill(held: Held) -> None:
    keyed, lists = held.keyed, held.lists
    for number, user in enumerate(USERS):
        group = held.group_of(user)
        if group is None:
            continue
        keyed.scope.key, keyed.scope.key_group = user, group
        keyed.window_scope.key, keyed.window_scope.key_group = (user, WINDOW), group
        largest_of(keyed).add(number)
        keyed.map_state("ordered").put(number, user)
        keyed.map_state("seen").put("a", number)
        keyed.list_state("last").add_all([user, "x"])
        keyed.value_state("in_window").update(number / 2)
        assert keyed.timers is not None
        keyed.timers.register(TimeDomain.EVENT_TIME, 5 - number, user, group)
        keyed.timers.register(TimeDomain.PROCESSING_TIME, NOW_MS, user, group, WINDOW)
    lists.lists["offsets"].add_all([held.slot * 10, held.slot * 10 + 1, held.slot * 10 + 2])
    lists.lists["all"].add(f"slot {held.slot}")
    lists.set_writable(True)
    lists.maps["rules"].put_all({"low": 0.5, "high": 2.0})


OPERATOR = Operator("op", ("string",), SPECS, {}, also=fill)
RENEWED = Stamp(False, NOW_MS)
Contents = dict[str, list[Any]]


def contents(snapshot: StoredSnapshot) -> Contents:
    """Everything that a snapshot holds, in an order of its own."""
    with SnapshotReader(snapshot) as reader:
        return {
            spec.name: sorted(
                (
                    (e.key, e.namespace, e.map_key, e.position, e.value, e.stamp)
                    for e in reader.entries("op", spec.name)
                ),
                key=repr,
            )
            for spec in SPECS
        }


@pytest.fixture(params=["hashmap", "rocksdb"])
def origin(tmp_path: Path, request: pytest.FixtureRequest) -> StoredSnapshot:
    return StoredSnapshot.open(History(tmp_path, backend=request.param).checkpoint(1, OPERATOR))


@pytest.mark.feature("I29")
def test_every_kind_is_read(origin: StoredSnapshot) -> None:
    held = contents(origin)
    assert ("u7", None, None, None, 7, None) in held["largest"]
    assert ("u7", None, 7, None, "u7", None) in held["ordered"]
    assert ("u7", None, "a", None, 7, RENEWED) in held["seen"]
    assert ("u7", None, None, 1, "x", RENEWED) in held["last"]
    assert ("u7", WINDOW, None, None, 3.5, None) in held["in_window"]
    assert ("u7", None, "EVENT_TIME", None, -2, None) in held["on_timer"]
    assert ("u7", WINDOW, "PROCESSING_TIME", None, NOW_MS, None) in held["on_timer"]
    assert [entry[3:5] for entry in held["offsets"]] == list(enumerate([0, 1, 2, 10, 11, 12]))
    assert [entry[4] for entry in held["all"]] == ["slot 0", "slot 1"]
    assert {entry[2]: entry[4] for entry in held["rules"]} == {"low": 0.5, "high": 2.0}


@pytest.mark.feature("I29")
def test_one_key_is_looked_up(origin: StoredSnapshot) -> None:
    with SnapshotReader(origin) as reader:
        assert reader.get("op", "in_window", "u7", WINDOW) == 3.5
        assert reader.get("op", "on_timer", "u7") == [("EVENT_TIME", -2)]
        assert reader.get("op", "seen", "u7") == {"a": 7}
        with pytest.raises(UnreadableState, match="no keys"):
            reader.get("op", "offsets", "u7")


@pytest.mark.feature("I28")
@pytest.mark.parametrize("format", ["CANONICAL", "NATIVE"])
def test_a_copy_holds_the_same(origin: StoredSnapshot, tmp_path: Path, format: str) -> None:
    copy_snapshot(origin, open_storage(tmp_path / "sp"), format)
    copied = StoredSnapshot.open(tmp_path / "sp")
    assert list(verify(copied)) == []
    assert contents(copied) == contents(origin)


@pytest.mark.feature("I28")
@pytest.mark.parametrize("limit", [1, 77])
def test_key_groups_are_redistributed(origin: StoredSnapshot, tmp_path: Path, limit: int) -> None:
    copy_snapshot(origin, open_storage(tmp_path / "sp"), changes=Changes(max_parallelism=limit))
    copied = StoredSnapshot.open(tmp_path / "sp")
    assert list(verify(copied)) == []
    assert contents(copied) == contents(origin)


@pytest.mark.feature("I23", "I36")
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_restore_from_tables_gives_every_task_its_share(
    origin: StoredSnapshot, tmp_path: Path, parallelism: int
) -> None:
    """The states of new tasks, read by the accessors that functions use."""
    storage = open_storage(tmp_path / "sp")
    copied = copy_snapshot(origin, storage).metadata
    old = {task.task: task for task in copied.tasks}
    ids = {state.name: state.id for operator in copied.operators for state in operator.states}
    fired, largest, seen, offsets, unions, rules = [], {}, {}, [], [], []
    for order in plan_restore(copied, RestoreTarget(128, parallelism, {Uid("op"): 1})):
        sources, directory = tuple(old[source] for source in order.sources), tmp_path / str(order.task)
        first, second = (VersionId(EpochId(Term(9), number), AttemptId(1)) for number in (1, 2))
        backend = backend_named("rocksdb")
        made = restore(
            storage,
            directory,
            RestoreOrder(plan=order, sources=sources, root="", stored=None),
            backend,
            {},
            first,
            CanonicalTask,
        )
        store = backend.begin(directory, made, second, order.key_groups)
        codec = KeyCodec(origin.layout("op", "seen").key_types)
        keyed = KeyedStates(store, SPECS, ids.__getitem__, codec, copied.epoch, order.key_groups)
        for user, group in keyed.keys_of("largest"):
            keyed.scope.key, keyed.scope.key_group = user, group
            largest[user] = largest_of(keyed).get()
            seen[user] = dict(keyed.map_state("seen").items())
            assert list(keyed.list_state("last").get()) == [user, "x"]
        assert keyed.timers is not None
        fired += [timer.key for timer in keyed.timers.due(TimeDomain.EVENT_TIME, 100)]
        lists = OperatorStates(store, SPECS, ids.__getitem__)
        offsets += lists.lists["offsets"].stored()
        unions.append(lists.lists["all"].stored())
        rules.append(lists.maps["rules"].stored())
        store.abandon()
    assert largest == {user: number for number, user in enumerate(USERS)}
    assert seen == {user: {"a": number} for number, user in enumerate(USERS)}
    assert sorted(fired) == sorted(USERS)
    assert sorted(offsets) == [0, 1, 2, 10, 11, 12]
    assert unions == [["slot 0", "slot 1"]] * parallelism
    assert rules == [{"low": 0.5, "high": 2.0}] * parallelism


@pytest.mark.feature("I28")
def test_every_kind_is_taken_out_as_a_table_and_put_back(origin: StoredSnapshot, tmp_path: Path) -> None:
    """What `to_arrow` gives is what `with_entries` takes: windows, timers, stamps, lists, operator state."""
    opened = tg.Savepoint.open(origin.url)
    writer = tg.SavepointWriter.from_existing(opened).with_max_parallelism(77)
    for spec in SPECS:
        table = opened.state("op", spec.name).to_arrow()
        shuffled = table.take(list(reversed(range(len(table))))) if spec.keyed else table
        writer = writer.with_entries("op", spec.name, shuffled.drop_columns(["operator", "state"]))
    written = writer.write(tmp_path / "sp")
    copied = StoredSnapshot.open(tmp_path / "sp")
    assert list(verify(copied)) == []
    assert contents(copied) == contents(origin)
    assert written.state("op", "in_window").get("u7", window=(0, 60_000)) == 3.5
    assert {(s.state, s.distribution) for s in written.states()} == {(s.name, str(s.distribution)) for s in SPECS}
