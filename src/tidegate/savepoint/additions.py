"""State from outside a job: added to a savepoint before the job ever runs, or in place of existing state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise

from tidegate.checkpoint.files.file_lists import loaded_task
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    Distribution,
    FileList,
    OperatorInfo,
    StateInfo,
    StateNumber,
    TaskState,
)
from tidegate.core.errors import WrongValue
from tidegate.core.ids import AttemptId, Slot, TaskId, Uid
from tidegate.core.times import TimeDomain
from tidegate.core.type_schema import TypeSchema
from tidegate.graph import state_ids
from tidegate.savepoint.changes import ChangeRefused
from tidegate.savepoint.entries import SHAPES, Shape, StateEntry, StateLayout
from tidegate.savepoint.schema_codec import schema_codec
from tidegate.savepoint.snapshot import CANONICAL_BACKEND
from tidegate.state.keys.entry_keys import namespace_bytes
from tidegate.state.keys.key_groups import range_of_slot, slot_of
from tidegate.state.version import VersionId
from tidegate.storage import Storage

# Levels of the graph begin at 1. A start places operators by uid, so any level would do.
FIRST_LEVEL = 1
# Times are stored in eight bytes with a sign.
_TIME_LIMIT = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """One state and its entire content.

    Values are plain: structs are dicts by field name (see `schema_codec`). Key groups are computed here; those in the
    entries are ignored. Elements of a list are ordered by their positions.
    """

    uid: str
    state: str
    kind: str
    key: tuple[str, ...]
    """DDL types of the key columns. Empty for operator state if the operator has no key, or is known already."""
    value: TypeSchema
    map_key: TypeSchema | None
    contents: Callable[[StateLayout], Iterable[StateEntry]] = field(compare=False)
    distribution: Distribution = Distribution.KEYED
    windowed: bool = False


def declared_with(metadata: CheckpointMetadata, additions: Sequence[Addition]) -> CheckpointMetadata:
    """Return the metadata with these states described and numbered. Raises ChangeRefused if a key does not match."""
    known = {(number.uid, number.name): number.id for number in metadata.state_numbers}
    numbers = state_ids.assign(known, [(Uid(one.uid), one.state) for one in additions])
    operators = {operator.uid: operator for operator in metadata.operators}
    for one in additions:
        if one.kind not in SHAPES:
            raise ChangeRefused(f"There is no kind of state {one.kind!r}. There are: {', '.join(SHAPES)}.")
        # Operator state comes without a key, so it neither contradicts nor sets that of its operator.
        uid, key = Uid(one.uid), {"columns": list(one.key)} if one.key else None
        known_as = operators.get(uid) or OperatorInfo(
            uid=uid, level=FIRST_LEVEL, parallelism=metadata.parallelism, backend=CANONICAL_BACKEND, key=key
        )
        if key is not None and not known_as.key:
            known_as = replace(known_as, key=key)
        if key is not None and known_as.key != key:
            raise ChangeRefused(
                f"The state {one.state!r} of {one.uid!r} was given keys ({', '.join(one.key)}), but the operator has keys "
                f"({', '.join((known_as.key or {}).get('columns', ()))}). All states of an operator have the same key."
            )
        if any(state.name == one.state for state in known_as.states):
            raise ChangeRefused(f"The state {one.state!r} of {one.uid!r} was given twice.")
        info = StateInfo(
            name=one.state,
            id=numbers[uid, one.state],
            kind=one.kind,
            value=one.value,
            map_key=one.map_key,
            namespace={"type": "window"} if one.windowed else None,
            distribution=one.distribution,
        )
        operators[uid] = replace(known_as, states=(*known_as.states, info))
    # Numbers that were given out stay given out, also those of states that the snapshot does not have any more.
    listed = tuple(StateNumber(uid, name, id) for (uid, name), id in numbers.items())
    return replace(metadata, operators=tuple(operators.values()), state_numbers=listed)


def write_additions(
    metadata: CheckpointMetadata, additions: Sequence[Addition], tasks: Sequence[TaskState], target: Storage
) -> tuple[tuple[TaskState, ...], int]:
    """Write the contents as tables. Return all tasks, with the new files added to theirs, and the number of entries.

    `metadata` is the result of `declared_with`. Raises InvalidKey or WrongValue if a value does not fit its type, and
    ChangeRefused for a duplicate entry.
    """
    from tidegate.savepoint.canonical_write import CanonicalWriter  # noqa: PLC0415 start-up time

    merged = {task.task: task for task in tasks}
    operators = {operator.uid: operator for operator in metadata.operators}
    limit, written = metadata.max_parallelism, 0
    for one in additions:
        operator = operators[Uid(one.uid)]
        # A level that the snapshot has keeps its tasks. A new level gets as many as the job had, but never more than
        # key groups.
        slots = sum(id.level == operator.level for id in merged) or min(metadata.parallelism, limit)
        for slot in range(slots):
            merged.setdefault(TaskId(operator.level, Slot(slot)), _empty(operator.level, slot, slots, metadata))
        mine = [merged[TaskId(operator.level, Slot(slot))] for slot in range(slots)]
        # One for each task: an entry goes to the task that holds its key group, as a task would have written it.
        writers = [
            CanonicalWriter(
                storage=target,
                root="",
                task=task.task,
                key_groups=task.key_groups,
                version=task.version,
                savepoint_id=metadata.checkpoint_id,
            )
            for task in mine
        ]
        layout = StateLayout(operator, next(state for state in operator.states if state.name == one.state))
        # Lazily, entry by entry. An invalid one ends the copy before `_metadata` is written, so no savepoint comes to
        # be.
        entries = _checked(layout, one.contents(layout))
        if layout.keyed:
            for entry in _keyed(layout, entries, limit):
                writers[slot_of(entry.key_group, slots, limit)].add(layout, (entry,))
        else:
            for slot, share in enumerate(_shares(layout, list(entries), slots)):
                writers[slot].add(layout, share)
        for task, writer in zip(mine, writers):
            made = writer.finish()
            files = FileList([*loaded_task(target, "", task), *loaded_task(target, "", made)])
            merged[task.task] = replace(task, files=files, elements=(*task.elements, *made.elements))
            written += writer.rows
    return tuple(merged.values()), written


def _empty(level: int, slot: int, slots: int, metadata: CheckpointMetadata) -> TaskState:
    groups = range_of_slot(slot, slots, metadata.max_parallelism)
    version = VersionId(metadata.epoch, AttemptId(0))
    return TaskState(task=TaskId(level, Slot(slot)), key_groups=groups, backend=CANONICAL_BACKEND, version=version)


def _checked(layout: StateLayout, entries: Iterable[StateEntry]) -> Iterator[StateEntry]:
    """Encode every entry once, so that invalid ones are rejected before the savepoint is complete."""
    encode, map_keys, timers = schema_codec(layout.value).encode, layout.map_keys, layout.shape is Shape.TIMERS
    for entry in entries:
        if map_keys is not None:
            map_keys.encode(entry.map_key)
        encode(entry.value)
        if timers and (entry.map_key not in TimeDomain.__members__ or not -_TIME_LIMIT <= entry.value < _TIME_LIMIT):
            raise WrongValue(
                f"({entry.map_key!r}, {entry.value!r}) is not a timer: its map key must be one of "
                f"{', '.join(TimeDomain.__members__)}, and its value a time in ms."
            )
        yield entry


def _keyed(layout: StateLayout, entries: Iterable[StateEntry], limit: int) -> Iterator[StateEntry]:
    uid, name = layout.uid, layout.info.name
    placed = (_placed(layout, entry, limit) for entry in entries)
    if layout.is_list:
        # Sorted as a whole: elements of one list may come from anywhere in the user's rows, and must be stored next to
        # each other.
        # Stable: without positions, elements keep their order.
        ordered = sorted(placed, key=lambda p: (p[0], p[1].position or 0))
        for _, elements in groupby(ordered, key=lambda p: p[0]):
            mine = [entry for _, entry in elements]
            _refuse_repeats(layout, [e.position for e in mine if e.position is not None], mine[0].key)
            for position, entry in enumerate(mine):
                yield entry._replace(uid=uid, state=name, position=position)
        return
    seen: set[bytes] = set()
    for place, entry in placed:
        if layout.map_keys is not None:
            place += layout.map_keys.encode(entry.map_key)
        if layout.shape is Shape.TIMERS:
            place += entry.value.to_bytes(8, "big", signed=True)
        # Two values under one key would be written to the table, and the restore would keep one of them without a word.
        if place in seen:
            raise _repeated(layout, entry.key)
        seen.add(place)
        yield entry._replace(uid=uid, state=name, position=None)


def _placed(layout: StateLayout, entry: StateEntry, limit: int) -> tuple[bytes, StateEntry]:
    key = layout.keys.normalized(entry.key)
    group = layout.key_group(key, limit)
    return layout.keys.encode(key) + namespace_bytes(entry.namespace), entry._replace(key=key, key_group=group)


def _shares(layout: StateLayout, entries: list[StateEntry], slots: int) -> list[list[StateEntry]]:
    """Return each task's share of operator state: a slice of the list, or the whole broadcast map."""
    if all(entry.position is not None for entry in entries):
        entries = sorted(entries, key=lambda entry: entry.position or 0)
    if layout.map_keys is not None:
        encode = layout.map_keys.encode
        _refuse_repeats(layout, [encode(entry.map_key) for entry in entries], "a broadcast map")
        return [_numbered(entries)] * slots
    base, more = divmod(len(entries), slots)
    # The first `more` tasks get one element more, as in `assignment.split_evenly`.
    ends = [slot * base + min(slot, more) for slot in range(slots + 1)]
    return [_numbered(entries[first:last]) for first, last in pairwise(ends)]


def _numbered(entries: list[StateEntry]) -> list[StateEntry]:
    return [entry._replace(position=position) for position, entry in enumerate(entries)]


def _refuse_repeats(layout: StateLayout, places: list[object], key: object) -> None:
    if len(set(places)) != len(places):
        raise _repeated(layout, key)


def _repeated(layout: StateLayout, key: object) -> ChangeRefused:
    return ChangeRefused(
        f"State {layout.info.name!r} of {layout.uid!r} was given two entries in the same place (key {key!r}). Give each key, "
        "map key or position once."
    )
