"""The state in a snapshot as pages and programs show it: what there is, the first entries, and everything about one key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from tidegate.checkpoint.metadata import OperatorInfo, StateInfo
from tidegate.control.jobs.texts import jsonable, key_from
from tidegate.control.messages.state import (
    KeyLookup,
    StateEntries,
    StateLine,
    StateOverview,
    StatesOfOperator,
    StoredValue,
)
from tidegate.graph.states import StateKind
from tidegate.savepoint.entries import StateEntry
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.schema_codec import show_schema
from tidegate.savepoint.snapshot import StateNotFound, StoredSnapshot

MOST_ENTRIES = 1_000


def state_overview(snapshot: StoredSnapshot) -> StateOverview:
    """Return what a snapshot holds. Reads its metadata only."""
    m = snapshot.metadata
    return StateOverview(
        snapshot=snapshot.url,
        id=m.checkpoint_id,
        at_ms=m.completed_ms,
        operators=[_operator(snapshot, operator) for operator in m.operators],
    )


def _operator(snapshot: StoredSnapshot, operator: OperatorInfo) -> StatesOfOperator:
    return StatesOfOperator(
        uid=str(operator.uid),
        level=operator.level,
        parallelism=operator.parallelism,
        max_parallelism=snapshot.metadata.max_parallelism,
        backend=operator.backend,
        key_type=show_schema(operator.key),
        bytes=sum(task.size_bytes for task in snapshot.tasks_of(operator.uid)),
        states=[_state(snapshot, state) for state in operator.states],
    )


def _state(snapshot: StoredSnapshot, state: StateInfo) -> StateLine:
    return StateLine(
        name=state.name,
        kind=str(state.kind),
        type=show_schema(state.value),
        map_key_type=None if state.map_key is None else show_schema(state.map_key),
        distribution=str(state.distribution),
        ttl_ms=state.ttl_ms,
        bytes=snapshot.table_bytes(state.id),
    )


def look_up(snapshot: StoredSnapshot, uid: str, texts: Sequence[str], show_values: bool) -> KeyLookup:
    """Return everything that the keyed states of an operator hold for one key, given as one text for each key column.

    Fetches the files of one task.
    """
    keyed = [state for state in snapshot.operator(uid).states if snapshot.layout(uid, state.name).keyed]
    if not keyed:
        raise StateNotFound(f"{uid!r} has no keyed state in {snapshot.url}.")
    # All keyed states of an operator have its key, and are in the same task.
    key = key_from(texts, snapshot.layout(uid, keyed[0].name).key_types)
    with SnapshotReader(snapshot) as reader:
        values = [_value(state, *_found(reader, uid, state, key), show_values) for state in keyed]
    return KeyLookup(snapshot=snapshot.url, operator=uid, key=jsonable(key), states=values)


def _found(reader: SnapshotReader, uid: str, state: StateInfo, key: Any) -> tuple[bool, Any]:
    """Return whether the state holds something, and what. Timers, and states with a value for each window, give one entry for
    each."""
    if state.namespace is not None or state.kind == StateKind.TIMERS:
        entries = list(reader.of_key(uid, state.name, key))
        return bool(entries), [_of_window(entry) for entry in entries]
    value = reader.get(uid, state.name, key)
    return value is not None and value != [] and value != {}, value


def _of_window(entry: StateEntry) -> dict[str, Any]:
    parts = {"window": entry.namespace, "map_key": entry.map_key, "value": entry.value}
    return {name: part for name, part in parts.items() if part is not None or name == "value"}


def _value(state: StateInfo, exists: bool, value: Any, show_values: bool) -> StoredValue:
    return StoredValue(
        name=state.name,
        kind=str(state.kind),
        found=exists,
        value=jsonable(value) if exists and show_values else None,
        redacted=exists and not show_values,
    )


def first_entries(snapshot: StoredSnapshot, uid: str, state: str, limit: int, show_values: bool) -> StateEntries:
    """Return the first entries of a state, in the order of key groups. Without values, only whether there are more."""
    if not show_values:
        # Raises if there is no such state, which is no secret.
        snapshot.layout(uid, state)
        return StateEntries(operator=uid, state=state, entries=[], more=False, redacted=True)
    limit = max(1, min(limit, MOST_ENTRIES))
    with SnapshotReader(snapshot) as reader:
        # One more than is shown, to know whether there are more.
        first = list(islice(reader.entries(uid, state), limit + 1))
    names = ("key_group", "key", "namespace", "map_key", "position", "value")
    entries = [{name: jsonable(getattr(entry, name)) for name in names} for entry in first[:limit]]
    return StateEntries(operator=uid, state=state, entries=entries, more=len(first) > limit, redacted=False)
