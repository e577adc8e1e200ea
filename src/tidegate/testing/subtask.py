"""One parallel instance of the function that a harness runs: attempts over sealed versions of its state, as in a task."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tidegate.core.errors import WrongValue
from tidegate.core.ids import AttemptId, EpochId, Slot, Term, Uid
from tidegate.core.times import EpochTime
from tidegate.graph.model import Process, Transform
from tidegate.graph.on_error import ErrorAction
from tidegate.runtime.exchange.assignment import CheckpointNotice
from tidegate.runtime.task.operator_chain import keyed_operator
from tidegate.runtime.task.operators.async_operator import AsyncOperator
from tidegate.runtime.task.operators.call_loop import CallLoop
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.keyed_inputs import key_codec
from tidegate.runtime.task.operators.operator import Emit
from tidegate.runtime.task.operators.process_operator import ProcessOperator
from tidegate.runtime.task.operators.spans import SpanTimes
from tidegate.runtime.task.operators.transform_operator import TransformOperator
from tidegate.schema.schema import Schema
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.accessors.ttl import StateClock, living
from tidegate.state.keys.entry_keys import key_group_range
from tidegate.state.keys.key_groups import range_of_slot
from tidegate.state.port import StateBackend, StateStore
from tidegate.state.version import VersionId
from tidegate.testing.operator_snapshot import Held
from tidegate.testing.rows import collect_batches, collect_rows, own_errors


@dataclass(slots=True, kw_only=True)
class OperatorUnderTest:
    """What all instances of the function share: how it is declared, where its output goes, and what time it is."""

    node: Process | Transform
    uid: Uid
    parallelism: int
    max_parallelism: int
    backend: StateBackend
    directory: Path
    state_ids: Mapping[tuple[Uid, str], int]
    schema: Schema | None
    """The columns that the output is checked against, if they are known."""
    side_schemas: Mapping[str, Schema]
    time: EpochTime
    collected: list[Any] = field(default_factory=list)
    sides: dict[str, list[Any]]
    span_times: SpanTimes = field(default_factory=SpanTimes)

    def id_of(self, state: str) -> int:
        """Return the number under which a state is stored."""
        return self.state_ids[self.uid, state]


class SubtaskUnderTest:
    """One parallel instance: its share of the key groups, its copy of the function."""

    # Of the current epoch; each `_begin` replaces them. A keyed function has `states` and `operator`, another `transform`.
    _epoch: EpochId
    store: StateStore
    lists: OperatorStates
    states: KeyedStates
    operator: ProcessOperator
    transform: TransformOperator | AsyncOperator

    def __init__(
        self, tested: OperatorUnderTest, slot: Slot, restored: Iterable[tuple[bytes, bytes]] | None = None
    ) -> None:
        """`restored`: the entries that its state begins with."""
        self.slot = slot
        self._tested = tested
        self._directory = tested.directory / str(slot)
        self._groups = range_of_slot(slot, tested.parallelism, tested.max_parallelism)
        self._version: VersionId | None = None
        self._number = 0
        self._loop: CallLoop | None = None
        if restored is not None:
            # A version of its own, before the function sees any state: as in a job, restoring is not part of an epoch.
            store = self._next_store()
            store.write(restored)
            self._version = store.seal().version
        self._begin()

    @property
    def checkpoint_id(self) -> int:
        """The id of the epoch, as the function knows it."""
        return self._epoch.as_checkpoint_id

    def feed(self, rows: Sequence[Any]) -> None:
        """Give rows to a function without keys, and wait for its calls if it is async."""
        self.transform.accept(rows)
        if isinstance(self.transform, AsyncOperator):
            self.transform.finish()

    def seal(self, *notices: CheckpointNotice) -> None:
        """End the epoch and start the next."""
        keyed = isinstance(self._tested.node, Process)
        operator = self.operator if keyed else self.transform
        with own_errors():
            operator.snapshot()
            operator.close()
        self._end_loop()
        self.lists.flush()
        if keyed:
            self.states.flush()
            self.states.clean_up()
        self._version = self.store.seal(self.lists.held()).version
        self._begin(notices)

    def store_changes(self) -> None:
        """Write what the function has changed, as a job does when the epoch ends or too much is cached: a value that its state
        cannot hold fails the call that wrote it."""
        if not isinstance(self._tested.node, Process):
            return
        try:
            self.states.flush()
        except WrongValue as error:
            # The function has returned, so its line is not in the traceback.
            error.add_note(f"key: {error.key!r}")
            for file, line, method, text in error.writes:
                error.add_note(f"written in {file}:{line}, in {method}: {text.strip()}")
            raise

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the stored entries of keyed state that have not expired."""
        if isinstance(self._tested.node, Process):
            stored = self.store.scan(*key_group_range(0, self._tested.max_parallelism - 1))
            yield from living(stored, self.states.expiries())

    def held(self) -> Held:
        """Return the stored operator state."""
        return Held.of(self.store, self._tested.node.states, self._tested.state_ids, self._tested.uid)

    def close(self) -> None:
        if isinstance(self._tested.node, Transform) and isinstance(self.transform, AsyncOperator):
            self.transform.abort()
        self._end_loop()
        self.store.abandon()

    def _next_store(self) -> StateStore:
        """Start the next attempt over the last sealed version."""
        self._number += 1
        self._epoch = EpochId(Term(1), self._number)
        target = VersionId(self._epoch, AttemptId(self._number))
        return self._tested.backend.begin(self._directory, self._version, target, self._groups)

    def _begin(self, notices: Sequence[CheckpointNotice] = ()) -> None:
        """Start the next epoch: a new attempt, with a new copy of the function, which is notified of checkpoints."""
        tested = self._tested
        node = tested.node
        self.store = self._next_store()
        self.lists = OperatorStates(self.store, node.states, tested.id_of)
        context = FunctionContext(
            str(tested.uid), self.slot, tested.parallelism, epoch=self._epoch, spans=tested.span_times
        )
        with own_errors():
            if isinstance(node, Transform):
                self.transform = self._unkeyed(node, context)
                self.transform.open(notices)
            else:
                self.operator = self._keyed(node, context)
                self.operator.open(notices)

    def _unkeyed(self, node: Transform, context: FunctionContext) -> TransformOperator | AsyncOperator:
        tested = self._tested
        fresh = replace(node, function=copy.deepcopy(node.function))
        emit = collect_rows(tested.collected, tested.schema)
        if node.calls is None:
            lists = self._lists_of(node)
            return TransformOperator(node=fresh, context=context, emit=emit, time=tested.time, operator_states=lists)
        self._loop = CallLoop()
        return AsyncOperator(node=fresh, context=context, emit=emit, side_emits=self._side_emits(), loop=self._loop)

    def _keyed(self, node: Process, context: FunctionContext) -> ProcessOperator:
        tested = self._tested
        self.states = KeyedStates(
            store=self.store,
            specs=node.states,
            ids=tested.id_of,
            keys=key_codec(node.input.schema, node.input.key),
            epoch=self._epoch,
            groups=self._groups,
            clock=StateClock(tested.time.clock_ms, tested.time.applied_ms),
            guarded=node.on_error.action is not ErrorAction.FAIL,
        )
        if node.batches:
            schemas = dict(node.side_outputs)
            emit = collect_batches(tested.collected, node.schema)
            sides = {tag: collect_batches(rows, schemas[tag]) for tag, rows in tested.sides.items()}
        else:
            emit = collect_rows(tested.collected, tested.schema)
            sides = self._side_emits()
        return keyed_operator(node, self._directory)(
            node=replace(node, function=copy.deepcopy(node.function)),
            states=self.states,
            context=context,
            emit=emit,
            side_emits=sides,
            time=tested.time,
            operator_states=self._lists_of(node),
        )

    def _side_emits(self) -> dict[str, Emit]:
        schemas = self._tested.side_schemas
        return {tag: collect_rows(rows, schemas.get(tag)) for tag, rows in self._tested.sides.items()}

    def _lists_of(self, node: Process | Transform) -> OperatorStates | None:
        """Return operator state only if the function declares any, as a task does."""
        if all(spec.keyed for spec in node.states):
            return None
        return self.lists

    def _end_loop(self) -> None:
        if self._loop is not None:
            self._loop.close()
            self._loop = None
