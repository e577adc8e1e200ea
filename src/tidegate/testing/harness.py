"""Runs one keyed function without a JVM: feed rows, read output and state, snapshot, restore into another parallelism.

    with tg.testing.harness(Totals(), key="user", schema="user string, amount double") as h:
        h.process(("ann", 5.0))
        assert h.output() == [("ann", 5.0)]

Time stands still unless it is moved: `h.advance_watermark(t)` and `h.set_processing_time(t)` fire the timers that are due.
An operator of a job, such as a window, is taken from its stream: `harness(stream)`, on a source made with `frame`.

The function runs in the operator that runs it on Spark, over a real state backend in a temporary directory.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidegate.api.functions import states_of
from tidegate.api.streams import Stream
from tidegate.core.errors import GraphError, SchemaError
from tidegate.core.ids import AttemptId, EpochId, Slot, Term, Uid
from tidegate.core.times import MIN_WATERMARK, NO_TIME, EpochTime, time_ms
from tidegate.graph import state_ids
from tidegate.graph.columns import struct_class
from tidegate.graph.model import Input, NodeId, Process
from tidegate.graph.parallelism import check_parallelism
from tidegate.graph.schema import Schema
from tidegate.graph.validate import check_event_time
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
    watermark_ms: int = MIN_WATERMARK
    clock_ms: int = 0


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
            self.store, node.states, lambda name: h.state_ids[node.uid, name], codec, self._target.epoch, groups
        )
        context = FunctionContext(str(node.uid), self.slot, h.parallelism)
        fresh = replace(node, function=copy.deepcopy(node.function))
        sides: dict[str, Emit] = {tag: self.sides[tag].extend for tag in self.sides}
        self.operator = ProcessOperator(fresh, self.states, context, h.collected.extend, sides, h.time)
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
        self, node: Process, parallelism: int, max_parallelism: int, restore: Snapshot | None, state_backend: str
    ) -> None:
        check_parallelism(parallelism, max_parallelism)
        if restore is not None and restore.max_parallelism != max_parallelism:
            raise GraphError(
                f"The snapshot was taken with max_parallelism {restore.max_parallelism}; restore it with the same, not "
                f"{max_parallelism}."
            )
        self.parallelism, self.max_parallelism = parallelism, max_parallelism
        self.backend = backend_named(state_backend)
        self.directory = Path(tempfile.mkdtemp(prefix="tidegate-harness-"))
        self.node = node
        declared = [(node.uid, spec.name) for spec in node.states]
        self.state_ids = state_ids.assign(restore.state_ids if restore else {}, declared)
        self.time = NO_TIME if restore is None else _time(restore.clock_ms, restore.watermark_ms)
        self.collected: list[Any] = []
        self.sides: dict[str, list[Any]] = {tag: [] for tag, _ in node.side_outputs}
        schema, key = node.input.schema, node.input.key
        self._key_types = [schema.fields[schema.index(column)].type for column in key]
        self._codec = key_codec(schema, key)
        self._subtasks = [_Subtask(self, Slot(slot)) for slot in range(parallelism)]
        if restore is not None:
            self._restore(restore)

    def process(self, *rows: Any) -> None:
        """Feed rows: tuples or dicts in the columns of the schema. Each goes to the instance that owns its key."""
        self._process(0, rows)

    process1 = process

    def process2(self, *rows: Any) -> None:
        """Feed rows to the second input."""
        self._process(1, rows)

    def _process(self, number: int, rows: Sequence[Any]) -> None:
        input = self.node.inputs[number]
        schema = input.schema
        places = [schema.index(column) for column in input.key]
        time_at = None if input.event_time is None else schema.index(input.event_time)
        for row in as_rows(rows, schema, struct_class(schema.fields)):
            values = tuple(row[place] for place in places)
            key = self._codec.canonical(values[0] if len(values) == 1 else values)
            group, subtask = self._owner(key)
            times = None if time_at is None else [None if row[time_at] is None else time_ms(row[time_at])]
            with _own_errors():
                subtask.operator.process([row], [key], [group], times, number)

    def advance_watermark(self, timestamp: int | datetime) -> None:
        """All rows up to this event time have come: fire the timers up to it. It does not go back."""
        self._advance(_time(self.time.clock_ms, max(time_ms(timestamp), self.time.watermark_ms)))

    def set_processing_time(self, timestamp: int | datetime) -> None:
        """Move the clock, and fire the timers up to then. It does not go back."""
        self._advance(_time(max(time_ms(timestamp), self.time.clock_ms), self.time.watermark_ms))

    def _advance(self, time: EpochTime) -> None:
        self.time = time
        for subtask in self._subtasks:
            with _own_errors():
                subtask.operator.advance(time)

    def next_timers(self) -> tuple[int | None, int | None]:
        """The times of the earliest event-time timer and the earliest processing-time timer of all keys."""
        event, processing = zip(*(subtask.operator.pending() for subtask in self._subtasks))
        least = [min((t for t in times if t is not None), default=None) for times in (event, processing)]
        return least[0], least[1]

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
        return accessor.stored()

    def snapshot(self) -> Snapshot:
        """Make everything so far durable, as at the end of an epoch, and give it out. The function goes on then."""
        entries: list[tuple[bytes, bytes]] = []
        for subtask in self._subtasks:
            subtask.seal()
            entries.extend(subtask.store.scan(*key_group_range(0, self.max_parallelism - 1)))
        return Snapshot(
            self.max_parallelism, dict(self.state_ids), tuple(entries), self.time.watermark_ms, self.time.clock_ms
        )

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


def _time(clock_ms: int, watermark_ms: int) -> EpochTime:
    return EpochTime(clock_ms, watermark_ms, watermark_ms)


@contextmanager
def _own_errors() -> Iterator[None]:
    """A test wants the function's own error, with its own traceback."""
    try:
        yield
    except FunctionFailed as failed:
        raise (failed.__cause__ or failed) from None


class Frame:
    """Stands in for a streaming DataFrame where a job is declared and not run."""

    isStreaming = True

    def __init__(self, schema: str | Schema) -> None:
        self._schema = schema if isinstance(schema, Schema) else Schema.parse(schema)

    @property
    def schema(self) -> Frame:
        return self

    def jsonValue(self) -> dict[str, Any]:
        fields = [
            {"name": field.name, "type": field.type.ddl(), "nullable": field.nullable, "metadata": {}}
            for field in self._schema
        ]
        return {"type": "struct", "fields": fields}


def frame(schema: str | Schema) -> Frame:
    """What `job.source` takes in a test without a JVM: only columns, no rows."""
    return Frame(schema)


def harness(
    function: Any, *, key: str | Sequence[str] | None = None, schema: str | Schema | None = None, parallelism: int = 1,
    max_parallelism: int = 128, restore: Snapshot | None = None, state_backend: str = "hashmap",
    side_outputs: Sequence[str] = (), event_time: str | None = None,
) -> Harness:  # fmt: skip
    """A harness for a keyed function, or for the operator that a stream comes from.

    For a function, `schema` names and types the columns of the rows, `key` the key columns, `event_time` the column of event
    times. A stream, as `key_by(…).window(…).reduce(…)` gives one, has all of that.
    """
    node = (
        _node_of(function) if isinstance(function, Stream) else _node(function, key, schema, side_outputs, event_time)
    )
    return Harness(node, parallelism, max_parallelism, restore, state_backend)


def _node_of(stream: Stream) -> Process:
    node = stream.node()
    if not isinstance(node, Process):
        raise GraphError(f"The harness runs keyed operators; {node} is none.")
    return node


def _node(
    function: Any, key: str | Sequence[str] | None, schema: str | Schema | None, side_outputs: Sequence[str],
    event_time: str | None,
) -> Process:  # fmt: skip
    if not callable(getattr(function, "process_element", None)):
        raise GraphError(
            f"{function!r} has no process_element: the harness runs instances of KeyedProcessFunction, and streams of "
            "keyed operators."
        )
    if key is None or schema is None:
        raise GraphError(
            "Tell the harness what the rows look like: harness(function, key='user', schema='user string, …')."
        )
    columns = (key,) if isinstance(key, str) else tuple(key)
    parsed = schema if isinstance(schema, Schema) else Schema.parse(schema)
    for column in columns:
        if column not in parsed:
            raise SchemaError(f"There is no key column {column!r} among {', '.join(parsed.names)}.")
    if event_time is not None:
        check_event_time(event_time, parsed)
    input = Input((), parsed, columns, event_time)
    sides = tuple((tag, parsed) for tag in side_outputs)
    return Process(NodeId(0), _UID, function, input, parsed, states_of(function), sides)
