"""State that comes from outside a job: filled into a savepoint before the job ever runs, or in the place of what was there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    FileList,
    OperatorInfo,
    StateInfo,
    StateNumber,
    TaskState,
)
from tidegate.checkpoint.storage import Storage
from tidegate.core.ids import AttemptId, Slot, TaskId, Uid
from tidegate.core.type_schema import TypeSchema
from tidegate.graph import state_ids
from tidegate.savepoint.changes import ChangeRefused
from tidegate.savepoint.entries import SHAPES, Shape, StateEntry, StateLayout
from tidegate.savepoint.snapshot import CANONICAL_BACKEND
from tidegate.state.key_groups import range_of_slot, slot_of
from tidegate.state.version import VersionId

FIRST_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Addition:
    """One state and all that it is to hold: key → value, sequence of elements, or mapping.

    Values are plain: structs are dicts by field name (see `plain`). A key that comes twice counts as it came last.
    """

    uid: str
    state: str
    kind: str
    key: tuple[str, ...]
    """DDL types of the key columns."""
    value: TypeSchema
    map_key: TypeSchema | None
    contents: Iterable[tuple[Any, Any]]


def declared_with(metadata: CheckpointMetadata, additions: Sequence[Addition]) -> CheckpointMetadata:
    """The metadata with these states described and numbered. Raises ChangeRefused where a key does not fit."""
    known = {(number.uid, number.name): number.id for number in metadata.state_numbers}
    numbers = state_ids.assign(known, [(Uid(one.uid), one.state) for one in additions])
    operators = {operator.uid: operator for operator in metadata.operators}
    for one in additions:
        if SHAPES.get(one.kind) in (None, Shape.TIMERS):
            raise ChangeRefused(f"State of kind {one.kind!r} cannot be written into a savepoint from outside.")
        uid, key = Uid(one.uid), {"columns": list(one.key)}
        known_as = operators.get(uid) or OperatorInfo(uid, FIRST_LEVEL, metadata.parallelism, CANONICAL_BACKEND, key)
        if known_as.key != key:
            raise ChangeRefused(
                f"The state {one.state!r} of {one.uid!r} was given keys ({', '.join(one.key)}), but the operator has keys "
                f"({', '.join((known_as.key or {}).get('columns', ()))}). All states of an operator have the same key."
            )
        if any(state.name == one.state for state in known_as.states):
            raise ChangeRefused(f"The state {one.state!r} of {one.uid!r} was given twice.")
        info = StateInfo(one.state, numbers[uid, one.state], one.kind, one.value, one.map_key)
        operators[uid] = replace(known_as, states=(*known_as.states, info))
    listed = tuple(StateNumber(uid, name, id) for (uid, name), id in numbers.items())
    return replace(metadata, operators=tuple(operators.values()), state_numbers=listed)


def write_additions(
    metadata: CheckpointMetadata, additions: Sequence[Addition], tasks: Sequence[TaskState], target: Storage
) -> tuple[tuple[TaskState, ...], int]:
    """Write the contents as tables; all tasks, with the new files added to those they had, and how many entries.

    `metadata` is what `declared_with` gave. Raises InvalidKey or WrongValue for what does not fit the types.
    """
    from tidegate.savepoint.canonical_write import CanonicalWriter

    merged = {task.task: task for task in tasks}
    operators = {operator.uid: operator for operator in metadata.operators}
    limit, written = metadata.max_parallelism, 0
    for one in additions:
        operator = operators[Uid(one.uid)]
        slots = sum(id.level == operator.level for id in merged) or min(metadata.parallelism, limit)
        for slot in range(slots):
            merged.setdefault(TaskId(operator.level, Slot(slot)), _empty(operator.level, slot, slots, metadata))
        mine = [merged[TaskId(operator.level, Slot(slot))] for slot in range(slots)]
        writers = [
            CanonicalWriter(target, "", task.task, task.key_groups, task.version, metadata.checkpoint_id)
            for task in mine
        ]
        layout = StateLayout(operator, next(state for state in operator.states if state.name == one.state))
        for entry in _entries(layout, one.contents, limit):
            writers[slot_of(entry.key_group, slots, limit)].add(layout, (entry,))
        for task, writer in zip(mine, writers):
            files = FileList([*task.files, *writer.finish().files])
            merged[task.task] = replace(task, files=files)
            written += writer.rows
    return tuple(merged.values()), written


def _empty(level: int, slot: int, slots: int, metadata: CheckpointMetadata) -> TaskState:
    groups = range_of_slot(slot, slots, metadata.max_parallelism)
    version = VersionId(metadata.epoch, AttemptId(0))
    return TaskState(TaskId(level, Slot(slot)), groups, CANONICAL_BACKEND, version)


def _entries(layout: StateLayout, contents: Iterable[tuple[Any, Any]], limit: int) -> Iterator[StateEntry]:
    uid, name = layout.uid, layout.info.name
    for given, what in contents:
        key = layout.keys.canonical(given)
        group = layout.key_group(key, limit)
        if layout.map_keys is not None:
            pairs = what.items() if isinstance(what, Mapping) else what
            for map_key, value in pairs:
                # Encoded once here, so that what does not fit is refused before anything is published.
                layout.map_keys.encode(map_key)
                layout.values.encode(value)
                yield StateEntry(uid, name, group, key, None, map_key, None, value)
        elif layout.is_list:
            elements = list(what)
            layout.values.encode(elements)
            for position, value in enumerate(elements):
                yield StateEntry(uid, name, group, key, None, None, position, value)
        else:
            layout.values.encode(what)
            yield StateEntry(uid, name, group, key, None, None, None, what)
