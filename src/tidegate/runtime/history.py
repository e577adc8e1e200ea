"""The job's history while a driver writes it: claims the job, follows its epochs, publishes checkpoints, releases output.

One thread does all of that, in order: epochs post what they did and go on. What it decides is decided by the pure parts
of `tidegate.checkpoint`; what it writes, by their numbered protocols. A second thread only shows that the driver lives.
"""

from __future__ import annotations

import logging
import os
import queue
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tidegate.checkpoint import operators
from tidegate.checkpoint.assignment import RestoreTarget, plan_restore
from tidegate.checkpoint.claim import claim, show_life
from tidegate.checkpoint.contents import contents_of, reader
from tidegate.checkpoint.coordinator import (
    Action,
    Cadence,
    Coordinator,
    DiscardFiles,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    Publish,
    StartUpload,
    WakeAt,
)
from tidegate.checkpoint.effects import CommitFailed, Steps, perform
from tidegate.checkpoint.entry import CheckpointRef, Outcome, Signature
from tidegate.checkpoint.failure import CheckpointFailureReason
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    Committable,
    FileList,
    OperatorInfo,
    SnapshotKind,
    SplitTime,
    StateNumber,
    TaskState,
    checksum_in,
    decode,
    encode,
)
from tidegate.checkpoint.options.choices import JobEnd, Retention
from tidegate.checkpoint.options.config import CheckpointConfig, RecoveryConfig
from tidegate.checkpoint.pending import Ack, PendingCheckpoint
from tidegate.checkpoint.requests import Request, RequestKind
from tidegate.checkpoint.start import Start
from tidegate.checkpoint.statistics import CheckpointStatistics, Restored
from tidegate.checkpoint.storage import Storage, StorageError, new_nonce
from tidegate.checkpoint.task_part import decode_part, digest_of
from tidegate.checkpoint.tenure import CleaningSkipped, Draft, NotPublished, Tenure
from tidegate.checkpoint.version_restore import RestoreOrder
from tidegate.checkpoint.version_upload import Stored, UploadOrder
from tidegate.connectors.sink import CommitRequest, Committer
from tidegate.core.errors import EpochFailed
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, TaskId, Term, Uid
from tidegate.core.times import MIN_WATERMARK
from tidegate.runtime.clocks import Clocks
from tidegate.runtime.driver import EpochReport
from tidegate.runtime.program import Rides
from tidegate.runtime.query_directory import Positions, SourceNotes, read_sources
from tidegate.runtime.source_notes import load_notes, store_notes
from tidegate.state.key_groups import range_of_slot
from tidegate.state.version import VersionId

log = logging.getLogger("tidegate")
T = TypeVar("T")

BEAT_MS = 2_000
"""How often a driver shows that it lives."""
PATIENCE_MS = 6_000
"""How long a start watches the heartbeat of a run that has not ended in order."""
_INLINE_TASK_BYTES = 256 << 10
_INLINE_JOB_BYTES = 8 << 20
_RIDE_MS, _EMPTY_RIDE_MS = 50, 500
"""How long tasks may wait for an upload at the end of an epoch, and of one that is run for nothing else."""


class CheckpointsFailed(EpochFailed):
    """More checkpoints failed than are tolerated."""

    code = "CHECKPOINTS_FAILED"


@dataclass(frozen=True, slots=True)
class JobShape:
    """What of a job its snapshots describe."""

    job: str
    parallelism: int
    max_parallelism: int
    backend: str
    levels: int
    sources: tuple[Uid, ...]
    operators: tuple[OperatorInfo, ...]
    state_ids: Mapping[tuple[Uid, str], int]
    spark_version: str

    @property
    def tasks(self) -> list[TaskId]:
        return [TaskId(level, Slot(s)) for level in range(1, self.levels + 1) for s in range(self.parallelism)]


@dataclass(frozen=True, slots=True)
class Cut:
    """Where the job stands after one epoch: all that a checkpoint of it consists of, but for the files."""

    epoch: EpochId
    versions: Mapping[TaskId, VersionId]
    positions: Positions | None
    directory: Path
    """Of the streaming query."""
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class _Uploading:
    """A checkpoint whose uploads are under way. Replaced as a whole, so that other threads may read it."""

    id: int
    cut: Cut
    base: CheckpointRef | None
    missing: frozenset[TaskId]
    sources: tuple[SourceNotes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a run begins with."""

    lineage: Lineage
    term: Term
    snapshot: CheckpointMetadata | None
    root: str
    """What names in the snapshot are relative to."""
    owned: bool
    """Whether the next checkpoint may reuse its files."""


class History:
    def __init__(
        self, storage: Storage, layout: JobLayout, config: CheckpointConfig, recovery: RecoveryConfig,
        committers: Mapping[Uid, Committer],
    ) -> None:  # fmt: skip
        self._storage, self._layout, self._config, self._recovery = storage, layout, config, recovery
        self._committers = committers
        self._inbox: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._waiting: dict[str, Future[CheckpointRef]] = {}
        self._uploading: dict[int, _Uploading] = {}
        """Copied on change."""
        self._kept: Mapping[TaskId, VersionId] = {}
        """Versions of the newest checkpoint: whoever goes back to it finds them on local disk."""
        self._stored: tuple[CheckpointRef | None, Mapping[TaskId, bytes]] = (None, {})
        self._cut: Cut | None = None
        self._wake_ms: int | None = None
        self._failure: BaseException | None = None
        self._failed = threading.Event()
        self._ended = threading.Event()
        self._leavings = True
        """Whether failed checkpoints or former owners may have left files."""
        self.statistics = CheckpointStatistics()

    # -- beginning ---------------------------------------------------------------------------------------------------

    def open(self, start: Start, force: bool = False) -> Recovered:
        """Claim the job and take over what its log says. Raises `StartRefused`, and nothing was changed."""
        entry = self._perform(
            claim(self._layout, start, _sign, lambda: Lineage(uuid.uuid4().hex), PATIENCE_MS, force=force)
        )
        self._tenure = Tenure(self._layout, entry, reader(_staged_by), _sign, self._config.num_retained)
        self._beating = threading.Thread(target=self._beat, name="tidegate-heartbeat", daemon=True)
        self._beating.start()
        data = self._perform(self._tenure.recover())
        for ref in self._tenure.unreadable:
            log.warning("checkpoint %d at %s cannot be read; it is left out", ref.id, ref.metadata)
        snapshot = None if data is None else decode(data)
        self.snapshot = snapshot
        return self._recovered()

    def _recovered(self) -> Recovered:
        entry = self._tenure.entry
        base = entry.base
        root = self._layout.root if base is None else base.metadata.rsplit("/", 2)[0]
        return Recovered(entry.lineage, entry.term, self.snapshot, root, base is not None and base.owned)

    def follow(self, shape: JobShape) -> None:
        """The job is known to fit: begin to take checkpoints."""
        config = self._config
        self._shape = shape
        entry = self._tenure.entry
        cadence = Cadence(
            config.interval_ms, config.timeout_ms, config.min_pause_ms, config.max_concurrent, config.tolerable_failures
        )
        self._coordinator = Coordinator(cadence, shape.tasks, entry.last_id, entry.base)
        self._coordinator.statistics = self.statistics
        if self.snapshot is not None and entry.base is not None:
            self._note_stored(entry.base, self.snapshot)
            self.statistics.restored(
                Restored(entry.base.id, _now_ms(), not entry.base.owned, f"{self._storage.url}/{entry.base.metadata}")
            )
        interval = config.interval_ms or 0
        first_ms = round(random.uniform(config.min_pause_ms, max(interval, config.min_pause_ms)))
        self._post(lambda: self._act(self._coordinator.start(_now_ms(), first_ms)))
        self._thread = threading.Thread(target=self._loop, name="tidegate-history", daemon=True)
        self._thread.start()

    def restore_orders(self, shape: JobShape, allow_non_restored_state: bool) -> dict[TaskId, RestoreOrder]:
        """Which task fetches what, to go on from the newest checkpoint. Empty: there is no state. Raises `RestoreError`."""
        found = self._recovered()
        snapshot = found.snapshot
        if snapshot is None:
            return {}
        operators.check_compatible(snapshot, shape.operators)
        levels = {operator.uid: operator.level for operator in shape.operators}
        target = RestoreTarget(shape.max_parallelism, shape.parallelism, levels, allow_non_restored_state)
        old = {state.task: state for state in snapshot.tasks}
        base = self._tenure.entry.base
        stored = (base.term, base.id) if base is not None and base.owned else None
        orders: dict[TaskId, RestoreOrder] = {}
        for plan in plan_restore(snapshot, target):
            names = {*plan.sources, *(() if plan.as_is is None else (plan.as_is,))}
            sources = tuple(old[name] for name in sorted(names))
            if any(len(state.files) or state.inline for state in sources):
                orders[plan.task] = RestoreOrder(plan, sources, found.root, stored)
        return orders

    def restore_sources(self, shape: JobShape, allow_unclaimed: bool) -> tuple[tuple[SourceNotes, ...], str]:
        found = self._recovered()
        if found.snapshot is None:
            return tuple(SourceNotes(None, {}) for _ in shape.sources), "{}"
        return load_notes(self._storage, found.root, found.snapshot, shape.sources, allow_unclaimed)

    def restore_clocks(self) -> Clocks:
        """What of time the newest checkpoint remembers. The least of a source's splits would be its mark, were there more."""
        snapshot = self.snapshot
        if snapshot is None:
            return Clocks()
        greatest: dict[Uid, int] = {}
        for split in snapshot.splits:
            greatest[split.source] = min(split.event_time_ms, greatest.get(split.source, split.event_time_ms))
        mark = MIN_WATERMARK if snapshot.watermark_ms is None else snapshot.watermark_ms
        return Clocks(snapshot.clock_ms, mark, greatest)

    # -- called by the thread that runs epochs -----------------------------------------------------------------------

    def check(self) -> None:
        """Raise what made it impossible to go on, if anything did."""
        if self._failure is not None:
            raise self._failure

    @property
    def failed(self) -> threading.Event:
        return self._failed

    def rides(self, empty: bool) -> dict[int, Rides]:
        """What the tasks of the next epoch do for checkpoints, by level."""
        uploading, kept, (stored, digests) = self._uploading, self._kept, self._stored
        shape = self._shape
        records = [(self._tenure.term, each.id) for each in uploading.values()]
        records += [] if stored is None else [(stored.term, stored.id)]
        total = min(_INLINE_TASK_BYTES, _INLINE_JOB_BYTES // max(1, len(shape.tasks)))

        def order(each: _Uploading, task: TaskId) -> UploadOrder:
            base = each.base
            same = base is not None and stored is not None and base.metadata == stored.metadata
            digest = digests.get(task) if same else None
            known = None if base is None or digest is None else Stored(base.term, base.id, digest)
            return UploadOrder(each.id, each.cut.versions[task], known, self._config.inline_threshold_bytes, total)

        rides: dict[int, Rides] = {}
        for level in range(1, shape.levels + 1):
            tasks = [TaskId(level, Slot(slot)) for slot in range(shape.parallelism)]
            uploads = tuple(tuple(order(e, task) for e in uploading.values() if task in e.missing) for task in tasks)
            keep = tuple(
                tuple({e.cut.versions[task] for e in uploading.values() if task in e.cut.versions} | _one(kept, task))
                for task in tasks
            )
            wait_ms = (_EMPTY_RIDE_MS if empty else _RIDE_MS) if any(uploads) else 0
            rides[level] = Rides(uploads, keep, tuple(records), (), wait_ms)
        return rides

    def wants_ride(self) -> bool:
        """Whether uploads wait for an epoch."""
        return any(each.missing for each in self._uploading.values())

    def check_owner(self) -> None:
        """Raise what no restart cures: another driver has the job, or the log cannot be written."""
        if not isinstance(self._failure, CheckpointsFailed):
            self.check()

    def epoch_finished(self, report: EpochReport, cut: Cut, moved: bool, output: bool = True) -> None:
        """An epoch was accepted. Returns at once. `output`: what its sinks prepared waits for a checkpoint."""
        self._post(lambda: self._on_epoch(report, cut, moved, output))

    def request(self) -> Future[CheckpointRef]:
        """Take a checkpoint of the last epoch now, whatever the interval says."""
        token = uuid.uuid4().hex
        answer = self._waiting[token] = Future()
        wish = Request(RequestKind.MANUAL, _now_ms(), token, forced=True)
        self._post(lambda: self._act(self._coordinator.request(wish, _now_ms())))
        return answer

    def begin_at(self, cut: Cut) -> None:
        """The run stands at a checkpoint, or at the very beginning; no epoch has moved it yet."""

        def note() -> None:
            self._cut = cut
            self._act(self._coordinator.epoch_finished(cut.epoch, False, _now_ms()))

        self._post(note)

    def rewind(self) -> None:
        """Forget the epochs after the newest checkpoint. Waits until a publication under way has come to its end."""
        self._call(self._on_rewind)

    def finish(self, end: JobEnd) -> None:
        """End the run in order, and say so in the log."""
        keep = Retention(self._config.retention).keeps(end)

        def last() -> None:
            self._act(self._coordinator.close(_now_ms()))
            self._perform(self._tenure.finish(Outcome(end), keep))
            self._clean()

        try:
            self._call(last)
        finally:
            self.leave()

    def leave(self) -> None:
        """Stop without a word in the log, as a crash would."""
        self._ended.set()
        self._inbox.put(None)
        thread = getattr(self, "_thread", None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(60)

    # -- the thread of the history -----------------------------------------------------------------------------------

    def _post(self, work: Callable[[], None]) -> None:
        self._inbox.put(work)

    def _call(self, work: Callable[[], T]) -> T:
        """Have it done by the history's thread, and wait."""
        answer: Future[T] = Future()

        def run() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)
                raise

        self._post(run)
        while True:
            try:
                return answer.result(timeout=1)
            except TimeoutError:
                if not self._thread.is_alive() and not answer.done():
                    self.check()
                    raise RuntimeError("The history of the job has stopped.") from None

    def _loop(self) -> None:
        try:
            while not self._ended.is_set():
                self._turn()
        except BaseException as error:
            self._fail(error)

    def _turn(self) -> None:
        timeout = None if self._wake_ms is None else max(0.0, (self._wake_ms - _now_ms()) / 1000)
        try:
            work = self._inbox.get(timeout=timeout)
        except queue.Empty:
            self._wake_ms = None
            self._act(self._coordinator.tick(_now_ms()))
            return
        if work is not None:
            work()

    def _fail(self, error: BaseException) -> None:
        if not self._ended.is_set():
            log.error("the history of the job cannot go on: %s", error)
        self._failure = error
        self._failed.set()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)

    def _beat(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT_MS / 1000):
            beat += 1
            try:
                self._perform(show_life(self._layout, self._tenure.entry, beat))
            except StorageError as error:
                log.warning("the heartbeat of the job could not be written: %s", error)
            except Exception as error:
                self._fail(error)
                return

    def _on_epoch(self, report: EpochReport, cut: Cut, moved: bool, output: bool) -> None:
        now = _now_ms()
        self._cut = cut
        if output:
            self._tenure.ledger.accept(
                Committable(c.lineage, c.sink, c.slot, c.epoch, c.payload, c.staged) for c in report.committables
            )
        self._act(self._coordinator.epoch_finished(cut.epoch, moved, now))
        for task, item in report.uploads:
            if item.part is not None:
                self._acknowledge(item.checkpoint_id, task, item.part)
            elif item.error is not None:
                reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
                self._act(self._coordinator.decline(item.checkpoint_id, reason, now, f"{task}: {item.error}"))

    def _acknowledge(self, checkpoint_id: int, task: TaskId, part: bytes) -> None:
        uploading = self._uploading.get(checkpoint_id)
        if uploading is None or task not in uploading.missing:
            return
        state, new = decode_part(part)
        if state.version != uploading.cut.versions[task]:
            return
        self._replace(uploading, uploading.missing - {task})
        size, delta = state.size_bytes, state.delta_bytes(checkpoint_id)
        self._act(self._coordinator.acknowledge(Ack(checkpoint_id, task, state, new, size, delta), _now_ms()))

    def _replace(self, each: _Uploading, missing: frozenset[TaskId]) -> None:
        changed = _Uploading(each.id, each.cut, each.base, missing, each.sources)
        self._uploading = {**self._uploading, each.id: changed}

    def _forget(self, checkpoint_id: int | None) -> None:
        self._uploading = {id: each for id, each in self._uploading.items() if id != checkpoint_id}

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case StartUpload():
                    self._start_upload(action)
                case Publish(pending):
                    self._publish(pending)
                case NotifyComplete(ref, request):
                    self._answer(request.token, ref)
                case NotifyAborted(id, request, reason):
                    self._forget(id)
                    self._leavings = True
                    if reason is not CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN:
                        log.warning("checkpoint %s failed: %s", "" if id is None else id, reason.message)
                    self._answer(request.token, EpochFailed(f"The checkpoint failed: {reason.message}."))
                case DiscardFiles(paths):
                    self._discard(paths)
                case FailJob(message):
                    self._failure = CheckpointsFailed(message)
                    self._failed.set()
                case WakeAt(at_ms):
                    self._wake_ms = at_ms if self._wake_ms is None else min(self._wake_ms, at_ms)

    def _answer(self, token: str, result: CheckpointRef | Exception) -> None:
        answer = self._waiting.pop(token, None)
        if answer is None:
            return
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def _start_upload(self, action: StartUpload) -> None:
        cut, shape = self._cut, self._shape
        assert cut is not None
        assert cut.epoch == action.epoch
        base = self._tenure.entry.base if action.base is not None and self._config.incremental else None
        sources = read_sources(cut.directory, cut.positions, len(shape.sources))
        missing = frozenset(task for task in shape.tasks if task in cut.versions)
        self._uploading = {**self._uploading, action.id: _Uploading(action.id, cut, base, missing, sources)}
        # Whoever has no state has nothing to upload.
        for task in shape.tasks:
            if task not in missing:
                groups = range_of_slot(task.slot, shape.parallelism, shape.max_parallelism)
                empty = TaskState(task, groups, shape.backend, VersionId(cut.epoch, AttemptId(0)), FileList())
                self._act(self._coordinator.acknowledge(Ack(action.id, task, empty), _now_ms()))

    def _publish(self, pending: PendingCheckpoint) -> None:
        """Publish, tell, release, clean: in this order, each a protocol of its own."""
        uploading = self._uploading[pending.id]
        before = self._tenure.entry.retained
        try:
            metadata = self._metadata(pending, uploading)
        except StorageError as error:
            self._not_published(pending.id, error)
            return
        data = encode(metadata)
        contents = contents_of(self._layout.metadata(pending.id), metadata, _staged_by)
        try:
            ref = self._perform(
                self._tenure.publish(Draft(pending.id, pending.epoch, data, checksum_in(data), contents))
            )
        except NotPublished as error:
            self._not_published(pending.id, error)
            return
        self._forget(pending.id)
        self.snapshot = metadata
        self._kept = uploading.cut.versions
        self._note_stored(ref, metadata)
        dropped = [old.id for old in before if old not in self._tenure.entry.retained]
        log.info(
            "checkpoint %d complete: epoch %s, %d bytes of %d, %d ms", ref.id, ref.epoch, metadata.delta_size_bytes,
            metadata.full_size_bytes, metadata.completed_ms - metadata.triggered_ms,
            extra={"job": metadata.job, "checkpoint": ref.id, "epoch": str(ref.epoch)},
        )  # fmt: skip
        # Only now may anything of it be seen.
        actions = self._coordinator.published(pending.id, ref, dropped, _now_ms())
        try:
            self._perform(self._tenure.release(ref))
        except StorageError as error:
            log.warning(
                "that checkpoint %d is committed could not be noted; the next one says it again: %s", ref.id, error
            )
        self._act(actions)
        self._clean()
        self._act(self._coordinator.cleaned(len(dropped), _now_ms()))

    def _not_published(self, checkpoint_id: int, error: Exception) -> None:
        log.warning("checkpoint %d could not be published: %s", checkpoint_id, error)
        self._forget(checkpoint_id)
        self._act(self._coordinator.publish_failed(checkpoint_id, _now_ms(), str(error)))

    def _metadata(self, pending: PendingCheckpoint, uploading: _Uploading) -> CheckpointMetadata:
        shape, cut = self._shape, uploading.cut
        positions, query = store_notes(
            self._storage, self._layout, pending.id, cut.epoch, shape.sources, uploading.sources,
            "{}" if cut.positions is None else cut.positions.batch,
        )  # fmt: skip
        from importlib.metadata import version

        return CheckpointMetadata(
            job=shape.job,
            lineage=self._tenure.entry.lineage,
            checkpoint_id=pending.id,
            term=self._tenure.term,
            epoch=pending.epoch,
            kind=SnapshotKind.CHECKPOINT,
            triggered_ms=pending.triggered_ms,
            completed_ms=_now_ms(),
            tidegate_version=version("tidegate"),
            spark_version=shape.spark_version,
            max_parallelism=shape.max_parallelism,
            parallelism=shape.parallelism,
            clock_ms=cut.clocks.clock_ms,
            watermark_ms=None if cut.clocks.watermark_ms == MIN_WATERMARK else cut.clocks.watermark_ms,
            splits=tuple(SplitTime(uid, "", ms) for uid, ms in cut.clocks.greatest.items()),
            operators=shape.operators,
            state_numbers=tuple(StateNumber(uid, name, id) for (uid, name), id in shape.state_ids.items()),
            tasks=tuple(pending.states.values()),
            positions=positions,
            query=query,
            committables=self._tenure.ledger.carried_by(pending.epoch),
        )

    def _note_stored(self, ref: CheckpointRef, metadata: CheckpointMetadata) -> None:
        self._stored = (ref, {state.task: digest_of(state.files) for state in metadata.tasks})

    def _clean(self) -> None:
        try:
            self._perform(self._tenure.clean(self._coordinator.in_flight()))
            if self._leavings:
                self._perform(self._tenure.sweep(self._coordinator.in_flight()))
                self._leavings = False
        except (StorageError, CleaningSkipped) as error:
            log.warning("files of dropped checkpoints are left for the next time: %s", error)
            self._leavings = True

    def _discard(self, paths: Sequence[str]) -> None:
        try:
            self._storage.delete(paths)
        except StorageError as error:
            log.warning("files of a failed checkpoint are left for the next sweep: %s", error)

    def _on_rewind(self) -> None:
        self._act(self._coordinator.abort_all(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND, _now_ms()))
        self._uploading = {}
        base = self._tenure.entry.base
        reached = None if base is None or base.epoch.term != self._tenure.term else base.epoch
        self._tenure.ledger.rewind(self._tenure.term, reached)
        if isinstance(self._failure, CheckpointsFailed):
            self._failure = None
            self._failed.clear()

    # -- storage and targets -----------------------------------------------------------------------------------------

    def _perform(self, steps: Steps[T]) -> T:
        return perform(steps, self._storage, self._commit)

    def _commit(self, committable: Committable) -> None:
        committer = self._committers.get(committable.sink)
        if committer is None:
            raise CommitFailed(f"The job has no sink {committable.sink!r} any more, and output waits for it.")
        request = CommitRequest(
            committable.lineage, committable.sink, committable.epoch, Slot(committable.partition), committable.payload
        )
        try:
            committer.commit([request])
        except Exception as error:
            log.warning("sink %s did not take epoch %s: %s", committable.sink, committable.epoch, error)
            raise CommitFailed(str(error)) from error


def _one(kept: Mapping[TaskId, VersionId], task: TaskId) -> set[VersionId]:
    return {kept[task]} if task in kept else set()


def _staged_by(committable: Committable) -> tuple[str, ...]:
    return committable.staged


def _sign() -> Signature:
    return Signature(new_nonce(), f"{socket.gethostname()} (process {os.getpid()})", _now_ms())


def _now_ms() -> int:
    return round(time.time() * 1000)
