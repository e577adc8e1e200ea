"""The operators of one task attempt, connected to each other and to the next level. Independent of Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.output.staging import InlineRoom, JobStaging
from tidegate.connectors.sink import WriterContext
from tidegate.core.errors import SchemaError
from tidegate.core.ids import AttemptId, Slot
from tidegate.graph.levels import Edge
from tidegate.graph.model import Node, NodeId, Process, SinkNode, Source, StreamRef, Transform
from tidegate.graph.on_error import ErrorAction
from tidegate.graph.stateful_processing import StatefulProcessing
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.channel import ChannelWriter
from tidegate.runtime.exchange.messages import TaskCommittable
from tidegate.runtime.exchange.program import LevelProgram
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.attempt_state import AttemptState
from tidegate.runtime.task.background_upload import storage_of
from tidegate.runtime.task.operators.async_operator import AsyncOperator
from tidegate.runtime.task.operators.batch_operator import BatchOperator
from tidegate.runtime.task.operators.call_loop import CallLoop
from tidegate.runtime.task.operators.combine_operator import CombineOperator
from tidegate.runtime.task.operators.edge_combiner import EdgeCombiner
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.hot_keys import KeySketch
from tidegate.runtime.task.operators.keyed_inputs import key_codec
from tidegate.runtime.task.operators.operator import Emit, Operator, emit_to
from tidegate.runtime.task.operators.process_operator import ProcessOperator
from tidegate.runtime.task.operators.sink_operator import SinkOperator
from tidegate.runtime.task.operators.spans import SpanTimes
from tidegate.runtime.task.operators.transform_operator import TransformOperator
from tidegate.runtime.task.spark_processor.stateful_processor_operator import StatefulProcessorOperator
from tidegate.schema.output_columns import batch_from_rows
from tidegate.state.accessors.access_meter import AccessMeter
from tidegate.state.accessors.keyed_states import KeyedStates
from tidegate.state.accessors.operator_states import OperatorStates
from tidegate.state.accessors.ttl import StateClock

if TYPE_CHECKING:
    import pyarrow as pa

_FUNCTIONS = ProcessOperator | TransformOperator | AsyncOperator | CombineOperator


def keyed_operator(node: Process, directory: Path) -> Callable[..., ProcessOperator]:
    """Return what runs a keyed function. `directory` is for rows that do not fit in memory."""
    if isinstance(node.function, StatefulProcessing):
        return partial(StatefulProcessorOperator, directory=directory)
    return BatchOperator if node.batches else ProcessOperator


class OperatorChain:
    """Empty until `open`: a task without rows creates no operators. If `open` raises, it keeps those already created, so
    that the attempt can abort their sinks.
    """

    def __init__(
        self,
        *,
        assignment: TaskAssignment,
        program: LevelProgram,
        slot: Slot,
        attempt: AttemptId,
        state: AttemptState,
        writer: ChannelWriter | None,
    ) -> None:
        self._assignment = assignment
        self._program = program
        self._slot = slot
        self._attempt = attempt
        self._state = state
        self._writer = writer
        self._measuring = assignment.measuring
        self._combiners = {
            edge.id: EdgeCombiner(edge, assignment.time.applied_ms)
            for edge in program.outgoing
            if edge.combined_from is not None and edge.from_level == program.level
        }
        self.operators: dict[NodeId, Operator] = {}
        self._sinks: list[SinkOperator] = []
        self._inline_room = InlineRoom(assignment.work.inline_output_bytes)
        """Shared by the sinks: the driver bounds what a task sends, not what a sink does."""
        self._loops: list[CallLoop] = []
        """The event loop of the async functions, if there are any."""
        self.access_meters: dict[str, AccessMeter] = {}
        """By operator. Empty unless accesses to state are measured."""

    def open(self) -> None:
        """Create the operators, consumers before producers, open their functions, and notify them of checkpoints."""
        # Consumers first: a producer takes their `accept` when it is created.
        for node in reversed(self._program.nodes):
            operator = self._operator(node)
            if operator is not None:
                self.operators[node.id] = operator
        for operator in self.operators.values():
            operator.open(self._assignment.work.notices)

    def finish(self) -> None:
        """After the last row and timer: let operators pass on what they still hold, producers before consumers."""
        for operator in reversed(self.operators.values()):
            if isinstance(operator, CombineOperator | AsyncOperator):
                operator.finish()
        for combiner in self._combiners.values():
            self._send_combined(combiner)

    @property
    def folded(self) -> int:
        """Rows that were combined into others before they were sent."""
        return sum(combiner.folded for combiner in self._combiners.values())

    def snapshot(self) -> None:
        """Ask every function to save its variables to state."""
        for operator in self.operators.values():
            operator.snapshot()

    def close(self) -> None:
        """Close the functions."""
        for operator in self.operators.values():
            operator.close()
        # After all functions are closed: those that are async close in the loop.
        self._end_loop()

    def prepare_commit(self) -> tuple[TaskCommittable, ...]:
        """Let the sink writers finish staging. Return the committables."""
        prepared = [sink.prepare_commit() for sink in self._sinks]
        return tuple(item for item in prepared if item is not None)

    def spans(self) -> dict[str, SpanTimes]:
        """Return what functions measured with `ctx.span`, by operator."""
        return {each.name: each.spans for each in self.operators.values() if isinstance(each, _FUNCTIONS)}

    def abort(self) -> None:
        """End the calls of async functions, and abort the sink writers."""
        for operator in self.operators.values():
            if isinstance(operator, AsyncOperator):
                operator.abort()
        self._end_loop()
        for sink in self._sinks:
            sink.abort()

    def _loop(self) -> CallLoop:
        if not self._loops:
            self._loops.append(CallLoop())
        return self._loops[0]

    def _end_loop(self) -> None:
        while self._loops:
            self._loops.pop().close()

    def _operator(self, node: Node) -> Operator | None:
        match node:
            # From the special kinds to the general one, which matches all of them.
            case Transform(kind="combine"):
                return CombineOperator(node, self._function_context(node), self._emit_batches(node))
            case Transform(kind="async_map"):
                return AsyncOperator(
                    node=node,
                    context=self._function_context(node),
                    emit=self._emit(node),
                    side_emits={tag: self._emit(node, tag) for tag, _ in node.side_outputs},
                    loop=self._loop(),
                )
            case Transform():
                return TransformOperator(
                    node=node,
                    operator_states=self._operator_states(node),
                    context=self._function_context(node),
                    emit=self._emit(node),
                    time=self._assignment.time,
                )
            case Process():
                emit = self._emit_batches if node.batches else self._emit
                return keyed_operator(node, self._state.directory)(
                    node=node,
                    states=self._keyed_states(node),
                    side_emits={tag: emit(node, tag) for tag, _ in node.side_outputs},
                    emit=emit(node),
                    operator_states=self._operator_states(node),
                    context=self._function_context(node),
                    time=self._assignment.time,
                    sketch=KeySketch() if self._measuring.tasks and self._measuring.hot_keys else None,
                )
            case SinkNode():
                staging = self._staging(node)
                sink = SinkOperator(node, self._writer_context(node, staging), staging)
                self._sinks.append(sink)
                return sink
            case Source():
                return None  # Its rows are read by the attempt, which gives them to the operators of this level.

    def _function_context(self, node: Transform | Process) -> FunctionContext:
        return FunctionContext(node.name, self._slot, self._assignment.parallelism, self._assignment.epoch)

    def _keyed_states(self, node: Process) -> KeyedStates:
        time = self._assignment.time
        meter = AccessMeter.wanted(self._measuring)
        if meter is not None:
            self.access_meters[node.name] = meter
        states = KeyedStates(
            store=self._state.begin() if node.states else None,
            specs=node.states,
            ids=lambda name: self._program.state_ids[node.uid, name],
            keys=key_codec(node.input.schema, node.input.key),
            epoch=self._assignment.epoch,
            groups=self._state.groups,
            clock=StateClock(time.clock_ms, time.applied_ms),
            guarded=node.on_error.action is not ErrorAction.FAIL,
            meter=meter,
            cache_bytes=self._state.cache_bytes,
        )
        self._state.add_keyed(node.name, states)
        return states

    def _operator_states(self, node: Process | Transform) -> OperatorStates | None:
        if all(spec.keyed for spec in node.states):
            return None
        uid = node.uid
        assert uid is not None
        states = OperatorStates(self._state.begin(), node.states, lambda name: self._program.state_ids[uid, name])
        self._state.add_lists(str(uid), states)
        return states

    def _staging(self, node: SinkNode) -> JobStaging:
        assignment = self._assignment
        return JobStaging(
            storage=None if assignment.archive is None else storage_of(assignment.archive),
            layout=JobLayout(assignment.job),
            epoch=assignment.epoch,
            sink=node.uid,
            attempt=self._attempt,
            room=self._inline_room,
        )

    def _writer_context(self, node: SinkNode, staging: JobStaging) -> WriterContext:
        return WriterContext(
            lineage=self._assignment.lineage,
            sink=node.uid,
            epoch=self._assignment.epoch,
            slot=self._slot,
            attempt=self._attempt,
            schema=node.input.schema,
            staging=staging,
        )

    def _emit(self, node: Transform | Process, tag: str | None = None) -> Emit:
        """Return the call that passes the rows of a node's output to all its consumers."""
        stream = StreamRef(node.id, tag)
        consumers: list[Emit] = [self.operators[id].accept for id in self._program.consumers.get(stream, ())]
        return self._checked(node, consumers + [self._send(edge) for edge in self._edges(stream)])

    def _emit_batches(self, node: Transform | Process, tag: str | None = None) -> Emit:
        """The same for the batches of a node that emits columns."""
        stream = StreamRef(node.id, tag)
        consumers: list[Emit] = [self.operators[id].accept_batch for id in self._program.consumers.get(stream, ())]
        return self._checked(node, consumers + [self._send_batch(edge) for edge in self._edges(stream)])

    def _edges(self, stream: StreamRef) -> list[Edge]:
        program = self._program
        return [edge for edge in program.outgoing if edge.source == stream and edge.from_level == program.level]

    def _checked(self, node: Transform | Process, consumers: list[Emit]) -> Emit:
        emit, maker = emit_to(consumers), node.name

        def checked(rows: Any) -> None:
            try:
                emit(rows)
            except SchemaError as error:
                # The operator that produced the rows is at fault, however far downstream the error shows.
                raise FunctionFailed(maker, error) from error

        return checked

    def _send(self, edge: Edge) -> Emit:
        writer, slot = self._writer, self._slot
        assert writer is not None, "a level with outgoing edges has a next level"
        schema = edge.combined_from
        if schema is None:
            return lambda rows: writer.send_rows(edge, rows, slot)
        return lambda rows: self.send_columns(edge, batch_from_rows(rows, schema).columns)

    def _send_batch(self, edge: Edge) -> Emit:
        return lambda batch: self.send_columns(edge, batch.columns)

    def send_columns(self, edge: Edge, columns: Sequence[pa.Array]) -> None:
        """Send columns of a stream to the next level; if its rows are combined first, with the next that are sent."""
        combiner = self._combiners.get(edge.id)
        if combiner is None:
            assert self._writer is not None, "a level with outgoing edges has a next level"
            self._writer.send_columns(edge, columns, self._slot)
        elif combiner.add(columns):
            self._send_combined(combiner)

    def _send_combined(self, combiner: EdgeCombiner) -> None:
        assert self._writer is not None, "a level with outgoing edges has a next level"
        for columns in combiner.take():
            self._writer.send_columns(combiner.edge, columns, self._slot)
