"""Runs one keyed function without a JVM: feed rows, read output and state, snapshot, restore into another parallelism.

    with tg.testing.harness(Totals(), key="user", schema="user string, amount double") as h:
        h.process(("ann", 5.0))
        assert h.output() == [("ann", 5.0)]

The function runs in the operator that runs it on Spark, over a real state backend in a temporary directory.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidegate.api.states import declared_states
from tidegate.core.errors import GraphError, SchemaError
from tidegate.core.ids import AttemptId, EpochId, Slot, Term, Uid
from tidegate.graph import state_ids
from tidegate.graph.columns import struct_class
from tidegate.graph.model import Input, NodeId, Process
from tidegate.graph.parallelism import check_parallelism
from tidegate.graph.schema import Schema
from tidegate.graph.states import StateKind
from tidegate.runtime.operators import Emit, FunctionContext, ProcessOperator, as_rows, key_codec
from tidegate.runtime.user_code import FunctionFailed
from tidegate.state.backends import backend_named
from tidegate.state.key_groups import key_group, range_of_slot, slot_of
from tidegate.state.keyed_states import KeyedStates
from tidegate.state.keys import key_group_range
from tidegate.state.murmur3 import hash_key
from tidegate.state.port import StateStore
from tidegate.state.version import VersionId

_UID = Uid("function")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All state of a function at one moment, ready for any parallelism."""

    max_parallelism: int
    state_ids: Mapping[tuple[Uid, str], int]
    entries: tuple[tuple[bytes, bytes], ...]


class _Subtask:
    """One parallel instance: its share of the key groups, its copy of the function."""

    def __init__(self, harness: Harness, slot: Slot) -> None:
        self.slot = slot
        self._harness = harness
        self._directory = harness.directory / str(slot)
        self._version: VersionId | None = None
        self._number = 0
        self.sides: dict[str, list[Any]] = harness.sides
        self.begin()

    def begin(self) -> None:
        """Start the next epoch: a new attempt over the version sealed last, with a fresh copy of the function."""
        h = self._harness
        self._number += 1
        self._target = VersionId(EpochId(Term(1), self._number), AttemptId(self._number))
        groups = range_of_slot(self.slot, h.parallelism, h.max_parallelism)
        self.store: StateStore = h.backend.begin(self._directory, self._version, self._target, groups)
        node = h.node
        codec = key_codec(node.input.schema, node.input.key)
        self.states = KeyedStates(
            self.store, node.states, lambda name: h.state_ids[_UID, name], codec, self._target.epoch
        )
        context = FunctionContext(str(_UID), self.slot, h.parallelism)
        fresh = Process(
            node.id, node.uid, copy.deepcopy(node.function), node.input, node.schema, node.states, node.side_outputs
        )
        sides: dict[str, Emit] = {tag: self.sides[tag].extend for tag in self.sides}
        self.operator = ProcessOperator(fresh, self.states, context, h.collected.extend, sides)
        self.operator.open()

    def seal(self) -> None:
        self.operator.close()
        self.states.flush()
        self._version = self.store.seal().version
        self.begin()

    def close(self) -> None:
        self.store.abandon()


class Harness:
    """Drives one keyed function. Made by `harness`."""

    def __init__(
        self, function: Any, key: Sequence[str], schema: Schema, parallelism: int, max_parallelism: int,
        restore: Snapshot | None, state_backend: str, side_outputs: Sequence[str],
    ) -> None:  # fmt: skip
        check_parallelism(parallelism, max_parallelism)
        if restore is not None and restore.max_parallelism != max_parallelism:
            raise GraphError(
                f"The snapshot was taken with max_parallelism {restore.max_parallelism}; restore it with the same, not "
                f"{max_parallelism}."
            )
        self.parallelism, self.max_parallelism = parallelism, max_parallelism
        self.backend = backend_named(state_backend)
        self.directory = Path(tempfile.mkdtemp(prefix="tidegate-harness-"))
        states = declared_states(function)
        input = Input((), schema, tuple(key))
        sides = tuple((tag, schema) for tag in side_outputs)
        self.node = Process(NodeId(0), _UID, function, input, schema, states, sides)
        self.state_ids = state_ids.assign(restore.state_ids if restore else {}, [(_UID, spec.name) for spec in states])
        self.collected: list[Any] = []
        self.sides: dict[str, list[Any]] = {tag: [] for tag in side_outputs}
        self._key_places = [schema.index(column) for column in key]
        self._key_types = [schema.fields[place].type for place in self._key_places]
        self._codec = key_codec(schema, key)
        self._subtasks = [_Subtask(self, Slot(slot)) for slot in range(parallelism)]
        if restore is not None:
            self._restore(restore)

    def process(self, *rows: Any) -> None:
        """Feed rows: tuples or dicts in the columns of the schema. Each goes to the instance that owns its key."""
        schema = self.node.input.schema
        for row in as_rows(rows, schema, struct_class(schema.fields)):
            values = tuple(row[place] for place in self._key_places)
            key = self._codec.canonical(values[0] if len(values) == 1 else values)
            group, subtask = self._owner(key)
            try:
                subtask.operator.process([row], [key], [group])
            except FunctionFailed as failed:
                # A test wants the function's own error, with its own traceback.
                raise (failed.__cause__ or failed) from None

    def output(self) -> list[Any]:
        """What the function emitted since the last call."""
        found = list(self.collected)
        self.collected.clear()
        return found

    def side_output(self, tag: str) -> list[Any]:
        found = list(self.sides[tag])
        self.sides[tag].clear()
        return found

    def state(self, name: str, key: Any) -> Any:
        """What is stored for a key: a value, a list, a dict; None where nothing is, whatever the declared default."""
        spec = next((spec for spec in self.node.states if spec.name == name), None)
        if spec is None:
            raise GraphError(f"The function declares no state {name!r}; it has {[s.name for s in self.node.states]}.")
        key = self._codec.canonical(key)
        group, subtask = self._owner(key)
        scope = subtask.states.scope
        scope.key, scope.key_group = key, group
        accessor = subtask.states.accessors[name]
        match spec.kind:
            case StateKind.LIST:
                return list(accessor.get()) or None
            case StateKind.MAP:
                return dict(accessor.items()) or None
            case _:
                return accessor.stored()

    def snapshot(self) -> Snapshot:
        """Make everything so far durable, as at the end of an epoch, and give it out. The function goes on then."""
        entries: list[tuple[bytes, bytes]] = []
        for subtask in self._subtasks:
            subtask.seal()
            entries.extend(subtask.store.scan(*key_group_range(0, self.max_parallelism - 1)))
        return Snapshot(self.max_parallelism, dict(self.state_ids), tuple(entries))

    def subtask_of(self, key: Any) -> int:
        """Which parallel instance owns a key."""
        return int(self._owner(self._codec.canonical(key))[1].slot)

    def close(self) -> None:
        for subtask in self._subtasks:
            subtask.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _owner(self, key: Any) -> tuple[int, _Subtask]:
        group = key_group(hash_key(key, self._key_types), self.max_parallelism)
        return group, self._subtasks[slot_of(group, self.parallelism, self.max_parallelism)]

    def _restore(self, snapshot: Snapshot) -> None:
        shares: list[list[tuple[bytes, bytes]]] = [[] for _ in self._subtasks]
        for raw_key, value in snapshot.entries:
            group = int.from_bytes(raw_key[:2], "big")
            shares[slot_of(group, self.parallelism, self.max_parallelism)].append((raw_key, value))
        for subtask, share in zip(self._subtasks, shares):
            subtask.store.write(share)
            subtask.seal()


def harness(
    function: Any, *, key: str | Sequence[str], schema: str | Schema, parallelism: int = 1, max_parallelism: int = 128,
    restore: Snapshot | None = None, state_backend: str = "hashmap", side_outputs: Sequence[str] = (),
) -> Harness:  # fmt: skip
    """A harness for a keyed function. `schema` names and types the columns of the rows, `key` the key columns."""
    if not callable(getattr(function, "process_element", None)):
        raise GraphError(f"{function!r} has no process_element: the harness runs instances of KeyedProcessFunction.")
    columns = (key,) if isinstance(key, str) else tuple(key)
    parsed = schema if isinstance(schema, Schema) else Schema.parse(schema)
    for column in columns:
        if column not in parsed:
            raise SchemaError(f"There is no key column {column!r} among {', '.join(parsed.names)}.")
    return Harness(function, columns, parsed, parallelism, max_parallelism, restore, state_backend, tuple(side_outputs))
