"""What output that waits for a target costs the driver and the tasks: 1,000 slots, 100 epochs. A part of `coordinator`.

The product's classes, without Spark and without a target. Seconds are those of the processor.

- *results*: an epoch in which every task reports that its output of one epoch is published.
- *waits*: an epoch that reports nothing, while the same output waits.
- *assignments*: what a level's tasks get in an epoch that takes a checkpoint, and in one that publishes the backlog. The driver
  packs them once; every task opens them. A few tasks are measured, and the others are taken to cost the same.
"""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks import harness
from tidegate.checkpoint.coordination.statistics import CheckpointStatsTracker
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, encode
from tidegate.checkpoint.task.version_upload import Stored
from tidegate.connectors.sink import Committable
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.ids import AttemptId, EpochId, HostId, Lineage, Slot, TaskId, Term, Uid
from tidegate.runtime.checkpoints.checkpoint_work import UploadState, plan_checkpoint_work
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot, PendingUpload
from tidegate.runtime.checkpoints.output import OutputRelease
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription, TaskSink
from tidegate.runtime.exchange.assignment import CheckpointWork, TaskAssignment
from tidegate.runtime.exchange.messages import OutputMark, TaskCommitResult
from tidegate.runtime.exchange.task_parts import pack
from tidegate.state.version import VersionId

LINE, SINK = Lineage("6f1c0b6e8d7a4f0e9c3b2a1908f7e6d5"), Uid("orders-to-table")
HOSTS = 50
_chance = random.Random(7)
_OPENED = 20
"""Tasks whose part is opened."""


@dataclass(frozen=True, slots=True)
class Waiting:
    slots: int
    epochs: int


def measure(result: dict[str, Any], size: Waiting, repetitions: int, driver: Any) -> None:
    """Add figures and limits to `result`. `driver` is a store that has claimed its job, and how protocols are performed."""
    release = _release(size, driver.store, driver.perform)
    name = f"{size.slots:,} slots, {size.epochs} epochs waiting"
    idle = [_seconds(lambda: release.on_committed_by_tasks(())) for _ in range(repetitions)]
    waits = [_seconds(release.release) for _ in range(repetitions)]
    data = encode(_metadata(release._store.ledger.carried_by(EpochId(driver.store.term, size.epochs))))
    publishing = _assigned(size, release.for_tasks)
    taking = _assigned(size, ())
    results = []
    for number in range(1, repetitions + 1):
        told = [_result(slot, driver.store.term, number) for slot in range(size.slots)]
        results.append(_seconds(lambda told=told: release.on_committed_by_tasks(told)))
    figures = {
        "results of an epoch": ("s", results),
        "an epoch without results": ("s", [a + b for a, b in zip(idle, waits)]),
        "_metadata of a savepoint": ("MB", [len(data) / 1e6]),
    }
    for what, work in (("checkpoint", taking), ("backlog", publishing)):
        seconds, own_mb, sent_mb = _of_assignments(size, work)
        figures[f"assignments, {what}: all tasks"] = ("core s", [seconds])
        figures[f"assignments, {what}: sent with each task"] = ("MB", [sent_mb])
        figures[f"assignments, {what}: read by each task"] = ("MB", [own_mb])
    for what, (unit, samples) in figures.items():
        result["figures"][f"{name}: {what}"] = harness.Figure(unit, tuple(samples)).as_json()
    result["ratios"] |= {
        f"{name}: results of an epoch, in seconds": harness.bounded(max(results), at_most=1.0),
        f"{name}: assignments of a checkpoint, in core seconds": harness.bounded(
            figures["assignments, checkpoint: all tasks"][1][0], at_most=5.0
        ),
        f"{name}: assignments of a backlog, in core seconds": harness.bounded(
            figures["assignments, backlog: all tasks"][1][0], at_most=10.0
        ),
    }


def _seconds(act: Callable[[], object]) -> float:
    begin = time.process_time()
    act()
    return time.process_time() - begin


def _release(size: Waiting, store: Any, run: Callable[[Any], Any]) -> OutputRelease:
    store.ledger.accept(
        _committable(slot, store.term, number)
        for number in range(1, size.epochs + 1)
        for slot in range(size.slots)
    )  # fmt: skip
    store.due_epoch = EpochId(store.term, size.epochs)
    history = SimpleNamespace(
        clock=SYSTEM_CLOCK, perform=run, config=SimpleNamespace(max_waiting_epochs=1_000, max_waiting_bytes=1 << 40)
    )
    ownership: Any = SimpleNamespace(history=history, store=store, failure=SimpleNamespace(error=None))
    sinks: Any = SimpleNamespace(uids=(SINK,), unasked=set[Uid]())
    loop: Any = SimpleNamespace(wake_at=lambda at_ms: None)
    in_tasks = {SINK: TaskSink(level=1, stable=True)}
    release = OutputRelease(ownership, sinks, in_tasks, CheckpointStatsTracker(), loop, None)
    release.release()
    return release


def _committable(slot: int, term: Term, number: int) -> Committable:
    # Names and checksums do not compress.
    staged = JobLayout("bench").staged(EpochId(term, number), SINK, AttemptId(slot), f"{_chance.getrandbits(128):032x}")
    token = f"staged {staged} 524288 sha256:{_chance.getrandbits(256):064x}"
    return Committable(
        lineage=LINE,
        sink=SINK,
        epoch=EpochId(term, number),
        slot=Slot(slot),
        payload=token.encode(),
        staged=(staged,),
        size_bytes=1 << 19,
    )


def _result(slot: int, term: Term, number: int) -> TaskCommitResult:
    return TaskCommitResult(SINK, (OutputMark(LINE, slot, term, number),), {"COMMITTED": 1}, "COMMITTED", None)


def _metadata(committables: tuple[Committable, ...]) -> CheckpointMetadata:
    return CheckpointMetadata(
        job="bench",
        lineage=LINE,
        checkpoint_id=1,
        term=Term(1),
        epoch=EpochId(Term(1), 1),
        kind=SnapshotKind.CHECKPOINT,
        triggered_ms=0,
        completed_ms=1,
        tidegate_version="0",
        spark_version="4",
        max_parallelism=1,
        parallelism=1,
        clock_ms=0,
        committables=committables,
    )


def _assigned(size: Waiting, publications: Any) -> CheckpointWork:
    """The work of an epoch that takes a checkpoint."""
    tasks = [TaskId(1, Slot(slot)) for slot in range(size.slots)]
    epoch = EpochId(Term(1), size.epochs)
    versions = {task: VersionId(epoch, AttemptId(task.slot)) for task in tasks}
    snapshot = EpochSnapshot(epoch, versions, None, Path(), Clocks())
    pending = PendingUpload(
        id=7,
        snapshot=snapshot,
        tasks=frozenset(tasks),
        sources=(),
        base={task: Stored(Term(1), 6, task.slot.to_bytes(32, "big")) for task in tasks},
    )
    job = JobDescription(
        job="bench",
        parallelism=size.slots,
        max_parallelism=size.slots,
        backend="rocksdb",
        levels=1,
        sources=(),
        operators=(),
        state_ids={},
        spark_version="4",
        task_sinks={SINK: TaskSink(level=1, stable=True)},
    )
    state = UploadState(uploading=[pending], kept=versions)
    return plan_checkpoint_work(job, Term(1), state, inline_bytes=4096, is_empty=False, publications=publications)[1]


def _of_assignments(size: Waiting, work: CheckpointWork) -> tuple[float, float, float]:
    """Return core seconds of all tasks and the driver, the bytes that a task reads for itself and those that it is sent."""
    epoch = EpochId(Term(1), size.epochs + 1)
    whole = TaskAssignment(
        job="bench",
        lineage=LINE,
        epoch=epoch,
        parallelism=size.slots,
        max_parallelism=size.slots,
        program=b"",
        slots=tuple(Slot(slot) for slot in range(size.slots)),
        salts=(),
        versions=tuple(VersionId(epoch, AttemptId(slot)) for slot in range(size.slots)),
        backend="rocksdb",
        backend_options={},
        local_dir=None,
        senders=0,
        work=work,
    )
    begin = time.process_time()
    packed, content = pack(whole, lambda task: HostId(f"host-{task.slot % HOSTS}")), b""
    if packed.orders_bytes > 512 << 10:
        packed, content = packed.stored_at("orders")
    data = pickle.dumps(packed)
    driver_s = time.process_time() - begin
    begin = time.process_time()
    for partition in range(_OPENED):
        pickle.loads(data).open(partition, lambda path, start, length: content[start : start + length])
    task_s = (time.process_time() - begin) / _OPENED
    return driver_s + size.slots * task_s, len(content) / size.slots / 1e6, len(data) / 1e6
