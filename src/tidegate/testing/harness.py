"""Runs one keyed function without a JVM: feed rows, read output and state, snapshot, restore with another parallelism.

    with tg.testing.harness(Totals(), key="user", schema="user string, amount double") as h:
        h.process(("ann", 5.0))
        assert h.output() == [("ann", 5.0)]

Time stands still unless it is advanced: `h.advance_watermark(t)` and `h.set_processing_time(t)` fire the timers that are
due. To test an operator of a job, such as a window, pass its stream: `harness(stream)`, on a source created with `frame`.

The function runs in the same operator as on Spark, over a real state backend in a temporary directory.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tidegate.api.functions import Combiner
from tidegate.api.streams import Stream
from tidegate.checkpoint.metadata.operators import describe_node
from tidegate.core.errors import GraphError
from tidegate.core.ids import Slot
from tidegate.core.times import NO_TIME, EpochTime, time_ms
from tidegate.graph import state_ids
from tidegate.graph.model import Input, Process, Transform
from tidegate.graph.on_error import OnError
from tidegate.graph.parallelism import check_parallelism
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.task.operators.batch_operator import BatchOperator
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.keyed_inputs import key_codec
from tidegate.runtime.task.spark_processor.stateful_processor_operator import StatefulProcessorOperator
from tidegate.schema.output_columns import batch_from_rows
from tidegate.schema.schema import Schema, as_schema
from tidegate.state.backends import backend_named
from tidegate.state.keys.key_groups import key_group, slot_of
from tidegate.state.keys.murmur3 import hash_key
from tidegate.testing.operator_snapshot import FittedSnapshot, Snapshot
from tidegate.testing.rows import as_in_a_job, combined_before_shuffle, own_errors
from tidegate.testing.subtask import OperatorUnderTest, SubtaskUnderTest
from tidegate.testing.tested_node import UID, FunctionInput, combined, node_of_function, node_of_stream


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
        # Before anything is created: a snapshot that does not fit is refused, as when a job starts.
        uid = node.uid or UID
        restored = None
        if restore is not None:
            restored = FittedSnapshot.of(restore, node, uid, earlier_uids, drop_state, renamed_fields or {})
            ids = restored.state_ids
        else:
            ids = state_ids.assign({}, [(uid, spec.name) for spec in node.states])
        self._restored = restored
        self._uncombined = uncombined
        self.tested = OperatorUnderTest(
            node=node,
            uid=uid,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            backend=backend_named(state_backend),
            directory=Path(tempfile.mkdtemp(prefix="tidegate-harness-")),
            state_ids=ids,
            schema=schema,
            side_schemas=side_schemas,
            time=NO_TIME if restore is None else _time(restore.clock_ms, restore.watermark_ms),
            sides={tag: [] for tag, _ in node.side_outputs},
        )
        columns, key = node.input.schema, node.input.key
        self._key_types = [columns.fields[columns.index(column)].type for column in key]
        self._codec = key_codec(columns, key) if key else None
        self._rows_dealt = 0
        if restored is None:
            self._subtasks = [SubtaskUnderTest(self.tested, Slot(slot)) for slot in range(parallelism)]
        else:
            shares = _shares_of(restored, self.tested)
            self._subtasks = [SubtaskUnderTest(self.tested, Slot(slot), share) for slot, share in enumerate(shares)]

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
        input = self.tested.node.broadcast if isinstance(self.tested.node, Process) else None
        if input is None:
            raise GraphError(
                f"{self.tested.node} has no broadcast input. Pass the harness a stream created by connect(…).process."
            )
        for subtask in self._subtasks:
            fed = as_in_a_job(rows, input.schema)
            at = None if input.event_time is None else input.schema.index(input.event_time)
            with own_errors():
                subtask.operator.process_broadcast(fed, None if at is None else [time_ms(row[at]) for row in fed])

    def process_on(self, subtask: int, *rows: Any) -> None:
        """Feed `rows` to one instance of a function without keys: the one with the index `subtask`."""
        assert isinstance(self.tested.node, Transform), "rows of a keyed function go where their key is at home"
        fed = as_in_a_job(rows, self.tested.node.input.schema)
        with own_errors():
            self._subtasks[subtask].feed(fed)

    def _process(self, number: int, rows: Sequence[Any]) -> None:
        if isinstance(self.tested.node, Transform):
            # All rows at once, so that their calls overlap as in a job.
            if self.tested.node.calls is not None and self.tested.parallelism == 1:
                self.process_on(0, *rows)
                return
            for row in rows:
                self.process_on(self._rows_dealt % self.tested.parallelism, row)
                self._rows_dealt += 1
            return
        input = self.tested.node.keyed_inputs[number]
        schema = input.schema
        places = [schema.index(column) for column in input.key]
        time_at = None if input.event_time is None else schema.index(input.event_time)
        if isinstance(self._subtasks[0].operator, BatchOperator):
            self._process_batches(rows, schema, places, number)
            return
        for row in as_in_a_job(rows, schema):
            values = tuple(row[place] for place in places)
            key = self._normalized(values[0] if len(values) == 1 else values)
            group, subtask = self._owner(key)
            times = None if time_at is None else [None if row[time_at] is None else time_ms(row[time_at])]
            with own_errors():
                subtask.operator.process([row], [key], [group], times, number)

    def _process_batches(self, rows: Sequence[Any], schema: Schema, places: Sequence[int], number: int) -> None:
        """Give each instance its rows as one batch."""
        if self._uncombined is not None and rows:
            tested = self.tested
            context = FunctionContext(str(tested.uid), 0, tested.parallelism)
            partial = tested.node.input.schema
            rows = combined_before_shuffle(rows, tested.node.function, self._uncombined, partial, context)
        shares: dict[int, tuple[list[Any], list[int]]] = {}
        for row in as_in_a_job(rows, schema):
            values = tuple(row[place] for place in places)
            group, subtask = self._owner(self._normalized(values[0] if len(values) == 1 else values))
            some, groups = shares.setdefault(int(subtask.slot), ([], []))
            some.append(row)
            groups.append(group)
        for slot, (some, groups) in shares.items():
            operator = self._subtasks[slot].operator
            assert isinstance(operator, BatchOperator)
            with own_errors():
                columns, of_rows = batch_from_rows(some, schema).columns, np.array(groups, np.int32)
                # The second input of a StatefulProcessor is its initial state.
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
        self._advance(_time(self.tested.time.clock_ms, max(time_ms(timestamp), self.tested.time.watermark_ms)))

    def set_processing_time(self, timestamp: int | datetime) -> None:
        """Advance the clock and fire the timers up to it.

        Args:
            timestamp: A datetime, or milliseconds since 1970-01-01 UTC. The clock does not move backwards.
        """
        self._advance(_time(max(time_ms(timestamp), self.tested.time.clock_ms), self.tested.time.watermark_ms))

    def _advance(self, time: EpochTime) -> None:
        self.tested.time = time
        for subtask in self._subtasks if isinstance(self.tested.node, Process) else ():
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
        rows = list(self.tested.collected)
        self.tested.collected.clear()
        return rows

    def side_output(self, tag: str) -> list[Any]:
        """Return the rows of the side output `tag` since the last call."""
        if tag not in self.tested.sides:
            raise GraphError(
                f"There is no side output {tag!r}; declared are: {', '.join(self.tested.sides) or 'none'}."
            )
        rows = list(self.tested.sides[tag])
        self.tested.sides[tag].clear()
        return rows

    def state(self, name: str, key: Any) -> Any:
        """Return what is stored for a key: a value, a list, a dict; None if there is nothing, whatever the declared default.

        Args:
            name: The name of the state.
            key: The key. A key of several columns is a tuple.
        """
        spec = next((spec for spec in self.tested.node.states if spec.name == name), None)
        if spec is None:
            raise GraphError(
                f"The function declares no state {name!r}; it has {[s.name for s in self.tested.node.states]}."
            )
        key = self._normalized(key)
        group, subtask = self._owner(key)
        # Accessors read the key that the scope has. Between two calls it is free to be set.
        scope = subtask.states.scope
        scope.key = key
        scope.key_group = group
        return subtask.states.accessors[name].stored()

    def operator_state(self, name: str) -> list[Any]:
        """Return the operator state `name` of each instance: lists, or dicts for broadcast state."""
        if name not in self._subtasks[0].lists.all:
            raise GraphError(f"The function declares no operator state {name!r}.")
        return [subtask.lists.all[name].stored() for subtask in self._subtasks]

    def spans(self) -> dict[str, int]:
        """Return how often the function used each `ctx.span`, by name."""
        return {name: count for name, (count, _, _) in self.tested.span_times.totals().items()}

    def snapshot(self) -> Snapshot:
        """Make everything so far durable, as at the end of an epoch, and return it. The function can continue afterwards."""
        tested = self.tested
        for subtask in self._subtasks:
            subtask.seal()
        described = describe_node(tested.node, tested.uid, 1, tested.parallelism, tested.backend.name, tested.state_ids)
        if self._restored is not None:
            described = self._restored.with_undeclared_states(described)
        return Snapshot(
            max_parallelism=tested.max_parallelism,
            described=described,
            state_ids=dict(tested.state_ids),
            entries=tuple(entry for subtask in self._subtasks for entry in subtask.entries()),
            watermark_ms=tested.time.watermark_ms,
            clock_ms=tested.time.clock_ms,
            operator=tuple(subtask.held() for subtask in self._subtasks),
        )

    def notify_checkpoint_complete(self, checkpoint_id: int | None = None) -> None:
        """End the epoch, and notify every instance at the start of the next one that a checkpoint is complete.

        Args:
            checkpoint_id: The checkpoint contains the epochs up to this id, as `snapshot_state` got it. By default, all.
        """
        _notify(self._subtasks, checkpoint_id, complete=True)

    def notify_checkpoint_aborted(self, checkpoint_id: int | None = None) -> None:
        """End the epoch, and notify every instance at the start of the next one that a checkpoint failed.

        Args:
            checkpoint_id: The id of its epoch, as `snapshot_state` got it. By default, that of the epoch that ends.
        """
        _notify(self._subtasks, checkpoint_id, complete=False)

    def subtask_of(self, key: Any) -> int:
        """Return the index of the parallel instance that owns `key`."""
        return int(self._owner(self._normalized(key))[1].slot)

    def close(self) -> None:
        for subtask in self._subtasks:
            subtask.close()
        shutil.rmtree(self.tested.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _normalized(self, key: Any) -> Any:
        if self._codec is None:
            raise GraphError("The function has no key: its rows go to the instances in turn.")
        return self._codec.normalized(key)

    def _owner(self, key: Any) -> tuple[int, SubtaskUnderTest]:
        group = key_group(hash_key(key, self._key_types), self.tested.max_parallelism)
        return group, self._subtasks[slot_of(group, self.tested.parallelism, self.tested.max_parallelism)]


def _shares_of(snapshot: FittedSnapshot, tested: OperatorUnderTest) -> list[list[tuple[bytes, bytes]]]:
    """Divide the entries of a snapshot among the instances."""
    shares: list[list[tuple[bytes, bytes]]] = [[] for _ in range(tested.parallelism)]
    for raw_key, value in snapshot.entries():
        # An entry begins with its key group, so that a snapshot can be divided without decoding keys.
        group = int.from_bytes(raw_key[:2], "big")
        shares[slot_of(group, tested.parallelism, tested.max_parallelism)].append((raw_key, value))
    if snapshot.snapshot.operator and any(not spec.keyed for spec in tested.node.states):
        lists = snapshot.dealt_out(tested.node.states, tested.uid, tested.parallelism)
        for share, operator in zip(shares, lists):
            share += operator
    return shares


def _notify(subtasks: Iterable[SubtaskUnderTest], checkpoint_id: int | None, *, complete: bool) -> None:
    for subtask in subtasks:
        checkpoint = subtask.checkpoint_id if checkpoint_id is None else checkpoint_id
        subtask.seal(CheckpointNotice(checkpoint, complete))


def _time(clock_ms: int, watermark_ms: int) -> EpochTime:
    return EpochTime(clock_ms, watermark_ms, watermark_ms)


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
        node = node_of_stream(function)
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

    given = FunctionInput(
        key=key,
        schema=schema,
        side_outputs=side_outputs,
        event_time=event_time,
        broadcast_schema=broadcast_schema,
        on_error=OnError.of(on_error),
    )
    emitted = None if output_schema is None else as_schema(output_schema)
    node = node_of_function(function, given, emitted)
    # Rows are then fed as `combine` reads them, and the function behind it gets what that returns, as in a job.
    uncombined = None
    if Combiner.is_wanted(function) and isinstance(node, Process):
        uncombined = node.input
        node = combined(node, function)
    return Harness(
        node=node,
        parallelism=parallelism,
        max_parallelism=max_parallelism,
        restore=restore,
        state_backend=state_backend,
        schema=emitted,
        side_schemas=given.side_schemas,
        uncombined=uncombined,
        drop_state=drop_state,
        renamed_fields=renamed_fields,
    )
