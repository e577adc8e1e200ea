"""Runs one keyed function without a JVM: feed rows, read output and state, snapshot, restore with another parallelism.

    with tg.testing.harness(Totals(), key="user", schema="user string, amount double") as h:
        h.process(("ann", 5.0))
        assert h.output() == [("ann", 5.0)]

Time stands still unless it is advanced: `h.advance_watermark(t)` and `h.set_processing_time(t)` fire the timers that are
due. To test an operator of a job, such as a window, pass its stream: `harness(stream)`, on a source created with `frame`.

The function runs in the same operator as on Spark, over a real state backend in a temporary directory.
"""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tidegate.api.async_function import check_async_function
from tidegate.api.functions import Combiner, KeyedBatchFunction, combined_schema, operator_states_of, runnable
from tidegate.api.ported_function import PortedFunction
from tidegate.api.streams import Stream, kept_event_time
from tidegate.checkpoint.metadata.operators import describe_node
from tidegate.core.errors import GraphError, SchemaError, WrongValue
from tidegate.core.ids import AttemptId, EpochId, Slot, Term, Uid
from tidegate.core.times import NO_TIME, EpochTime, time_ms
from tidegate.graph import state_ids
from tidegate.graph.async_calls import AsyncCalls
from tidegate.graph.model import Input, NodeId, Process, Transform
from tidegate.graph.on_error import ErrorAction, OnError
from tidegate.graph.parallelism import check_parallelism
from tidegate.graph.validate import ASYNC, TRANSFORM_KINDS, check_event_time
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operator_chain import keyed_operator
from tidegate.runtime.task.operators.async_operator import AsyncOperator
from tidegate.runtime.task.operators.batch_operator import BatchOperator
from tidegate.runtime.task.operators.call_loop import CallLoop
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.keyed_inputs import key_codec
from tidegate.runtime.task.operators.operator import Emit
from tidegate.runtime.task.operators.spans import SpanTimes
from tidegate.runtime.task.operators.transform_operator import TransformOperator
from tidegate.runtime.task.spark_processor.stateful_processor_operator import StatefulProcessorOperator
from tidegate.schema.columns import rows_of, struct_class
from tidegate.schema.output_batches import output_batch
from tidegate.schema.output_columns import batch_from_rows
from tidegate.schema.schema import Schema, as_schema
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.accessors.ttl import StateClock, living
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import key_group_range
from tidegate.state.keys.key_groups import key_group, range_of_slot, slot_of
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.key_scope import KeyScope
from tidegate.state.keys.murmur3 import hash_key
from tidegate.state.port import StateStore
from tidegate.state.version import VersionId
from tidegate.testing.operator_snapshot import FittedSnapshot, Held, Snapshot

_UID = Uid("function")


class _Subtask:
    """One parallel instance: its share of the key groups, its copy of the function."""

    def __init__(self, harness: Harness, slot: Slot) -> None:
        self.slot = slot
        self._harness = harness
        self._directory = harness.directory / str(slot)
        self._version: VersionId | None = None
        self._number = 0
        self._loop: CallLoop | None = None
        self.begin()

    def begin(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        """Start the next epoch: a new attempt over the last sealed version, with a new copy of the function, which is told of
        checkpoints."""
        h = self._harness
        self._number += 1
        self._target = VersionId(EpochId(Term(1), self._number), AttemptId(self._number))
        groups = range_of_slot(self.slot, h.parallelism, h.max_parallelism)
        self.store: StateStore = h.backend.begin(self._directory, self._version, self._target, groups)
        if h.restoring:
            return
        node, epoch = h.node, self._target.epoch
        context = FunctionContext(str(h.uid), self.slot, h.parallelism, epoch=epoch, spans=h.span_times)
        self.lists = OperatorStates(self.store, node.states, lambda name: h.state_ids[h.uid, name])
        lists = None if all(spec.keyed for spec in node.states) else self.lists
        emit = _checked(h.collected, h.schema)
        with own_errors():
            if isinstance(node, Transform):
                unkeyed = replace(node, function=copy.deepcopy(node.function))
                self.transform = self._unkeyed(unkeyed, context, emit, lists)
                self.transform.open(notices)
                return
            self.states = KeyedStates(
                store=self.store,
                specs=node.states,
                ids=lambda name: h.state_ids[h.uid, name],
                keys=key_codec(node.input.schema, node.input.key),
                epoch=epoch,
                groups=groups,
                clock=StateClock(h.time.clock_ms, h.time.applied_ms),
                guarded=node.on_error.action is not ErrorAction.FAIL,
            )
            fresh = replace(node, function=copy.deepcopy(node.function))
            sides = {tag: _checked(h.sides[tag], h.side_schemas.get(tag)) for tag in h.sides}
            if node.batches:
                schemas = dict(node.side_outputs)
                emit, sides = _batches(h.collected, node.schema), {t: _batches(h.sides[t], schemas[t]) for t in h.sides}
            self.operator = keyed_operator(node, self._directory)(
                node=fresh,
                states=self.states,
                context=context,
                emit=emit,
                side_emits=sides,
                time=h.time,
                operator_states=lists,
            )
            self.operator.open(notices)

    def _unkeyed(
        self, node: Transform, context: FunctionContext, emit: Emit, lists: OperatorStates | None
    ) -> TransformOperator | AsyncOperator:
        h = self._harness
        if node.calls is None:
            return TransformOperator(node=node, context=context, emit=emit, time=h.time, operator_states=lists)
        self._loop = CallLoop()
        sides = {tag: _checked(rows, h.side_schemas.get(tag)) for tag, rows in h.sides.items()}
        return AsyncOperator(node=node, context=context, emit=emit, side_emits=sides, loop=self._loop)

    def feed(self, rows: Sequence[Any]) -> None:
        """Give rows to a function without keys, and wait for its calls if it is async."""
        self.transform.accept(rows)
        if isinstance(self.transform, AsyncOperator):
            self.transform.finish()

    def adopt(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Start with restored entries."""
        self.store.write(entries)
        self._version = self.store.seal().version
        self.begin()

    def seal(self, *notices: CheckpointNotice) -> None:
        """End the epoch and start the next."""
        operator = self.transform if isinstance(self._harness.node, Transform) else self.operator
        with own_errors():
            operator.snapshot()
            operator.close()
        self._end_loop()
        self.lists.flush()
        if isinstance(self._harness.node, Process):
            self.states.flush()
            self.states.clean_up()
        self._version = self.store.seal(self.lists.held()).version
        self.begin(notices)

    def store_changes(self) -> None:
        """Write what the function has changed, as a job does when the epoch ends or too much is cached: a value that its state
        cannot hold fails the call that wrote it."""
        if not isinstance(self._harness.node, Process):
            return
        try:
            self.states.flush()
        except WrongValue as error:
            # The function has returned, so its line is not in the traceback.
            error.add_note(f"key: {error.key!r}")
            for file, line, method, text in error.writes:
                error.add_note(f"written in {file}:{line}, in {method}: {text.strip()}")
            raise

    @property
    def checkpoint_id(self) -> int:
        """The id of the epoch, as the function knows it."""
        return self._target.epoch.as_checkpoint_id

    def close(self) -> None:
        if isinstance(self._harness.node, Transform) and isinstance(self.transform, AsyncOperator):
            self.transform.abort()
        self._end_loop()
        self.store.abandon()

    def _end_loop(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None


class Harness:
    """Drives one function. Created by `harness`."""

    def __init__(  # noqa: PLR0913 what the function `harness` takes
        self,
        node: Process | Transform,
        parallelism: int,
        max_parallelism: int,
        restore: Snapshot | None,
        state_backend: str,
        schema: Schema | None,
        side_schemas: Mapping[str, Schema],
        uncombined: Input | None = None,
        earlier_uids: Sequence[str] = (),
        drop_state: Sequence[str] = (),
        renamed_fields: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`uncombined`: rows are fed as they are before the function's own `combine`. `earlier_uids`: those of the operator in
        snapshots."""
        check_parallelism(parallelism, max_parallelism)
        if restore is not None and restore.max_parallelism != max_parallelism:
            raise GraphError(
                f"The snapshot was taken with max_parallelism {restore.max_parallelism}; restore it with the same, not "
                f"{max_parallelism}."
            )
        self.parallelism = parallelism
        self.max_parallelism = max_parallelism
        self.backend = backend_named(state_backend)
        self.node = node
        self.schema = schema
        self.side_schemas = side_schemas
        self._uncombined = uncombined
        self.uid = node.uid or _UID
        # Before anything is made: a snapshot that does not fit is refused, as when a job starts.
        restored = None
        if restore is not None:
            renamed = renamed_fields or {}
            restored = FittedSnapshot.of(restore, node, self.uid, earlier_uids, drop_state, renamed)
        self._restored = restored
        self.directory = Path(tempfile.mkdtemp(prefix="tidegate-harness-"))
        declared = [(self.uid, spec.name) for spec in node.states]
        self.state_ids = state_ids.assign({}, declared) if restored is None else restored.state_ids
        self.time = NO_TIME if restore is None else _time(restore.clock_ms, restore.watermark_ms)
        self.collected: list[Any] = []
        self.sides: dict[str, list[Any]] = {tag: [] for tag, _ in node.side_outputs}
        columns, key = node.input.schema, node.input.key
        self._key_types = [columns.fields[columns.index(column)].type for column in key]
        if key:
            self._codec = key_codec(columns, key)
        self._rows_dealt = 0
        self.span_times = SpanTimes()
        self.restoring = restore is not None
        self._subtasks = [_Subtask(self, Slot(slot)) for slot in range(parallelism)]
        if restored is not None:
            self._restore(restored)

    def process(self, *rows: Any) -> None:
        """Feed rows. Each goes to the instance that owns its key or, for a function without keys, to the instances in turn.

        Args:
            rows: Tuples or dicts in the columns of the schema.
        """
        self._process(0, rows)
        for subtask in self._subtasks:
            subtask.store_changes()

    process1 = process

    def process2(self, *rows: Any) -> None:
        """Feed `rows` to the second input."""
        self._process(1, rows)
        for subtask in self._subtasks:
            subtask.store_changes()

    def process_broadcast(self, *rows: Any) -> None:
        """Feed `rows` to the broadcast input: each goes to every instance."""
        input = self.node.broadcast if isinstance(self.node, Process) else None
        if input is None:
            raise GraphError(
                f"{self.node} has no broadcast input. Pass the harness a stream created by connect(…).process."
            )
        for subtask in self._subtasks:
            fed = as_in_a_job(rows, input.schema)
            at = None if input.event_time is None else input.schema.index(input.event_time)
            with own_errors():
                subtask.operator.process_broadcast(fed, None if at is None else [time_ms(row[at]) for row in fed])

    def process_on(self, subtask: int, *rows: Any) -> None:
        """Feed `rows` to one instance of a function without keys: the one with the index `subtask`."""
        assert isinstance(self.node, Transform), "rows of a keyed function go where their key is at home"
        fed = as_in_a_job(rows, self.node.input.schema)
        with own_errors():
            self._subtasks[subtask].feed(fed)

    def _process(self, number: int, rows: Sequence[Any]) -> None:
        if isinstance(self.node, Transform):
            if self.node.calls is not None and self.parallelism == 1:
                self.process_on(0, *rows)
                return
            for row in rows:
                self.process_on(self._rows_dealt % self.parallelism, row)
                self._rows_dealt += 1
            return
        input = self.node.keyed_inputs[number]
        schema = input.schema
        places = [schema.index(column) for column in input.key]
        time_at = None if input.event_time is None else schema.index(input.event_time)
        if isinstance(self._subtasks[0].operator, BatchOperator):
            self._process_batches(rows, schema, places, number)
            return
        for row in as_in_a_job(rows, schema):
            values = tuple(row[place] for place in places)
            key = self._codec.normalized(values[0] if len(values) == 1 else values)
            group, subtask = self._owner(key)
            times = None if time_at is None else [None if row[time_at] is None else time_ms(row[time_at])]
            with own_errors():
                subtask.operator.process([row], [key], [group], times, number)

    def _process_batches(self, rows: Sequence[Any], schema: Schema, places: Sequence[int], number: int) -> None:
        """Give each instance its rows as one batch."""
        if self._uncombined is not None and rows:
            rows = _combined(self, rows, self._uncombined)
        shares: dict[int, tuple[list[Any], list[int]]] = {}
        for row in as_in_a_job(rows, schema):
            values = tuple(row[place] for place in places)
            group, subtask = self._owner(self._codec.normalized(values[0] if len(values) == 1 else values))
            some, groups = shares.setdefault(int(subtask.slot), ([], []))
            some.append(row)
            groups.append(group)
        for slot, (some, groups) in shares.items():
            operator = self._subtasks[slot].operator
            assert isinstance(operator, BatchOperator)
            with own_errors():
                columns, of_rows = batch_from_rows(some, schema).columns, np.array(groups, np.int32)
                if number == 1 and isinstance(operator, StatefulProcessorOperator):
                    operator.accept_initial(columns, of_rows)
                else:
                    operator.accept_columns(columns, of_rows)
                operator.process_waiting()

    def advance_watermark(self, timestamp: int | datetime) -> None:
        """Advance the watermark and fire the timers up to it: all rows up to this event time have arrived.

        Args:
            timestamp: A datetime, or milliseconds since 1970-01-01 UTC. The watermark does not move backwards.
        """
        self._advance(_time(self.time.clock_ms, max(time_ms(timestamp), self.time.watermark_ms)))

    def set_processing_time(self, timestamp: int | datetime) -> None:
        """Advance the clock and fire the timers up to it.

        Args:
            timestamp: A datetime, or milliseconds since 1970-01-01 UTC. The clock does not move backwards.
        """
        self._advance(_time(max(time_ms(timestamp), self.time.clock_ms), self.time.watermark_ms))

    def _advance(self, time: EpochTime) -> None:
        self.time = time
        for subtask in self._subtasks if isinstance(self.node, Process) else ():
            with own_errors():
                subtask.operator.advance(time)
        for subtask in self._subtasks:
            subtask.store_changes()

    def next_timers(self) -> tuple[int | None, int | None]:
        """Return the times of the earliest event-time timer and the earliest processing-time timer of all keys."""
        event, processing = zip(*(subtask.operator.pending() for subtask in self._subtasks))
        least = [min((t for t in times if t is not None), default=None) for times in (event, processing)]
        return least[0], least[1]

    def output(self) -> list[Any]:
        """Return what the function emitted since the last call, as the next operator would read it: rows of
        the schema if the harness knows it, otherwise what the function emitted, with lists as tuples. A
        row equals a tuple of its values.
        """
        found = list(self.collected)
        self.collected.clear()
        return found

    def side_output(self, tag: str) -> list[Any]:
        """Return the rows of the side output `tag` since the last call."""
        if tag not in self.sides:
            raise GraphError(f"There is no side output {tag!r}; declared are: {', '.join(self.sides) or 'none'}.")
        found = list(self.sides[tag])
        self.sides[tag].clear()
        return found

    def state(self, name: str, key: Any) -> Any:
        """Return what is stored for a key: a value, a list, a dict; None if there is nothing, whatever the declared default.

        Args:
            name: The name of the state.
            key: The key. A key of several columns is a tuple.
        """
        spec = next((spec for spec in self.node.states if spec.name == name), None)
        if spec is None:
            raise GraphError(f"The function declares no state {name!r}; it has {[s.name for s in self.node.states]}.")
        key = self._codec.normalized(key)
        group, subtask = self._owner(key)
        scope = subtask.states.scope
        scope.key, scope.key_group = key, group
        return subtask.states.accessors[name].stored()

    def operator_state(self, name: str) -> list[Any]:
        """Return the operator state `name` of each instance: lists, or dicts for broadcast state."""
        if name not in self._subtasks[0].lists.all:
            raise GraphError(f"The function declares no operator state {name!r}.")
        return [subtask.lists.all[name].stored() for subtask in self._subtasks]

    def spans(self) -> dict[str, int]:
        """Return how often the function used each `ctx.span`, by name."""
        return {name: count for name, (count, _, _) in self.span_times.totals().items()}

    def snapshot(self) -> Snapshot:
        """Make everything so far durable, as at the end of an epoch, and return it. The function can continue afterwards."""
        entries: list[tuple[bytes, bytes]] = []
        held: list[Held] = []
        for subtask in self._subtasks:
            subtask.seal()
            held.append(Held.of(subtask.store, self.node.states, self.state_ids, self.uid))
            if isinstance(self.node, Process):
                stored = subtask.store.scan(*key_group_range(0, self.max_parallelism - 1))
                entries.extend(living(stored, subtask.states.expiries()))
        described = describe_node(self.node, self.uid, 1, self.parallelism, self.backend.name, self.state_ids)
        if self._restored is not None:
            described = self._restored.with_undeclared_states(described)
        return Snapshot(
            max_parallelism=self.max_parallelism,
            described=described,
            state_ids=dict(self.state_ids),
            entries=tuple(entries),
            watermark_ms=self.time.watermark_ms,
            clock_ms=self.time.clock_ms,
            operator=tuple(held),
        )

    def notify_checkpoint_complete(self, checkpoint_id: int | None = None) -> None:
        """End the epoch, and notify every instance at the start of the next one that a checkpoint is complete.

        Args:
            checkpoint_id: The checkpoint contains the epochs up to this id, as `snapshot_state` got it. By default, all.
        """
        _tell(self._subtasks, checkpoint_id, complete=True)

    def notify_checkpoint_aborted(self, checkpoint_id: int | None = None) -> None:
        """End the epoch, and notify every instance at the start of the next one that a checkpoint failed.

        Args:
            checkpoint_id: The id of its epoch, as `snapshot_state` got it. By default, that of the epoch that ends.
        """
        _tell(self._subtasks, checkpoint_id, complete=False)

    def subtask_of(self, key: Any) -> int:
        """Return the index of the parallel instance that owns `key`."""
        return int(self._owner(self._codec.normalized(key))[1].slot)

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

    def _restore(self, snapshot: FittedSnapshot) -> None:
        self.restoring = False
        shares: list[list[tuple[bytes, bytes]]] = [[] for _ in self._subtasks]
        for raw_key, value in snapshot.entries():
            group = int.from_bytes(raw_key[:2], "big")
            shares[slot_of(group, self.parallelism, self.max_parallelism)].append((raw_key, value))
        if snapshot.snapshot.operator and any(not spec.keyed for spec in self.node.states):
            lists = snapshot.dealt_out(self.node.states, self.uid, self.parallelism)
            for share, operator in zip(shares, lists):
                share += operator
        for subtask, share in zip(self._subtasks, shares):
            subtask.adopt(share)


def _combined(harness: Harness, rows: Sequence[Any], read: Input) -> Sequence[Any]:
    """Combine rows as the function does before the shuffle."""
    batch = batch_from_rows(rows, read.schema)
    fields = [read.schema.fields[read.schema.index(column)] for column in read.key]
    keys = KeyIndex.of_columns(
        fields, [batch.column(f.name) for f in fields], np.zeros(batch.num_rows, int), KeyScope()
    )
    partial, function = harness.node.input.schema, copy.deepcopy(harness.node.function)
    function.open(FunctionContext(str(harness.uid), 0, harness.parallelism))
    made = output_batch(function.combine(batch, keys), partial)
    function.close()
    return rows_of(made.columns, partial, struct_class(partial.fields))


def _tell(subtasks: Iterable[_Subtask], checkpoint_id: int | None, *, complete: bool) -> None:
    for subtask in subtasks:
        subtask.seal(CheckpointNotice(subtask.checkpoint_id if checkpoint_id is None else checkpoint_id, complete))


def _time(clock_ms: int, watermark_ms: int) -> EpochTime:
    return EpochTime(clock_ms, watermark_ms, watermark_ms)


def as_in_a_job(rows: Sequence[Any], schema: Schema) -> list[Any]:
    """Convert tuples, lists, dicts or objects to rows as an operator reads them from Spark: 5 is 5.0 in a double column.
    Raises SchemaError for values that do not fit.
    """
    return rows_of(batch_from_rows(rows, schema).columns, schema, struct_class(schema.fields))


def _checked(collected: list[Any], schema: Schema | None) -> Emit:
    """Collect what a function emits. Rows that do not fit the schema fail immediately, as they would in a job."""

    def emit(rows: Sequence[Any]) -> None:
        if schema is not None:
            collected.extend(as_in_a_job(rows, schema))
            return
        for row in rows:
            if isinstance(row, str | bytes | int | float | None):
                raise SchemaError(
                    f"The function emitted {row!r}, which is not a row: rows are tuples or dicts. To emit one row, yield it "
                    f"instead of returning it; a row of one column is written ({row!r},)."
                )
        collected.extend(tuple(row) if isinstance(row, list) else row for row in rows)

    return emit


def _batches(collected: list[Any], schema: Schema) -> Emit:
    """Collect the rows of the batches that a function emits."""
    return lambda batch: collected.extend(rows_of(batch.columns, schema, struct_class(schema.fields)))


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise the function's own error, with its own traceback, which is what a test expects."""
    try:
        yield
    except FunctionFailed as failed:
        error = failed.__cause__ or failed
        if isinstance(error, TypeError) and str(error).startswith("tuple indices must be integers"):
            error.add_note("A row is a tuple with names: write row.column instead of row['column'].")
        raise error from None


class DeclaredFrame:
    """Stands in for a streaming DataFrame when a job is declared but not run."""

    isStreaming = True

    def __init__(self, schema: str | Schema) -> None:
        self._schema = schema if isinstance(schema, Schema) else Schema.parse(schema)

    @property
    def schema(self) -> DeclaredFrame:
        return self

    def jsonValue(self) -> dict[str, Any]:
        fields = [
            {"name": field.name, "type": field.type.ddl(), "nullable": field.nullable, "metadata": {}}
            for field in self._schema
        ]
        return {"type": "struct", "fields": fields}


def frame(schema: str | Schema) -> DeclaredFrame:
    """Create what `job.source` takes in a test without a JVM: only columns, no rows.

    Args:
        schema: The columns, as in `"user string, amount double"`.

    Examples:
        >>> tg.Job("test").source("orders", tg.testing.frame("user string, amount double"))
        <Stream of source 'orders': user string, amount double>
    """
    return DeclaredFrame(schema)


def harness(  # noqa: PLR0913 what a user may choose
    function: Any,
    *,
    key: str | Sequence[str] | None = None,
    schema: str | Schema | None = None,
    parallelism: int = 1,
    max_parallelism: int = 128,
    restore: Snapshot | None = None,
    state_backend: str = "hashmap",
    side_outputs: Sequence[str] | Mapping[str, str | Schema] = (),
    event_time: str | None = None,
    output_schema: str | Schema | None = None,
    broadcast_schema: str | Schema | None = None,
    on_error: OnError | str = "fail",
    drop_state: Sequence[str] = (),
    renamed_fields: Mapping[str, Mapping[str, str]] | None = None,
) -> Harness:
    """Create a harness for a function, or for the operator that produces a stream.

    A stream, as returned by `key_by(…).process(…)`, already has its columns and its key, so it needs none of `key`, `schema`,
    `side_outputs`, `event_time`, `output_schema`, `broadcast_schema` and `on_error`. An async function is called in order, up
    to 100 rows at a time, for at most 10 s each; for other choices, pass the stream of its `async_map`.

    Args:
        function: An instance of a function class, or a stream.
        key: The key columns.
        schema: The names and types of the columns of the rows.
        parallelism: The number of instances of the function.
        max_parallelism: The number of key groups.
        restore: What `Harness.snapshot` returned. It is refused if a job would refuse such a snapshot, and converted as when
            a job starts.
        state_backend: `"hashmap"` or `"rocksdb"`.
        side_outputs: The tags of side outputs; in a dict, with the columns that their rows are checked against.
        event_time: The event-time column.
        output_schema: The columns that the output is checked against.
        broadcast_schema: The columns of the broadcast input.
        on_error: What happens to a row on which the function raises, as for `KeyedStream.process`.
        drop_state: States of the snapshot that the function does without, or fields of one: `"account:orders"`.
        renamed_fields: For a state, the old and the new names of fields inside its type: `{"account": {"orders": "count"}}`.

    Examples:
        >>> with tg.testing.harness(Totals(), key="user", schema="user string, amount double") as h:
        ...     h.process(("ann", 5.0), ("ann", 7.0))
        ...     h.state("total", "ann")
        ...     snapshot = h.snapshot()
        12.0
        >>> columns = "user string, amount double"
        >>> with tg.testing.harness(Totals(), key="user", schema=columns, parallelism=3, restore=snapshot) as h:
        ...     h.state("total", "ann")
        12.0
    """
    if isinstance(function, Stream):
        node = _node_of(function)
        return Harness(
            node=node,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            restore=restore,
            state_backend=state_backend,
            schema=node.schema,
            side_schemas=dict(node.side_outputs),
            earlier_uids=() if node.uid is None else function.renamed_uids().get(node.uid, ()),
            drop_state=drop_state,
            renamed_fields=renamed_fields,
        )
    node = _node(function, key, schema, side_outputs, event_time, broadcast_schema, OnError.of(on_error))
    schemas = {tag: as_schema(ddl) for tag, ddl in side_outputs.items()} if isinstance(side_outputs, Mapping) else {}
    out = None if output_schema is None else as_schema(output_schema)
    uncombined = None
    if isinstance(function, KeyedBatchFunction):
        node = _of_batches(node, out, schemas)
        if Combiner.is_wanted(function):
            uncombined, partial = node.input, combined_schema(str(_UID), function, node.input)
            event_time = kept_event_time(uncombined.event_time, partial)
            node = replace(node, input=replace(uncombined, schema=partial, event_time=event_time))
    return Harness(
        node=node,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        restore=restore,
        state_backend=state_backend,
        schema=out,
        side_schemas=schemas,
        uncombined=uncombined,
        drop_state=drop_state,
        renamed_fields=renamed_fields,
    )


def _of_batches(node: Process | Transform, schema: Schema | None, sides: Mapping[str, Schema]) -> Process:
    """Columns have no names of their own, as a row of a function has: they are converted to those of a schema."""
    assert isinstance(node, Process)
    if schema is None or any(
        tag not in sides for tag, _ in node.side_outputs if (tag, _) not in node.on_error.side_outputs
    ):
        raise GraphError(
            "Give the harness the columns that a function over batches emits: harness(…, output_schema='user string, n "
            "bigint'), and the same for each side output: side_outputs={'late': 'user string, …'}."
        )
    known = dict(node.on_error.side_outputs) | dict(sides)
    return replace(
        node, batches=True, schema=schema, side_outputs=tuple((tag, known[tag]) for tag, _ in node.side_outputs)
    )


def _node_of(stream: Stream) -> Process | Transform:
    node = stream.node()
    if not isinstance(node, Process | Transform):
        raise GraphError(f"The harness runs operators; {node} is not one.")
    return node


def _node(
    function: Any,
    key: str | Sequence[str] | None,
    schema: str | Schema | None,
    side_outputs: Iterable[str],
    event_time: str | None,
    broadcast_schema: str | Schema | None,
    on_error: OnError,
) -> Process | Transform:
    if isinstance(function, type):
        raise GraphError(
            f"The harness takes an instance, not the class {function.__name__}. Write {function.__name__}()."
        )
    kind = next((kind for kind in TRANSFORM_KINDS if callable(getattr(function, kind, None))), None)
    if kind is not None and schema is not None and key is None:
        read = as_schema(schema)
        return Transform(
            id=NodeId(0),
            kind=kind,
            function=function.transform() if isinstance(function, PortedFunction) else function,
            input=Input((), read),
            schema=read,
            name=kind,
            uid=_UID,
            states=operator_states_of(function),
        )
    if callable(getattr(function, "async_invoke", None)) and schema is not None and key is None:
        check_async_function(str(_UID), function)
        read = as_schema(schema)
        return Transform(
            id=NodeId(0),
            kind=ASYNC,
            function=function,
            input=Input((), read),
            schema=read,
            name=ASYNC,
            uid=_UID,
            side_outputs=on_error.side_outputs,
            on_error=on_error,
            calls=AsyncCalls(timeout_ms=10_000, capacity=100, ordered=True),
        )
    if not isinstance(function, KeyedBatchFunction | PortedFunction) and not callable(
        getattr(function, "process_element", None)
    ):
        raise GraphError(
            f"{function!r} has no process_element: the harness runs instances of KeyedProcessFunction and "
            "KeyedBatchFunction, and streams of keyed operators."
        )
    if key is None or schema is None:
        raise GraphError(
            "Give the harness the key and the columns of the rows: harness(function, key='user', schema='user "
            "string, …')."
        )
    columns = (key,) if isinstance(key, str) else tuple(key)
    parsed = schema if isinstance(schema, Schema) else Schema.parse(schema)
    for column in columns:
        if column not in parsed:
            raise SchemaError(f"There is no key column {column!r} among {', '.join(parsed.names)}.")
    if event_time is not None:
        check_event_time(event_time, parsed)
    input = Input((), parsed, columns, event_time)
    sides = (*((tag, parsed) for tag in side_outputs), *on_error.side_outputs)
    broadcast = None
    if hasattr(function, "process_broadcast_element"):
        if broadcast_schema is None:
            raise GraphError("Give the harness the columns of the broadcast rows: broadcast_schema='name string, …'.")
        broadcast = Input((), as_schema(broadcast_schema), broadcast=True)
    called, states = runnable(function)
    return Process(
        id=NodeId(0),
        uid=_UID,
        function=called,
        input=input,
        schema=parsed,
        states=states,
        side_outputs=sides,
        broadcast=broadcast,
        on_error=on_error,
    )
