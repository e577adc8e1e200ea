"""One task of one epoch: read rows, run operators, make the next state version, send rows and barriers on. Knows no Spark.

`run_level` is what `mapInArrow` calls in a Python worker (through `runtime.driver.epoch_frame`), and what tests call directly.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.staging import JobStaging
from tidegate.checkpoint.version_restore import restore
from tidegate.checkpoint.version_upload import forget_uploads
from tidegate.connectors.sink import WriterContext
from tidegate.core.errors import CorruptState, SchemaError, WrongValue
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, Slot, TaskId, Uid
from tidegate.graph.combine import ROWS
from tidegate.graph.event_times import greatest_by_split, greatest_ms, split_name
from tidegate.graph.levels import Edge
from tidegate.graph.model import Node, NodeId, Process, SinkNode, Source, StreamRef, Transform
from tidegate.graph.on_error import ErrorAction
from tidegate.runtime.exchange import channel
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.channel import ChannelWriter, EdgeRows
from tidegate.runtime.exchange.messages import (
    Barrier,
    Fault,
    FaultKind,
    TaskAck,
    TaskCommittable,
    TaskPublished,
    Uploaded,
    encode,
)
from tidegate.runtime.exchange.user_code import FunctionFailed, encoded
from tidegate.runtime.task.background_publish import Publishing
from tidegate.runtime.task.background_publish import begin as publish
from tidegate.runtime.task.background_upload import UploadHandle, start_uploads, storage_of
from tidegate.runtime.task.barriers import BarrierTracker
from tidegate.runtime.task.collector import seldom_collecting
from tidegate.runtime.task.operators import (
    Emit,
    FunctionContext,
    Operator,
    ProcessOperator,
    SinkOperator,
    TransformOperator,
    emit_to,
    key_codec,
)
from tidegate.savepoint.canonical_read import CanonicalTask
from tidegate.savepoint.evolution import MigrationFailed
from tidegate.savepoint.restore_compatibility import converter
from tidegate.state.backends import backend_named
from tidegate.state.key_groups import range_of_slot
from tidegate.state.keyed_states import KeyedStates
from tidegate.state.local_root import LocalRoot
from tidegate.state.operator_states import OperatorStates
from tidegate.state.port import StateBackend, StateStore, VersionMissing
from tidegate.state.ttl import StateClock
from tidegate.state.version import Manifest, VersionId
from tidegate.state.version_directory import terms_of
from tidegate.storage import CorruptFile, ObjectMissing

LAST = pa.schema([pa.field("ctl", pa.binary())])
"""What the last level sends to the driver."""


class _AttemptState:
    """The store of one attempt, opened at the first row and never for a task without rows."""

    def __init__(
        self, backend: StateBackend, directory: Path, base: VersionId | None, target: VersionId, groups: tuple[int, int]
    ) -> None:
        self._backend = backend
        self._directory = directory
        self._base = base
        self._target = target
        self._groups = groups
        self.store: StateStore | None = None
        self.states: list[tuple[str, KeyedStates]] = []
        self.operator_states: list[tuple[str, OperatorStates]] = []

    def begin(self) -> StateStore:
        if self.store is None:
            self.store = self._backend.begin(self._directory, self._base, self._target, self._groups)
        return self.store

    def seal(self) -> Manifest | None:
        if self.store is None:
            return None
        every: tuple[tuple[str, KeyedStates | OperatorStates], ...] = (*self.states, *self.operator_states)
        for operator, states in every:
            try:
                states.flush()
            except WrongValue as error:
                raise FunctionFailed(operator, error) from error
        for _, keyed in self.states:
            keyed.clean_up()
        held: dict[int, int] = {}
        for _, lists in self.operator_states:
            held |= lists.held()
        return self.store.seal(held)

    def tidy(self, keep: Iterable[VersionId]) -> None:
        """Drop what was superseded. Versions newer than the base stay: this attempt may not be the one that counts.

        Terms before ours have ended; theirs go but for those named. Terms after ours are another driver's.
        """
        own = self._target.epoch.term
        named = (*keep, *(() if self._base is None else (self._base,)))
        for term in terms_of(self._directory):
            kept = tuple(version for version in named if version.epoch.term == term)
            if term < own:
                self._backend.tidy(self._directory, term, kept, ended=True)
            elif term == own and self._base is not None and self._base.epoch.term == own:
                self._backend.tidy(self._directory, term, kept)

    def abandon(self) -> None:
        if self.store is not None:
            self.store.abandon()


class _TaskAttempt:
    """One attempt. Assembled, run once, thrown away."""

    def __init__(self, assignment: TaskAssignment, slot: Slot, partition: int, attempt: AttemptId) -> None:
        program = assignment.unpickle()
        root = LocalRoot.open(assignment.local_dir)
        self.assignment, self.program, self.slot, self.partition, self.attempt = (
            assignment,
            program,
            slot,
            partition,
            attempt,
        )
        self.root = root
        # In the source stage there may be more tasks than slots; there a task is named by its partition.
        self.sender = int(slot) if program.level > 0 else partition
        self.barriers = BarrierTracker(
            epoch=assignment.epoch, level=program.level, slot=slot, senders=assignment.senders
        )
        self.base = assignment.versions[slot] if program.level > 0 else None
        self.uploads, self.keep, self.brought_back = assignment.work.of(slot) if program.level > 0 else ((), (), None)
        self.stateful = any(isinstance(node, Process | Transform) and node.states for node in program.nodes)
        self.directory = root.task_directory(assignment.job, assignment.lineage, TaskId(program.level, slot))
        self.backend = backend_named(assignment.backend, assignment.backend_options)
        self.groups = (
            range_of_slot(slot, assignment.parallelism, assignment.max_parallelism) if program.level > 0 else (0, 0)
        )
        self.version = VersionId(assignment.epoch, attempt)
        self.state = _AttemptState(
            backend=self.backend, directory=self.directory, base=self.base, target=self.version, groups=self.groups
        )
        self.upload_handles: list[UploadHandle] = []
        self.publishing: list[Publishing] = []
        self.writer = (
            ChannelWriter(program.outgoing, assignment.salts, assignment.parallelism, assignment.max_parallelism)
            if assignment.salts
            else None
        )
        self.by_id = {node.id: node for node in program.nodes}
        self.operators: dict[NodeId, Operator] = {}
        self.event_times: dict[str, int] = {}
        self.timers: tuple[int | None, int | None] | None = None
        self.fired = 0
        self.folded = 0
        """Rows of the sources that were combined into others on their way."""
        self.source_rows = 0
        self.sinks: list[SinkOperator] = []

    def restore(self) -> Fault | None:
        """Bring the state back that the epoch starts from, if it is not here. Raises what a repeat may cure."""
        if self.brought_back is None:
            return None
        assignment = self.assignment
        assert assignment.archive is not None
        try:
            self.base = restore(
                storage_of(assignment.archive), self.directory, self.brought_back, self.backend, assignment.backend_options,
                self.version, CanonicalTask, converter,
            )  # fmt: skip
        except (CorruptFile, ObjectMissing, CorruptState, MigrationFailed) as error:
            return Fault(FaultKind.RESTORE, str(error))
        self.state = _AttemptState(
            backend=self.backend, directory=self.directory, base=self.base, target=self.version, groups=self.groups
        )
        return None

    def start_background_work(self) -> None:
        """Begin, or go on with, the uploads that are asked for; they go on beside the rows."""
        assignment = self.assignment
        if assignment.archive is not None and (self.uploads or assignment.work.records):
            # First, because the disk may be full of them.
            forget_uploads(self.directory, assignment.epoch.term, assignment.work.records)
            self.upload_handles = start_uploads(
                assignment.archive, assignment.job, self.directory, TaskId(self.program.level, self.slot), assignment.epoch.term,
                self.attempt, self.backend, self.uploads,
            )  # fmt: skip
        if assignment.archive is not None and assignment.work.publishes:
            sinks = {node.uid: node for node in self.program.nodes if isinstance(node, SinkNode)}
            self.publishing = [
                publish(
                    assignment.archive,
                    assignment.job,
                    assignment.lineage,
                    assignment.epoch.term,
                    sinks[order.sink],
                    order,
                )
                for order in assignment.work.publishes[self.slot]
            ]

    def carried_out(self) -> tuple[tuple[Uploaded, ...], tuple[TaskPublished, ...]]:
        """What can be said of uploads and publications now. All have some time together to come to an end."""
        latest = time.monotonic() + self.assignment.work.wait_ms / 1000
        uploads = []
        for handle in self.upload_handles:
            part, error = handle.answer(max(0.0, latest - time.monotonic()))
            if part is not None or error is not None:
                uploads.append(Uploaded(handle.order.checkpoint_id, part, error))
        answers = [each.answer(max(0.0, latest - time.monotonic())) for each in self.publishing]
        return tuple(uploads), tuple(answer for answer in answers if answer is not None)

    def tidy(self) -> None:
        if self.program.level > 0 and self.stateful:
            self.state.tidy(self.keep)
            if self.assignment.archive is not None:
                forget_uploads(self.directory, self.assignment.epoch.term, self.assignment.work.records)

    def missing(self) -> Fault | None:
        """Whether the version to start from is here. Looked up even when there are no rows: an acknowledgement vouches for it."""
        if self.base is None:
            return None
        try:
            self.backend.manifest(self.directory, self.base)
        except VersionMissing as error:
            return Fault(FaultKind.MISS, str(error))
        except CorruptState as error:
            return Fault(FaultKind.CORRUPT, str(error))
        return None

    def assemble(self) -> None:
        """Make the operators, consumers before producers, and open their functions."""
        for node in reversed(self.program.nodes):
            operator = self._operator(node)
            if operator is not None:
                self.operators[node.id] = operator
        for operator in self.operators.values():
            operator.open()

    def _operator(self, node: Node) -> Operator | None:
        context = FunctionContext(
            getattr(node, "name", ""), self.slot, self.assignment.parallelism, self.assignment.epoch
        )
        match node:
            case Transform():
                lists = self._operator_states(node)
                return TransformOperator(
                    node=node,
                    context=context,
                    emit=self._emit(StreamRef(node.id)),
                    time=self.assignment.time,
                    operator_states=lists,
                )
            case Process():
                states = self._states(node)
                sides = {tag: self._emit(StreamRef(node.id, tag)) for tag, _ in node.side_outputs}
                emit, lists = self._emit(StreamRef(node.id)), self._operator_states(node)
                return ProcessOperator(
                    node=node,
                    states=states,
                    context=context,
                    emit=emit,
                    side_emits=sides,
                    time=self.assignment.time,
                    operator_states=lists,
                )
            case SinkNode():
                staging = self._staging(node)
                sink = SinkOperator(node, self._writer_context(node, staging), staging)
                self.sinks.append(sink)
                return sink
            case Source():
                return None

    def _states(self, node: Process) -> KeyedStates:
        codec = key_codec(node.input.schema, node.input.key)
        states = KeyedStates(
            store=self.state.begin() if node.states else None,
            specs=node.states,
            ids=lambda name: self.program.state_ids[node.uid, name],
            keys=codec,
            epoch=self.assignment.epoch,
            groups=self.groups,
            clock=StateClock(self.assignment.time.clock_ms, self.assignment.time.applied_ms),
            guarded=node.on_error.action is not ErrorAction.FAIL,
        )
        self.state.states.append((node.name, states))
        return states

    def _operator_states(self, node: Process | Transform) -> OperatorStates | None:
        if all(spec.keyed for spec in node.states):
            return None
        uid = node.uid
        assert uid is not None
        states = OperatorStates(self.state.begin(), node.states, lambda name: self.program.state_ids[uid, name])
        self.state.operator_states.append((str(uid), states))
        return states

    def _staging(self, node: SinkNode) -> JobStaging:
        assignment = self.assignment
        storage = None if assignment.archive is None else storage_of(assignment.archive)
        return JobStaging(
            storage=storage,
            layout=JobLayout(assignment.job),
            epoch=assignment.epoch,
            sink=node.uid,
            attempt=self.attempt,
        )

    def _writer_context(self, node: SinkNode, staging: JobStaging) -> WriterContext:
        assignment, schema = self.assignment, node.input.schema
        return WriterContext(
            lineage=assignment.lineage,
            sink=node.uid,
            epoch=assignment.epoch,
            slot=self.slot,
            attempt=self.attempt,
            schema=schema,
            staging=staging,
        )

    def _emit(self, stream: StreamRef) -> Emit:
        consumers: list[Emit] = [self.operators[id].accept for id in self.program.consumers.get(stream, ())]
        for edge in self.program.outgoing:
            if edge.source == stream and edge.from_level == self.program.level:
                consumers.append(self._outlet(edge))
        emit, maker = emit_to(consumers), str(getattr(self.by_id[stream.node], "name", "source"))

        def checked(rows: Sequence[Any]) -> None:
            try:
                emit(rows)
            except SchemaError as error:
                # Whoever made the rows made them wrong, however far down that shows.
                raise FunctionFailed(maker, error) from error

        return checked

    def _outlet(self, edge: Edge) -> Emit:
        writer = self.writer
        assert writer is not None
        return lambda rows: writer.send_rows(edge, rows, self.slot)

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run every row through; yield what is ready to be sent. Operators are made when the first row comes."""
        for rows in channel.read(batches, self.program.incoming, self.barriers.control):
            if not self.operators:
                reach("task.2-first-row", task=self)
                self.assemble()
            self.barriers.rows += len(rows)
            self._route(rows)
            if self.writer is not None:
                yield from self.writer.take()

    def _route(self, rows: EdgeRows) -> None:
        edge, made_of = rows.edge, len(rows)
        if edge.combine is not None:
            made_of = pc.sum(rows.columns[edge.schema.index(ROWS)]).as_py()
            self.folded += made_of - len(rows)
        if edge.id in self.program.counted and (self.slot == 0 or not edge.broadcast):
            self.source_rows += made_of
        reported = self.program.event_times.get(edge.id)
        if reported is not None:
            uid, column, split = reported
            splits = None if split is None else rows.columns[edge.schema.index(split)]
            self.note_event_times(uid, rows.columns[edge.schema.index(column)], splits)
        if edge.to_level == self.program.level:
            self.operators[edge.target].accept_edge(rows)
        else:
            assert self.writer is not None
            self.writer.pass_on(edge, rows.struct, rows.groups, self.slot)

    def note_event_times(self, uid: Uid, column: pa.Array, splits: pa.Array | None = None) -> None:
        found = {"": greatest_ms(column)} if splits is None else greatest_by_split(column, splits)
        for split, greatest in found.items():
            if greatest is not None:
                name = split_name(uid, split)
                self.event_times[name] = max(greatest, self.event_times.get(name, greatest))

    def advance(self) -> Iterator[pa.RecordBatch]:
        """All rows are in: apply the clocks of the epoch, fire what is due, see what is next. Yields what is to be sent."""
        if not self.operators and self.assignment.wake and self.assignment.wake[self.slot]:
            self.assemble()
        pending: list[tuple[int | None, int | None]] = []
        for operator in self.operators.values():
            if isinstance(operator, ProcessOperator):
                self.fired += operator.advance(self.assignment.time)
                pending.append(operator.pending())
                if self.writer is not None:
                    yield from self.writer.take()
        if pending:
            event, processing = zip(*pending)
            self.timers = _least(event), _least(processing)

    def seal(self) -> Manifest | None:
        """Let functions keep what they hold and close them; make the next version of the state, if anything changed."""
        for operator in self.operators.values():
            operator.snapshot()
        for operator in self.operators.values():
            operator.close()
        if self.untouched:
            self.state.abandon()
            return None
        return self.state.seal() if self.stateful else None

    @property
    def untouched(self) -> bool:
        """Whether nothing happened that could have changed state, though it may have been opened."""
        return self.barriers.rows == 0 and self.fired == 0

    def drain(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Read everything and do nothing: Spark kills a worker that leaves input unread. Acknowledgements are passed on."""
        for rows in channel.read(batches, self.program.incoming, self.barriers.control):
            self.barriers.rows += len(rows)

    def abort(self) -> None:
        self.state.abandon()
        for sink in self.sinks:
            sink.abort()

    def finish(
        self,
        fault: Fault | None,
        version: str | None,
        committables: tuple[TaskCommittable, ...],
        size: int,
        started: float,
    ) -> Iterator[pa.RecordBatch]:
        """The barriers of this task, or for the last level its one row to the driver."""
        assignment = self.assignment
        uploads, published = self.carried_out()
        ack = TaskAck(
            term=assignment.epoch.term,
            number=assignment.epoch.number,
            level=self.program.level,
            sender=self.sender,
            partition=self.partition,
            attempt=self.attempt,
            host=self.root.host,
            version=version,
            digest=self.barriers.digest(),
            rows_in=self.barriers.rows + self.folded,
            rows_out=0 if self.writer is None else self.writer.rows,
            fault=fault,
            committables=committables,
            operators={op.name: (op.rows_in, op.rows_out) for op in self.operators.values()},
            state_bytes=size,
            uploads=uploads,
            published=published,
            source_rows=self.source_rows,
            event_times=self.event_times,
            timers=self.timers,
            late_dropped=sum(op.late_dropped for op in self.operators.values() if isinstance(op, ProcessOperator)),
            busy_ms=round((time.monotonic() - started) * 1000),
        )
        acks = (*self.barriers.acks, encode(ack))
        poisoned = fault is not None
        level, sender, attempt = self.program.level, self.sender, self.attempt

        def barrier(target: int, rows: int) -> bytes:
            riders = acks if target == self.slot else ()
            return encode(
                Barrier(
                    term=assignment.epoch.term,
                    number=assignment.epoch.number,
                    level=level,
                    sender=sender,
                    attempt=attempt,
                    target=target,
                    rows=rows,
                    poisoned=poisoned,
                    acks=riders,
                )
            )

        if self.writer is None:
            yield pa.RecordBatch.from_arrays([pa.array([barrier(self.slot, 0)], pa.binary())], schema=LAST)
        else:
            self.writer.send_barriers(barrier)
            yield from self.writer.take()


def _least(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)


def run_level(
    assignment: TaskAssignment, partition: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One attempt of one task of levels 1 and up.

    1. Find the slot and the version to start from, in the first epoch after a recovery by bringing it back. Not here:
       drain, answer with a miss. Uploads for checkpoints begin, or go on, beside all that follows.
    2. Read rows, run operators, send on what they emit. A crash leaves a private directory. A function that raises: read the
       rest, answer so, seal nothing. If a task above has poisoned the input, the function has seen only a part of its rows: that
       is the miss's fault, not the function's.
    3. Verify the input: a barrier from every sender, the rows they announced. Wrong: answer so, seal nothing. Right: apply
       the clocks of the epoch and fire the timers that are due, which may send rows on.
    4. Seal the state version. A crash after it leaves a version that nobody names.
    5. Let sink writers finish staging. A crash after it leaves staged rows that nobody names.
    6. Send barriers with the acknowledgement. From here the driver decides.
    """
    started = time.monotonic()
    task = _TaskAttempt(assignment, assignment.slots[partition], partition, AttemptId(attempt))
    stream = iter(batches)
    fault = task.restore() or task.missing()
    reach("task.1-located", task=task)
    if fault is not None:
        task.drain(stream)
        yield from task.finish(fault, None, (), 0, started)
        return
    task.start_background_work()
    with seldom_collecting():
        yield from _run(task, stream, started)


def _run(task: _TaskAttempt, stream: Iterator[pa.RecordBatch], started: float) -> Iterator[pa.RecordBatch]:
    """Steps 2 to 6 of `run_level`."""
    try:
        manifest: Manifest | None = None
        try:
            yield from task.read(stream)
            fault = task.barriers.fault()
        except FunctionFailed as failed:
            task.drain(stream)
            fault = task.barriers.barrier_fault() or _user_fault(failed)
        if fault is None:
            reach("task.3-verified", task=task)
            try:
                yield from task.advance()
                manifest = task.seal()
            except FunctionFailed as failed:
                fault = _user_fault(failed)
        if fault is not None:
            task.abort()
            yield from task.finish(fault, None, (), 0, started)
            return
        if task.writer is not None:
            yield from task.writer.take()
        reach("task.4-sealed", task=task)
        prepared = [sink.prepare_commit() for sink in task.sinks]
        committables = tuple(item for item in prepared if item is not None)
        reach("task.5-prepared", task=task)
        version = manifest.version if manifest is not None else task.base
        yield from task.finish(
            None,
            None if version is None else str(version),
            committables,
            manifest.size_bytes if manifest else 0,
            started,
        )
        reach("task.6-sent", task=task)
        task.tidy()
    except BaseException:
        task.abort()
        raise


def _user_fault(failed: FunctionFailed) -> Fault:
    return Fault(FaultKind.USER, encoded(failed.report))


def run_source_stage(
    assignment: TaskAssignment, partition: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The source stage where it has Python functions before the first shuffle: no state, no slots, barriers of its own.

    Input columns are one struct per source, in the order of the program's sources.
    """
    started = time.monotonic()
    task = _TaskAttempt(assignment, Slot(partition % assignment.parallelism), partition, AttemptId(attempt))
    stream = iter(batches)
    fault: Fault | None = None
    with seldom_collecting():
        try:
            yield from _source_rows(task, stream)
        except FunctionFailed as failed:
            fault = _user_fault(failed)
            for _ in stream:
                pass  # Spark ends a worker that leaves input unread.
        yield from task.finish(fault, None, (), 0, started)


def _source_rows(task: _TaskAttempt, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    assert task.writer is not None
    sources = [node for node in task.program.nodes if isinstance(node, Source)]
    task.assemble()
    for batch in batches:
        for place, source in enumerate(sources):
            struct = batch.column(place)
            struct = struct.drop_null() if struct.null_count else struct
            if len(struct) == 0:
                continue
            task.barriers.rows += len(struct)
            task.source_rows += len(struct)
            if source.watermark_column is not None:
                times = struct.field(source.schema.index(source.watermark_column))
                splits = None if source.split is None else struct.field(source.schema.index(source.split))
                task.note_event_times(source.uid, times, splits)
            stream = StreamRef(source.id)
            rows = EdgeRows(
                Edge(
                    id=-1,
                    source=stream,
                    target=source.id,
                    input=0,
                    key=(),
                    schema=source.schema,
                    from_level=0,
                    to_level=0,
                ),
                struct,
                pa.nulls(0),
            )
            for id in task.program.consumers.get(stream, ()):
                task.operators[id].accept_edge(rows)
            for edge in task.program.outgoing:
                if edge.source == stream:
                    task.writer.send_columns(edge, rows.columns, task.slot)
        yield from task.writer.take()
    for operator in task.operators.values():
        operator.close()
    yield from task.writer.take()
