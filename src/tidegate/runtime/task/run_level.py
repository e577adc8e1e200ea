"""One task of one epoch: read rows, run operators, create the next state version, send rows and
barriers. Independent of Spark.

`mapInArrow` calls `run_level` in a Python worker (through `runtime.epochs.epoch_frame`); tests call it directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from socket import gethostname

import pyarrow as pa
import pyarrow.compute as pc

from tidegate.core.errors import CorruptState
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, Slot, Uid
from tidegate.graph.combine import ROWS
from tidegate.graph.event_times import greatest_by_split, greatest_ms, split_name
from tidegate.graph.levels import Edge
from tidegate.graph.model import Source, StreamRef
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.channel import ChannelWriter, read_packed
from tidegate.runtime.exchange.edge_rows import EdgeRows
from tidegate.runtime.exchange.messages import (
    Barrier,
    Fault,
    FaultKind,
    HostResources,
    TaskAck,
    TaskCommittable,
    TaskMetrics,
    encode,
)
from tidegate.runtime.exchange.sql_rows import read_sql
from tidegate.runtime.exchange.user_code import FunctionFailed, encoded
from tidegate.runtime.task.attempt_state import AttemptState
from tidegate.runtime.task.background_upload import traffic, traffic_since_last_report
from tidegate.runtime.task.background_work import BackgroundWork
from tidegate.runtime.task.barriers import BarrierTracker
from tidegate.runtime.task.collector import seldom_collecting
from tidegate.runtime.task.host_resources import host_resources
from tidegate.runtime.task.operator_chain import OperatorChain
from tidegate.runtime.task.operators.async_operator import AsyncOperator
from tidegate.runtime.task.operators.process_operator import ProcessOperator
from tidegate.runtime.task.operators.sink_operator import SinkOperator
from tidegate.runtime.task.progress_reporter import REPORTER
from tidegate.runtime.task.task_metrics import COUNT_TIMERS_EVERY, with_details
from tidegate.runtime.task.work_meter import WorkMeter
from tidegate.state.disk.local_root import LocalRoot
from tidegate.state.version import Manifest, VersionId

LAST = pa.schema([pa.field("ctl", pa.binary())])
"""The schema of what the last level sends to the driver."""
_MOST_TIMERS = 10_000
"""Pending timers of an operator that a task counts, at most."""


class _TaskAttempt:
    """One attempt of a task. It runs once."""

    def __init__(self, assignment: TaskAssignment, slot: Slot, partition: int, attempt: AttemptId) -> None:
        # First: unpickling the functions and opening the state count as the task's time.
        self.meter = WorkMeter(enabled=assignment.measuring.tasks)
        program = assignment.unpickle()
        self.assignment = assignment
        self.program = program
        self.slot = slot
        self.partition = partition
        self.attempt = attempt
        self.root = LocalRoot.open(assignment.local_dir)
        # In the source stage there may be more tasks than slots; a task is identified there by its partition.
        self.sender = int(slot) if program.level > 0 else partition
        self.barriers = BarrierTracker(
            epoch=assignment.epoch, level=program.level, slot=slot, senders=assignment.senders
        )
        self.state = AttemptState(assignment=assignment, program=program, slot=slot, attempt=attempt, root=self.root)
        self.background = BackgroundWork()
        self.writer = (
            ChannelWriter(program.outgoing, assignment.salts, assignment.parallelism, assignment.max_parallelism)
            if assignment.salts
            else None
        )
        self.chain = OperatorChain(
            assignment=assignment,
            program=program,
            slot=slot,
            attempt=attempt,
            state=self.state,
            writer=self.writer,
        )
        self.operators = self.chain.operators
        """The dictionary of the chain, which `OperatorChain.open` fills: rows reach their operator without indirection."""
        self.event_times: dict[str, int] = {}
        self.timers: tuple[int | None, int | None] | None = None
        self.fired = 0
        self.pending_timers: dict[str, int] = {}
        self.folded = 0
        """Rows that were combined into others before they arrived."""
        self.source_rows: Counter[str] = Counter()
        """Rows read, by source."""

    def position(self) -> object:
        """Return how far the attempt is: a value that differs when rows, timers or files have moved. Called by another thread,
        a few times in ten minutes."""
        return (
            self.barriers.rows,
            len(self.barriers.acks),
            self.fired,
            0 if self.writer is None else self.writer.rows,
            tuple(operator.position() for operator in tuple(self.operators.values())),
            traffic(self.assignment.archive),
        )

    def start_background_work(self) -> None:
        """Start or continue uploads and publications. They run while the attempt processes rows."""
        self.background = BackgroundWork.start(self.assignment, self.program, self.slot, self.attempt, self.state)

    def store_early(self, version: VersionId | None) -> None:
        """Begin to store the sealed version, if a checkpoint of this epoch is announced."""
        self.background = self.background.with_early_upload(
            self.assignment, self.program.level, self.slot, self.attempt, self.state, version
        )

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run every row through the operators, which the first row opens, unless functions have notices to receive. Yield what
        is ready to be sent."""
        if self.assignment.work.notices:
            self.chain.open()
        for rows in self._arriving(batches):
            if not self.operators:
                reach("task.2-first-row", task=self)
                self.chain.open()
            self.barriers.rows += len(rows)
            self._route(rows)
            if self.writer is not None:
                yield from self.writer.take()

    def _arriving(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EdgeRows]:
        """Rows of the level below, which is plain SQL if it sends no barriers."""
        if self.assignment.senders == 0:
            return read_sql(batches, self.program.incoming)
        return read_packed(batches, self.program.incoming, self.barriers.control)

    def _route(self, rows: EdgeRows) -> None:
        edge, made_of = rows.edge, len(rows)
        if edge.combine is not None:
            made_of = pc.sum(rows.columns[edge.schema.index(ROWS)]).as_py()
            self.folded += made_of - len(rows)
        source = self.program.counted.get(edge.id)
        # Every task gets the rows of a broadcast, so only one of them counts them.
        if source is not None and (self.slot == 0 or not edge.broadcast):
            self.source_rows[source] += made_of
        reported = self.program.event_times.get(edge.id)
        if reported is not None:
            uid, column, split = reported
            splits = None if split is None else rows.columns[edge.schema.index(split)]
            self.note_event_times(uid, rows.columns[edge.schema.index(column)], splits)
        if edge.to_level == self.program.level:
            self.operators[edge.target].accept_edge(rows)
        else:
            assert self.writer is not None
            # An operator of a later level reads them. Their slot is the same there, so they are not hashed again.
            self.writer.pass_on(rows, self.slot)

    def note_event_times(self, uid: Uid, column: pa.Array, splits: pa.Array | None = None) -> None:
        found = {"": greatest_ms(column)} if splits is None else greatest_by_split(column, splits)
        for split, greatest in found.items():
            if greatest is not None:
                name = split_name(uid, split)
                self.event_times[name] = max(greatest, self.event_times.get(name, greatest))

    def advance(self) -> Iterator[pa.RecordBatch]:
        """After the last row: apply the clocks of the epoch, fire the timers that are due, and record the earliest
        remaining ones. Yield what is ready to be sent.
        """
        # Without a row the chain is closed, and opening it costs a store: only if a timer may be due.
        if not self.operators and self.assignment.wake and self.assignment.wake[self.slot]:
            self.chain.open()
        pending: list[tuple[int | None, int | None]] = []
        for operator in self.operators.values():
            if isinstance(operator, ProcessOperator):
                self.fired += operator.advance(self.assignment.time)
                pending.append(operator.pending())
                self._count_timers(operator)
                if self.writer is not None:
                    yield from self.writer.take()
        if pending:
            event, processing = zip(*pending)
            self.timers = _least(event), _least(processing)
        # After the timers, which may emit rows that combiners and async functions still hold.
        self.chain.finish()

    def _count_timers(self, operator: ProcessOperator) -> None:
        if self.meter.enabled and self.assignment.epoch.number % COUNT_TIMERS_EVERY == 1:
            count = operator.count_timers(_MOST_TIMERS)
            if count is not None:
                self.pending_timers[operator.name] = count

    def seal(self) -> Manifest | None:
        """Snapshot and close the functions. Create the next version of the state, unless nothing changed."""
        with self.meter.sealing:
            self.chain.snapshot()
            self.chain.close()
            if self.untouched:
                # The task keeps its version: a new one would be uploaded, though it holds the same.
                self.state.abandon()
                return None
            return self.state.seal()

    @property
    def untouched(self) -> bool:
        """Whether neither a row nor a timer nor a notice has changed state, although the store may be open."""
        has_notices = bool(self.assignment.work.notices)
        return self.barriers.rows == 0 and self.fired == 0 and not (has_notices and self.state.lists_differ())

    def drain(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Read the input and process no row: Spark kills a worker that leaves input unread. Keep the acknowledgements for the
        driver."""
        for rows in self._arriving(batches):
            self.barriers.rows += len(rows)

    def abort(self) -> None:
        """Drop what the attempt wrote to its state and to its sinks."""
        self.state.abandon()
        self.chain.abort()

    def _metrics(self, uploads_answered: int) -> TaskMetrics:
        operators = self.operators.values()
        failing = [operator for operator in operators if isinstance(operator, ProcessOperator | AsyncOperator)]
        measured = self.meter.metrics(
            self.fired,
            self.state.downloads,
            failed_rows=sum(operator.failed_rows for operator in failing),
            source_rows=dict(self.source_rows),
            storage=traffic_since_last_report(self.assignment.archive),
            resources=host_resources(self.root.path) if self.meter.enabled else HostResources(),
        )
        return with_details(
            measured,
            operators,
            background=self.background,
            uploads_answered=uploads_answered,
            access_meters=self.chain.access_meters,
            pending_timers=self.pending_timers,
            state=self.state,
        )

    @property
    def _rows_out(self) -> int:
        """Rows that were sent to later levels, before any were combined, and rows that the task's own sinks took."""
        sent = 0 if self.writer is None else self.writer.rows + self.chain.folded
        return sent + sum(sink.rows_in for sink in self.operators.values() if isinstance(sink, SinkOperator))

    def finish(
        self,
        fault: Fault | None,
        version: str | None,
        committables: tuple[TaskCommittable, ...],
        size: int,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the barriers of this task, or in the last level its one row for the driver."""
        assignment = self.assignment
        uploads, commit_results = self.background.results()
        spans = self.chain.spans()

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
            rows_out=self._rows_out,
            fault=fault,
            committables=committables,
            operators={op.name: (op.rows_in, op.rows_out) for op in self.operators.values()},
            state_bytes=size,
            uploads=uploads,
            commit_results=commit_results,
            source_rows=self.source_rows.total(),
            event_times=self.event_times,
            timers=self.timers,
            late_dropped=sum(op.late_dropped for op in self.operators.values() if isinstance(op, ProcessOperator)),
            metrics=self._metrics(len(uploads)),
            spans={name: found for name, times in spans.items() if (found := times.totals())},
            slowest_keys={name: keys for name, times in spans.items() if (keys := times.slowest_keys())},
            host_name=gethostname(),
        )

        # Those of the levels above pass through unopened.
        acks = (*self.barriers.acks, encode(ack))
        poisoned = fault is not None
        level, sender, attempt = self.program.level, self.sender, self.attempt

        def barrier(target: int, rows: int) -> bytes:
            # Acknowledgements travel once, on the channel to the same slot: the driver needs one of each.
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
    """Run one attempt of one task of levels 1 and up.

    1. Find the slot and the version to start from; in the first epoch after a recovery, restore it. If the version is not on
       this host, drain the input and report a miss. Otherwise start or continue background work, which runs during the
       steps below.
    2. Read rows, run operators, send what they emit to the next level. A crash leaves a private directory. If a function
       raises, read the rest, report the error, seal nothing. If a task above has poisoned the input, the function has seen
       only a part of its rows: report the poisoned input instead of the error. If state turns out to be damaged, here or in a
       later step, discard the version and report that.
    3. Verify the input: a barrier from every sender, and the rows they announced. If it is wrong, report that and seal
       nothing. Otherwise apply the clocks of the epoch and fire the timers that are due, which may emit more rows.
    4. Seal the state version. A crash after this step leaves a version that nothing refers to.
    5. Let sink writers finish staging. A crash after this step leaves staged rows that nothing refers to.
    6. Send barriers with the acknowledgement. From here the driver decides.
    """
    task = _TaskAttempt(assignment, assignment.slots[partition], partition, AttemptId(attempt))
    with REPORTER.reporting(assignment, attempt, task.position):
        yield from task.meter.output(_located(task, task.meter.input(batches)))


def _located(task: _TaskAttempt, stream: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    """Step 1 of `run_level`, and the steps after it if the state is here."""
    with task.meter.restoring:
        # In this order: a restore decides which version to start from.
        fault = task.state.restore() or task.state.missing()
    reach("task.1-located", task=task)
    if fault is not None:
        task.drain(stream)
        yield from task.finish(fault, None, (), 0)
        return
    task.start_background_work()
    with seldom_collecting():
        yield from _run(task, stream)


def _run(task: _TaskAttempt, stream: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Steps 2 to 6 of `run_level`."""
    try:
        manifest: Manifest | None = None
        try:
            yield from task.read(stream)

            # After the last row: the barriers announce how many there should be.
            fault = task.barriers.fault()
        except FunctionFailed as failed:
            task.drain(stream)
            # The cause first: a damaged version makes functions fail, and so do rows that a task above never sent.
            fault = task.state.damage(failed) or task.barriers.barrier_fault() or _user_fault(failed)
        except CorruptState as error:
            task.drain(stream)
            fault = task.state.damage(error)

        if fault is None:
            reach("task.3-verified", task=task)
            try:
                yield from task.advance()
                manifest = task.seal()
            except FunctionFailed as failed:
                fault = task.state.damage(failed) or _user_fault(failed)
            except CorruptState as error:
                fault = task.state.damage(error)

        if fault is not None:
            task.abort()
            yield from task.finish(fault, None, (), 0)
            return

        if task.writer is not None:
            yield from task.writer.take()

        reach("task.4-sealed", task=task)
        task.state.estimate_sizes(manifest)
        version = manifest.version if manifest is not None else task.state.base

        # Before the sinks finish, which may take a while: the upload runs meanwhile.
        task.store_early(version)

        committables = task.chain.prepare_commit()
        reach("task.5-prepared", task=task)
        yield from task.finish(
            None,
            None if version is None else str(version),
            committables,
            # Also of state that the epoch has not changed: after a restore, nothing else says how large it is.
            manifest.size_bytes if manifest else task.state.base_bytes,
        )

        reach("task.6-sent", task=task)
        # Last, and only after Spark has taken the acknowledgement. A crash before it leaves old versions to the next epoch.
        task.state.tidy()
    except BaseException:
        task.abort()
        raise


def _user_fault(failed: FunctionFailed) -> Fault:
    return Fault(FaultKind.USER, encoded(failed.report))


def run_source_stage(
    assignment: TaskAssignment, partition: int, attempt: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run one attempt of a task of the source stage, for a job with Python functions before the first shuffle. The task has
    neither state nor a slot, and sends barriers.

    Input columns are one struct per source, in the order of the program's sources.
    """
    task = _TaskAttempt(assignment, Slot(partition % assignment.parallelism), partition, AttemptId(attempt))
    with REPORTER.reporting(assignment, attempt, task.position):
        yield from task.meter.output(_source_stage(task, task.meter.input(batches)))


def _source_stage(task: _TaskAttempt, stream: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    fault: Fault | None = None
    with seldom_collecting():
        try:
            yield from _source_rows(task, stream)
        except FunctionFailed as failed:
            task.chain.abort()
            fault = _user_fault(failed)
            for _ in stream:
                pass  # Spark kills a worker that leaves input unread.
        except BaseException:
            task.chain.abort()
            raise
        yield from task.finish(fault, None, (), 0)


def _source_rows(task: _TaskAttempt, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    assert task.writer is not None
    sources = [node for node in task.program.nodes if isinstance(node, Source)]
    task.chain.open()
    for batch in batches:
        for place, source in enumerate(sources):
            struct = batch.column(place)
            # A batch of the combined query has a struct for each source, null in the rows of the others.
            struct = struct.drop_null() if struct.null_count else struct
            if len(struct) == 0:
                continue
            task.barriers.rows += len(struct)
            task.source_rows[source.uid] += len(struct)

            if source.watermark_column is not None:
                times = struct.field(source.schema.index(source.watermark_column))
                splits = None if source.split is None else struct.field(source.schema.index(source.split))
                task.note_event_times(source.uid, times, splits)

            # No edge of the plan leads into the source stage. This one carries the schema to the operators that read the source.
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
                struct.flatten(),
                pa.nulls(0),
                len(struct),
            )

            for id in task.program.consumers.get(stream, ()):
                task.operators[id].accept_edge(rows)
            for edge in task.program.outgoing:
                if edge.source == stream:
                    task.chain.send_columns(edge, rows.columns)

        yield from task.writer.take()

    task.chain.finish()
    task.chain.close()
    yield from task.writer.take()
