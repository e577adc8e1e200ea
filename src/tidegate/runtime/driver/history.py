"""The job's history while a driver writes it: claims the job, follows its epochs, publishes checkpoints, releases output.

One thread does all of that, in order: epochs post what they did and go on. What it decides is decided by the pure parts
of `tidegate.checkpoint`; what it writes, by their numbered protocols. It never waits for the target of a sink: that is done
by the threads of `output_release`, which post their results. A last thread only shows that the driver lives.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import random
import socket
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import replace
from typing import TypeVar

from tidegate.checkpoint import operators, pins
from tidegate.checkpoint.assignment import RestoreError
from tidegate.checkpoint.claim import claim, claim_again, show_life
from tidegate.checkpoint.completed_store import CompletedCheckpointStore, Draft, NotPublished
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
from tidegate.checkpoint.entry import CheckpointRef, Entry, RunOutcome, Signature
from tidegate.checkpoint.failure import CheckpointFailureReason
from tidegate.checkpoint.layout import JobLayout, committed_record
from tidegate.checkpoint.log import ClaimLost, newest
from tidegate.checkpoint.metadata import (
    CheckpointMetadata,
    Committable,
    CommittedMark,
    FileList,
    SnapshotKind,
    SplitTime,
    StateNumber,
    TaskState,
    checksum_in,
    decode,
    encode,
)
from tidegate.checkpoint.metadata.errors import MetadataError
from tidegate.checkpoint.pending import PendingCheckpoint, UploadAck
from tidegate.checkpoint.release_plan import Bounds, Publication, ReleaseSchedule, WaitingOutput, summary
from tidegate.checkpoint.requests import Request, RequestKind
from tidegate.checkpoint.savepoint_target import check_target
from tidegate.checkpoint.start import Start
from tidegate.checkpoint.statistics import CheckpointStatistics, Restored
from tidegate.checkpoint.takeover import check_unclaimed, take_over
from tidegate.checkpoint.task_part import decode_part, digest_of
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.choices import JobEnd, Retention
from tidegate.config.errors import OptionError
from tidegate.connectors.outcome import CommitOutcome
from tidegate.connectors.sink import Committer, Settled
from tidegate.core.clock import SYSTEM_CLOCK, Clock, MonotonicMs
from tidegate.core.errors import EpochFailed, ProtocolViolation, TidegateError
from tidegate.core.faults import reach
from tidegate.core.ids import AttemptId, EpochId, Lineage, TaskId, Term, Uid
from tidegate.core.processes import has_died, this_process
from tidegate.core.times import MIN_WATERMARK
from tidegate.graph.event_times import of_split_name
from tidegate.runtime.driver.checkpoint_work import plan_checkpoint_work
from tidegate.runtime.driver.epoch_runner import EpochReport
from tidegate.runtime.driver.epoch_snapshot import EpochSnapshot, PendingUpload
from tidegate.runtime.driver.job_description import JobDescription
from tidegate.runtime.driver.output_release import OutputRelease, OutputStopped, Result, request_of
from tidegate.runtime.driver.restore_point import RestorePoint, root_of
from tidegate.runtime.exchange.assignment import CheckpointWork
from tidegate.runtime.exchange.messages import TaskPublished
from tidegate.runtime.sources.query_directory import read_sources
from tidegate.runtime.sources.source_notes import store_notes
from tidegate.savepoint.restore_compatibility import translated
from tidegate.savepoint.snapshot import CANONICAL, CANONICAL_BACKEND
from tidegate.state.key_groups import range_of_slot
from tidegate.state.version import VersionId
from tidegate.storage import (
    Nonce,
    ObjectMissing,
    OutcomeUnknown,
    Storage,
    StorageError,
    decode_segment,
    new_nonce,
)
from tidegate.storage.routed import is_absolute

log = logging.getLogger("tidegate")
T = TypeVar("T")

BEAT_MS = 2_000
"""How often a driver shows that it lives."""
PATIENCE_MS = 6_000
"""How long a start watches the heartbeat of a run that has not ended in order."""
_RECORD_AGAIN_MS = 1_000
"""When a COMMITTED record is tried again that storage did not take."""
_FAREWELL_S = 60.0
"""How long the end of a run waits for threads that are still at work."""
_LAST_OUTPUT_S = 10.0
"""How long the log waits for what sinks are publishing, before it says that the run has ended."""


class UnclaimedOutput(RestoreError):
    """A checkpoint carries output for a sink that the job does not have."""

    code = "UNCLAIMED_OUTPUT"

    def __init__(self, sinks: Sequence[Uid]) -> None:
        names = ", ".join(repr(str(uid)) for uid in sinks)
        super().__init__(
            f"Output waits for the sinks {names}, and the job has no sink of that uid. Start it once more with the sink, so "
            "that its output is committed; or let go of it with execution.state-recovery.ignore-unclaimed-state (-n)."
        )


class UnpublishedOutput(RestoreError):
    """A snapshot of another job carries output that nobody is known to have published."""

    code = "UNPUBLISHED_OUTPUT"

    def __init__(self, job: str, path: str, epochs: int, claim: bool = False) -> None:
        otherwise = "start without --strict (execution.output.refuse-unpublished)."
        if claim:
            otherwise = "start with claim mode NO_CLAIM: a job that has it with claim mode CLAIM deletes it."
        super().__init__(
            f"The snapshot at {path} carries output of {epochs} epoch{'' if epochs == 1 else 's'} that may not be published. "
            f"It belongs to the job {job!r}: only a start of that job publishes it, and this job never will. Start that job "
            "once, stop it with a savepoint and start from that one; or, if the output is known to be there or is not "
            f"wanted, {otherwise}"
        )


class OutputNotPublished(TidegateError):
    """A job came to its end, and its targets did not take all its output in time. The rows are kept."""

    code = "OUTPUT_NOT_PUBLISHED"

    def __init__(self, place: str, waiting: Sequence[WaitingOutput], why: str, stopped: bool = True) -> None:
        """`stopped`: somebody stopped the job; otherwise there was nothing more to read, and it may be restarted."""
        self.path, self.waiting = place, tuple(waiting)
        listed = "; ".join(str(each) for each in waiting) or "nothing is known to wait"
        end = "has stopped" if stopped else "has read all there was, and ends"
        super().__init__(
            f"The job {end} with {place}, but not all its output is published: {why} Still waiting: {listed}. The rows are "
            "kept. Start the job again under the same name, when its targets answer, and it publishes them."
        )

    @classmethod
    def in_time(
        cls, place: str, waiting: Sequence[WaitingOutput], seconds: float, stopped: bool = True
    ) -> OutputNotPublished:
        """Time is up. If nothing waits, the targets are not to blame: storage did not take the note of it."""
        within = f"within {seconds:.3g} s (execution.output.stop-timeout, --stop-within)."
        if waiting:
            return cls(place, waiting, f"a sink did not take its output {within}", stopped)
        return cls(place, waiting, f"the sinks took it, and storage did not take the record of that {within}", stopped)


class CheckpointsFailed(EpochFailed):
    """More checkpoints failed than are tolerated."""

    code = "CHECKPOINTS_FAILED"


class History:
    def __init__(
        self, storage: Storage, layout: JobLayout, config: CheckpointConfig,
        committers: Mapping[Uid, Committer], uids: Mapping[str, str] | None = None, clock: Clock = SYSTEM_CLOCK,
        output: OutputRelease | None = None,
    ) -> None:  # fmt: skip
        """`output`: the threads of the sinks, if this history continues another one and shares the committers with it."""
        self._storage, self._layout, self._config, self._uids = storage, layout, config, uids or {}
        self._committers, self._clock, self._now = committers, clock, clock.now
        self._inbox: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._waiting: dict[str, Future[CheckpointRef]] = {}
        self._patient: set[str] = set()
        """Those of them that wait for output, too."""
        self._uploads: dict[int, PendingUpload] = {}
        """Copied on change."""
        self._kept: Mapping[TaskId, VersionId] = {}
        """Versions of the newest checkpoint: whoever goes back to it finds them on local disk."""
        self._stored: tuple[CheckpointRef | None, Mapping[TaskId, bytes]] = (None, {})
        self._latest: EpochSnapshot | None = None
        self._snapshots: deque[EpochSnapshot] = deque()
        """Of epochs that this thread has not come to. A checkpoint may still be taken of any of them."""
        self._schedule = ReleaseSchedule()
        self._output = output or OutputRelease(committers, storage)
        self._awaiting: list[tuple[EpochId, Future[CheckpointRef] | Future[None], CheckpointRef | None]] = []
        """Answers that are given when all output up to an epoch is published."""
        self._asked: set[Future[None]] = set()
        """Answers that the thread of the history has not come to."""
        self._over: BaseException | None = None
        """Why nothing is answered any more."""
        self._for_tasks: tuple[Publication, ...] = ()
        """What tasks are asked to publish. Replaced as a whole: the thread that runs epochs reads it."""
        self._settled: dict[Uid, EpochId] = {}
        """Up to where this driver knows all output of a sink to be published."""
        self.waiting_output: tuple[WaitingOutput, ...] = ()
        """What completed checkpoints carry and is not known to be published. Replaced as a whole: any thread may read it."""
        self._foreign_pin: tuple[JobLayout, str] | None = None
        self._pin_is_new = False
        """Whether this start placed it, and so takes it away if it comes to nothing."""
        self._wake_ms: MonotonicMs | None = None
        self._failure: BaseException | None = None
        self._failed = threading.Event()
        self._ended = threading.Event()
        self._leavings = True
        """Whether failed checkpoints or former owners may have left files."""
        self._unsettled: set[Nonce] = set()
        """Of the entries that this driver tried to write last, and may not know the fate of."""
        self.statistics = CheckpointStatistics()

    # -- beginning ---------------------------------------------------------------------------------------------------

    def open(self, start: Start, force: bool = False) -> RestorePoint:
        """Claim the job and take over what its log says. Raises `StartRefused`, and nothing was changed."""
        lineage = lambda: Lineage(uuid.uuid4().hex)  # noqa: E731
        try:
            steps = claim(
                self._layout, start, self._sign, lineage, PATIENCE_MS, force, this_process(), has_died
            )  # fmt: skip
            entry = self._perform(steps)
        except OutcomeUnknown:
            raise  # The claim may be in the log, and its base must stay.
        except BaseException:
            if self._foreign_pin is not None and self._pin_is_new:
                self._unpin(*self._foreign_pin)
            raise
        return self._take(entry)

    def claim_again(self) -> History:
        """After `broken`: a history that continues this one under a new term. Raises `ClaimLost` when another driver has the job.

        When it fails it may be called again.
        """
        self._stop_thread()
        if self._thread.is_alive():
            raise EpochFailed("The thread that writes the history of the job still waits for storage.")
        self._coordinator.abort_all(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN, self._now())
        self._refuse_answers(EpochFailed("The checkpoint failed: the job was claimed again after a failure."))
        after = History(
            storage=self._storage,
            layout=self._layout,
            config=self._config,
            committers=self._committers,
            uids=self._uids,
            clock=self._clock,
            output=self._output,
        )
        after.statistics = self.statistics
        signed = lambda: self._sign(forget=False)  # noqa: E731
        entry = self._perform(claim_again(self._layout, self._store.entry, self._unsettled, signed))
        after._take(entry)
        return after

    def _take(self, entry: Entry) -> RestorePoint:
        self._store = CompletedCheckpointStore(
            layout=self._layout,
            claimed=entry,
            read=reader(_staged_by),
            sign=self._sign,
            num_retained=self._config.num_retained,
        )
        self._beating = threading.Thread(target=self._beat, name="tidegate-heartbeat", daemon=True)
        self._beating.start()
        try:
            data = self._perform(self._store.recover())
        except BaseException:
            self._ended.set()
            raise
        for ref in self._store.unreadable:
            log.warning("checkpoint %d at %s cannot be read; it is left out", ref.id, ref.metadata)
        self.snapshot = None if data is None else translated(decode(data), self._uids)
        base = entry.base
        if base is not None and self.snapshot is not None and _is_foreign(base, self.snapshot):
            self._hold_again(base)
        return self.standing()

    def peek(self, source: CheckpointRef | None) -> CheckpointMetadata | None:
        """The snapshot that a start would begin from, in the job's uids, as far as it can be read without owning the job."""
        found = self._perform(newest(self._layout))
        ref = source if source is not None else None if found is None else found.base
        if ref is None:
            return None
        try:
            return translated(decode(self._storage.get(ref.metadata)), self._uids)
        except (StorageError, MetadataError):
            return None  # Whoever claims the job says more about it.

    def take(self, source: CheckpointRef, snapshot: CheckpointMetadata, claim: bool) -> CheckpointRef:
        """See to it that the snapshot to start from stays as long as it is needed. Raises `CannotClaim`.

        With `claim` the job takes it over. Otherwise it stays its owner's: a savepoint is the user's, and another job's
        checkpoint is held until this job has one of its own.
        """
        job, directory = self._layout.job, self._storage.url
        if claim:
            return self._perform(take_over(source, snapshot, job, directory, new_nonce()))
        self._perform(check_unclaimed(source, job, directory))
        if _is_foreign(source, snapshot):
            self.hold(source)
        return source

    def check_origin(
        self, source: CheckpointRef, snapshot: CheckpointMetadata, fresh: bool, claim: bool = False
    ) -> None:
        """Warn when the job begins another line of history from a snapshot whose output may not be published: it stays the
        output of the job that took the snapshot. Raises `UnpublishedOutput` if that is to be refused, and always with `claim`:
        this job would delete the only snapshot from which the other one can publish it."""
        if not snapshot.committables:
            return
        found = self._perform(newest(self._layout))
        if found is not None and found.lineage == snapshot.lineage:
            newest_one = found.base is not None and found.base.metadata == source.metadata
            if newest_one or not fresh:
                return  # The job's own: it publishes what the snapshot carries.
        if self._storage_has(committed_name(source, JobLayout(snapshot.job), snapshot)):
            return
        epochs = len({committable.epoch for committable in snapshot.committables})
        unpublished = UnpublishedOutput(snapshot.job, source.metadata, epochs, claim)
        if self._config.refuse_unpublished or claim:
            raise unpublished
        log.warning("%s", unpublished)

    def _storage_has(self, name: str) -> bool:
        try:
            self._storage.get(name)
        except ObjectMissing:
            return False
        return True

    def hold(self, source: CheckpointRef) -> None:
        """Keep another job's checkpoint from being cleaned up until this job has one of its own."""
        other = JobLayout(decode_segment(source.metadata.split("/", 1)[0]))
        pin = pins.fork_pin(self._layout.job, source)
        held, why = replace(source, owned=True), f"the job {self._layout.job!r} begins from it"
        self._pin_is_new = self._perform(pins.place_once(other, pin, held, why))
        self._foreign_pin = (other, pin)

    def _hold_again(self, base: CheckpointRef) -> None:
        """The claim is won, so the pin is needed until the first checkpoint. It is there, unless another start of this job came
        to nothing and took it away."""
        other = JobLayout(decode_segment(base.metadata.split("/", 1)[0]))
        self._foreign_pin = (other, pins.fork_pin(self._layout.job, base))
        try:
            self._storage.size(other.pin(self._foreign_pin[1]))
        except ObjectMissing:
            try:
                self.hold(base)
            except pins.PinTooLate as error:
                log.warning("the checkpoint that the job begins from is not held, and may be deleted: %s", error)

    def check_output(self, allow: bool) -> None:
        """Refuse to start when output waits for a sink that the job does not have; with `allow`, let go of it."""
        lost = sorted({c.sink for c in self._store.ledger.waiting() if c.sink not in self._committers})
        if lost and not allow:
            raise UnclaimedOutput(lost)
        for sink in lost:
            log.warning("output that waited for the sink %r is dropped: the job has no such sink", sink)
            self._store.ledger.forget(sink)
        self.waiting_output = summary(self._store.due(), self._schedule)

    def follow(self, job: JobDescription) -> None:
        """The job is known to fit: begin to take checkpoints."""
        config = self._config
        self._job = job
        entry = self._store.entry
        cadence = Cadence(
            interval_ms=config.interval_ms,
            timeout_ms=config.timeout_ms,
            min_pause_ms=config.min_pause_ms,
            max_concurrent=config.max_concurrent,
            tolerable_failures=config.tolerable_failures,
        )
        self._coordinator = Coordinator(cadence, job.tasks, entry.last_id, entry.base)
        self._coordinator.statistics = self.statistics
        if self.snapshot is not None and entry.base is not None:
            now = self._now()
            self._note_stored(entry.base, self.snapshot)
            self.statistics.restored(
                Restored(entry.base.id, now.wall_ms, not entry.base.owned, f"{self._storage.url}/{entry.base.metadata}")
            )
        self.waiting_output = summary(self._store.due(), self._schedule)
        interval = config.interval_ms or 0
        first_ms = round(random.uniform(config.min_pause_ms, max(interval, config.min_pause_ms)))
        self._post(lambda: self._act(self._coordinator.start(self._now(), first_ms)))
        self._post(self._release)
        self._thread = threading.Thread(target=self._loop, name="tidegate-history", daemon=True)
        self._thread.start()

    def standing(self) -> RestorePoint:
        """What a run, or an attempt of one, goes back to."""
        entry = self._store.entry
        base = entry.base
        root = self._layout.root if base is None else root_of(base.metadata, self.snapshot)
        stored = (base.term, base.id) if base is not None and base.owned else None
        return RestorePoint(
            lineage=entry.lineage,
            term=entry.term,
            snapshot=self.snapshot,
            root=root,
            stored=stored,
            storage=self._storage,
        )

    # -- called by the thread that runs epochs -----------------------------------------------------------------------

    def check(self) -> None:
        """Raise what made it impossible to go on, if anything did."""
        if self._failure is not None:
            raise self._failure

    @property
    def failed(self) -> threading.Event:
        return self._failed

    def checkpoint_work(self, empty: bool) -> dict[int, CheckpointWork]:
        """What the tasks of the next epoch do for checkpoints, by level."""
        # The history's thread moves a snapshot from the first to the second: read in this order, none is missed.
        snapshots = list(self._snapshots)
        snapshots += [] if self._latest is None else [self._latest]
        uploads = tuple(self._uploads.values())
        config = self._config
        return plan_checkpoint_work(
            self._job, self._store.term, uploads, snapshots, self._kept, self._stored,
            config.inline_threshold_bytes, empty, self._for_tasks,
        )  # fmt: skip

    def has_pending_uploads(self) -> bool:
        """Whether uploads, or output that tasks publish, wait for an epoch."""
        return bool(self._for_tasks) or any(each.missing for each in self._uploads.values())

    @property
    def broken(self) -> BaseException | None:
        """What ended the thread that writes the history, if anything did. Then the job must be claimed again."""
        return None if isinstance(self._failure, CheckpointsFailed) else self._failure

    def epoch_finished(self, report: EpochReport, snapshot: EpochSnapshot, moved: bool, output: bool = True) -> None:
        """An epoch was accepted. Returns at once. `output`: what its sinks prepared waits for a checkpoint."""
        self._snapshots.append(snapshot)
        self._post(lambda: self._on_epoch(report, snapshot, moved, output))

    def request(self, published: bool = True, full: bool | None = None) -> Future[CheckpointRef]:
        """Take a checkpoint of the last epoch now, whatever the interval says; with `full`, one that shares no file with
        earlier ones, with `full=False` an incremental one, else as configured.

        The answer comes when its output is published; with `published=False`, when it is complete.
        """
        token = uuid.uuid4().hex
        if published:
            self._patient.add(token)
        answer = self._waiting[token] = Future()
        wish = Request(kind=RequestKind.MANUAL, at_ms=self._now().monotonic_ms, token=token, forced=True, full=full)
        self._ask(lambda: self._act(self._coordinator.request(wish, self._now())))
        return answer

    def check_target(self, target: str | None) -> None:
        """Raise `BadSavepointTarget` if no savepoint can be written below `target`, `OptionError` if none is known."""
        check_target(self._storage, self._savepoints_below(target))

    def _savepoints_below(self, target: str | None) -> str:
        below = target or self._config.savepoint_dir
        if below is None:
            raise OptionError(
                ("No place for the savepoint: give a target, or set execution.checkpointing.savepoint-dir.",)
            )
        return below if is_absolute(below) else os.path.abspath(below)

    def savepoint_folder(self, target: str | None) -> str:
        """A new folder below `target`, or below the job's own place for savepoints. Raises `OptionError` without both."""
        place = self._savepoints_below(target)
        return f"{place.rstrip('/')}/savepoint-{self._store.entry.lineage[:6]}-{uuid.uuid4().hex[:12]}"

    def savepoint(self, target: str | None, terminal: bool, format: str = CANONICAL) -> Future[str]:
        """Take a savepoint of the last epoch. The answer is the path of its folder."""
        folder = self.savepoint_folder(target)
        token = uuid.uuid4().hex
        done: Future[CheckpointRef] = Future()
        answer: Future[str] = Future()
        done.add_done_callback(lambda found: _pass_on(found, answer, folder))
        self._waiting[token] = done
        kind = RequestKind.TERMINAL_SAVEPOINT if terminal else RequestKind.SAVEPOINT
        wish = Request(kind=kind, at_ms=self._now().monotonic_ms, token=token, target=folder, format=format)
        self._ask(lambda: self._act(self._coordinator.request(wish, self._now())))
        return answer

    def published(self) -> Future[None]:
        """Done when all output that may be seen by now is published, and that is noted durably."""
        answer: Future[None] = Future()
        self._asked.add(answer)

        def wait() -> None:
            self._schedule.hurry()
            self._awaiting.append((self._newest_due(), answer, None))
            self._asked.discard(answer)
            self._release()
            self._note_published()

        self._ask(wait)
        return answer

    def held_by(self) -> WaitingOutput | None:
        """The sink for which too much output waits, if there is one: no further batch is to be read until it has caught up."""
        bounds = Bounds(self._config.max_waiting_epochs, self._config.max_waiting_bytes)
        return next((each for each in self.waiting_output if bounds.exceeded_by(each)), None)

    def begin_at(self, snapshot: EpochSnapshot) -> None:
        """The run stands at a checkpoint, or at the very beginning; no epoch has moved it yet."""

        def note() -> None:
            self._latest = snapshot
            self._act(self._coordinator.epoch_finished(snapshot.epoch, False, self._now()))

        self._post(note)

    def rewind(self) -> None:
        """Forget the epochs after the newest checkpoint. Waits until a publication under way has come to its end."""
        self._call(self._on_rewind)

    def finish(self, end: JobEnd) -> None:
        """End the run in order, and say so in the log."""
        # A run that came to the end of what there was goes on with the next start, whatever retention says of other ends.
        keep = end is JobEnd.SUSPENDED or Retention(self._config.retention).keeps(end)

        def last() -> None:
            self._act(self._coordinator.close(self._now()))
            self._perform(self._store.finish(RunOutcome(end), keep))
            self._clean()

        try:
            # What sinks are at is taken into account: a checkpoint whose output is published need not be kept for it.
            self._output.stop(_LAST_OUTPUT_S)
            self._call(last)
        finally:
            self.leave()

    def is_owner(self) -> bool:
        """Whether no other driver has claimed the job, as far as its log tells now."""
        try:
            self._perform(show_life(self._layout, self._store.entry, 0, this_process()))
        except Exception:
            return False
        return self._failure is None

    def is_own_thread(self) -> bool:
        """Whether the caller runs on a thread of the history's own, or of a sink: in a callback of the user's, say."""
        return threading.current_thread() is getattr(self, "_thread", None) or self._output.is_own_thread()

    def leave(self) -> None:
        """Stop without a word in the log, as a crash would."""
        self._stop_thread()
        self._output.stop(_FAREWELL_S)
        thread = getattr(self, "_thread", None)
        if thread is not None and not thread.is_alive():
            self._record_last_results()
        self._answer_no_more(EpochFailed("The run of the job has ended."))

    def _stop_thread(self) -> None:
        self._ended.set()
        self._inbox.put(None)
        thread = getattr(self, "_thread", None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(_FAREWELL_S)

    # -- the thread of the history -----------------------------------------------------------------------------------

    def _post(self, work: Callable[[], None]) -> None:
        self._inbox.put(work)

    def _ask(self, work: Callable[[], None]) -> None:
        """The same, for what somebody waits for: if the thread has ended, nobody waits for ever."""
        self._post(work)
        if self._over is not None:
            self._refuse_answers(self._over)

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
                self._process_next()
        except BaseException as error:
            self._fail(error)

    def _process_next(self) -> None:
        timeout = None if self._wake_ms is None else max(0.0, (self._wake_ms - self._now().monotonic_ms) / 1000)
        try:
            work = self._inbox.get(timeout=timeout)
        except queue.Empty:
            self._wake_ms = None
            self._note_published()
            self._release()
            self._act(self._coordinator.tick(self._now()))
            return
        if work is not None:
            work()

    def _fail(self, error: BaseException) -> None:
        if not self._ended.is_set():
            log.error("the history of the job cannot go on: %s", error)
        self._failure = error
        self._failed.set()
        self._answer_no_more(error)

    def _answer_no_more(self, error: BaseException) -> None:
        self._over = self._over or error
        self._refuse_answers(error)

    def _refuse_answers(self, error: BaseException) -> None:
        """Nobody is to wait for what will not be. May be called by any thread."""
        for answer in (*self._waiting.values(), *self._asked, *(answer for _, answer, _ in self._awaiting)):
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(error)

    def _beat(self) -> None:
        beat = 0
        while not self._ended.wait(BEAT_MS / 1000):
            beat += 1
            try:
                self._perform(show_life(self._layout, self._store.entry, beat, this_process()))
            except StorageError as error:
                log.warning("the heartbeat of the job could not be written: %s", error)
            except Exception as error:
                self._fail(error)
                return

    def _on_epoch(self, report: EpochReport, snapshot: EpochSnapshot, moved: bool, output: bool) -> None:
        now = self._now()
        self._latest = snapshot
        self._snapshots.popleft()
        if not output:
            # Committed with its epoch, and carried by no checkpoint: nobody needs the rows any more.
            self._discard([path for request in report.committables for path in request.staged])
        else:
            self._store.ledger.accept(
                Committable(
                    lineage=c.lineage,
                    sink=c.sink,
                    partition=c.slot,
                    epoch=c.epoch,
                    payload=c.payload,
                    staged=c.staged,
                    size_bytes=c.size_bytes,
                )
                for c in report.committables
            )
        self._on_published_by_tasks(report.published)
        self._act(self._coordinator.epoch_finished(snapshot.epoch, moved, now))
        for task, item in report.uploads:
            if item.part is not None:
                self._acknowledge(item.checkpoint_id, task, item.part)
            elif item.error is not None:
                reason = CheckpointFailureReason.CHECKPOINT_ASYNC_EXCEPTION
                self._act(self._coordinator.decline(item.checkpoint_id, reason, now, f"{task}: {item.error}"))

    def _acknowledge(self, checkpoint_id: int, task: TaskId, part: bytes) -> None:
        upload = self._uploads.get(checkpoint_id)
        if upload is None or task not in upload.missing:
            return
        state, new = decode_part(part)
        if state.version != upload.snapshot.versions[task]:
            return
        self._replace(upload, upload.missing - {task})
        size, delta = state.size_bytes, state.delta_bytes(checkpoint_id)
        self._act(
            self._coordinator.acknowledge(
                UploadAck(
                    checkpoint_id=checkpoint_id,
                    task=task,
                    state=state,
                    new_files=new,
                    state_size_bytes=size,
                    checkpointed_size_bytes=delta,
                ),
                self._now(),
            )
        )

    def _replace(self, each: PendingUpload, missing: frozenset[TaskId]) -> None:
        changed = replace(each, missing=missing)
        self._uploads = {**self._uploads, each.id: changed}

    def _forget(self, checkpoint_id: int | None) -> None:
        self._uploads = {id: each for id, each in self._uploads.items() if id != checkpoint_id}

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case StartUpload():
                    self._start_upload(action)
                case Publish(pending):
                    self._publish(pending)
                case NotifyComplete(ref, request):
                    if request.token in self._patient:
                        self._patient.discard(request.token)
                        self._awaiting.append((ref.epoch, self._waiting.pop(request.token), ref))
                        self._note_published()
                    else:
                        self._answer(request.token, ref)
                case NotifyAborted(id, request, reason, message):
                    why = f"{reason.message}: {message}" if message else f"{reason.message}."
                    self._forget(id)
                    self._leavings = True
                    if reason is not CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN:
                        log.warning("checkpoint %s failed: %s", "" if id is None else id, why)
                    self._patient.discard(request.token)
                    self._answer(request.token, EpochFailed(f"The checkpoint failed: {why}"))
                case DiscardFiles(paths):
                    self._discard(paths)
                case FailJob(message):
                    if self._failure is None:
                        self._failure = CheckpointsFailed(message)
                    self._failed.set()
                case WakeAt(at_ms):
                    self._wake_at(at_ms)

    def _wake_at(self, at_ms: MonotonicMs | None) -> None:
        if at_ms is not None:
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
        snapshot, job = self._latest, self._job
        assert snapshot is not None
        assert snapshot.epoch == action.epoch
        full = not self._config.incremental if action.request.full is None else action.request.full
        base = self._store.entry.base if action.base is not None and not full else None
        try:
            sources = read_sources(snapshot.directory, snapshot.positions, len(job.sources))
        except (OSError, ProtocolViolation) as error:
            reason = CheckpointFailureReason.IO_EXCEPTION
            self._act(self._coordinator.decline(action.id, reason, self._now(), f"positions of the sources: {error}"))
            return
        missing = frozenset(task for task in job.tasks if task in snapshot.versions)
        tables = None
        if action.request.format == CANONICAL:
            tables = operators.with_undeclared_states(job.operators, self.snapshot)
        upload = PendingUpload(
            id=action.id,
            snapshot=snapshot,
            base=base,
            missing=missing,
            sources=sources,
            folder=action.request.target,
            tables=tables,
        )
        self._uploads = {**self._uploads, action.id: upload}
        # Whoever has no state has nothing to upload.
        for task in job.tasks:
            if task not in missing:
                groups = range_of_slot(task.slot, job.parallelism, job.max_parallelism)
                backend = job.backend if tables is None else CANONICAL_BACKEND
                empty = TaskState(
                    task=task,
                    key_groups=groups,
                    backend=backend,
                    version=VersionId(snapshot.epoch, AttemptId(0)),
                    files=FileList(),
                )
                self._act(
                    self._coordinator.acknowledge(
                        UploadAck(checkpoint_id=action.id, task=task, state=empty), self._now()
                    )
                )

    def _publish(self, pending: PendingCheckpoint) -> None:
        """Publish, begin to release, tell, clean: in this order, each a protocol of its own."""
        upload = self._uploads[pending.id]
        if upload.folder is not None:
            self._publish_savepoint(pending, upload, upload.folder)
            return
        before = self._store.entry.retained
        settled = dict(self._settled)
        try:
            metadata = self._metadata(pending, upload)
        except StorageError as error:
            self._not_published(pending.id, error)
            return
        data = encode(metadata)
        contents = contents_of(self._layout.metadata(pending.id), metadata, _staged_by)
        try:
            ref = self._perform(
                self._store.publish(
                    Draft(
                        id=pending.id, epoch=pending.epoch, metadata=data, checksum=checksum_in(data), contents=contents
                    )
                )
            )
        except NotPublished as error:
            self._not_published(pending.id, error)
            return
        self._note_stored(ref, metadata)
        self._forget(pending.id)
        self.snapshot = metadata
        dropped = [old.id for old in before if old not in self._store.entry.retained]
        log.info(
            "checkpoint %d complete: epoch %s, %d bytes of %d, %d ms", ref.id, ref.epoch, metadata.delta_size_bytes,
            metadata.full_size_bytes, metadata.completed_ms - metadata.triggered_ms,
            extra={"job": metadata.job, "checkpoint": ref.id, "epoch": str(ref.epoch)},
        )  # fmt: skip
        # Only now may anything of it be seen.
        actions = self._coordinator.published(pending.id, ref, dropped, self._now())
        self._release()
        self._act(actions)
        if self._foreign_pin is not None:
            # From here on this job stands on its own.
            self._unpin(*self._foreign_pin)
        self._clean()
        self._sweep_targets(settled)
        self._act(self._coordinator.cleaned(len(dropped), self._now()))

    def _release(self) -> None:
        """Let output of completed checkpoints be published: of each sink that is not at work or waiting after a failure."""
        due, now, in_tasks = self._store.due(), self._now(), self._job.task_sinks
        for publication in self._schedule.begin(due, now, in_tasks):
            self._output.publish(publication, self._on_result)
        stable = {uid: sink.stable for uid, sink in in_tasks.items()}
        self._for_tasks = tuple(self._schedule.for_tasks(due, now, stable))
        self.waiting_output = summary(due, self._schedule)
        self._wake_at(self._schedule.wake_ms(now))

    def _on_result(self, result: Result) -> None:
        """Called by the thread of a sink."""
        self._results.put(result)
        self._post(lambda: self._on_published(self._results.get_nowait()))

    def _record_last_results(self) -> None:
        """Note what sinks have published while the thread of the history came to its end."""
        taken: list[Publication] = []
        with contextlib.suppress(queue.Empty):
            while True:
                result = self._results.get_nowait()
                if result.error is None:
                    taken.append(result.publication)
        if not taken or isinstance(self._failure, ClaimLost):
            return
        for publication in taken:
            self._store.published(publication)
        try:
            self._perform(self._store.record())
        except StorageError as error:
            log.warning("that output is published could not be noted; it is offered again: %s", error)

    def _on_published(self, result: Result) -> None:
        publication, error = result.publication, result.error
        for outcome in result.outcomes:
            self.statistics.commits[outcome.name] += 1
        if error is None:
            self._schedule.succeeded(publication.sink, self._now())
            self._store.published(publication)
            self._note_published()
        elif result.taken:
            self._store.published(Publication(publication.sink, result.taken))
        if isinstance(error, CommitFailed):
            self._offer_again(publication.sink, publication.last, str(error))
        elif isinstance(error, OutputStopped):
            self._stop_output(error)
        elif error is not None:
            raise error
        self._release()

    def _on_published_by_tasks(self, published: Sequence[TaskPublished]) -> None:
        for each in published:
            sink = Uid(each.sink)
            marks, taken = (
                [CommittedMark(Lineage(m.lineage), sink, m.slot, EpochId(Term(m.term), m.number)) for m in some]
                for some in (each.marks, each.taken)
            )
            self._store.ledger.confirm(taken)
            epoch = max(mark.epoch for mark in marks)
            self.statistics.commits.update(each.outcomes)
            outcome = CommitOutcome[each.outcome]
            if each.error is None:
                self._schedule.succeeded(sink, self._now())
                self._store.ledger.confirm(marks)
            elif outcome.stops_the_job:
                self._stop_output(
                    OutputStopped(
                        sink=sink, which=f"up to epoch {epoch}", epoch=epoch, outcome=outcome, error=each.error
                    )
                )
            else:
                self._offer_again(sink, epoch, each.error)
        if published:
            self._note_published()
            self._release()

    def _offer_again(self, sink: Uid, epoch: EpochId, error: str) -> None:
        now = self._now()
        again_ms = self._schedule.failed(sink, error, now, random.random())
        log.warning(
            "sink %s did not take its output up to epoch %s; it is offered again in %.1f s: %s", sink, epoch,
            (again_ms - now.monotonic_ms) / 1000, error,
        )  # fmt: skip

    def _stop_output(self, error: OutputStopped) -> None:
        """The rows stay in the checkpoint that carries them, and no later ones of the sink may overtake them.

        A restart of the epochs does not help, so it takes the place of a failure that would be over with one.
        """
        log.error("%s", error)
        self._schedule.refused(error.sink, str(error))
        if self._failure is None or isinstance(self._failure, CheckpointsFailed):
            self._failure = error
        self._failed.set()
        self._note_published()

    def _note_published(self) -> None:
        """Record what is published, and tell those who wait for it."""
        try:
            self._perform(self._store.record())
        except StorageError as error:
            log.warning("that output is published could not be noted: %s", error)
            self._wake_at(self._now().plus(_RECORD_AGAIN_MS))
            return
        due = self._store.due()
        behind = {c.sink for c in due}
        newest = self._store.due_epoch
        if newest is not None:
            self._settled |= {uid: newest for uid in self._committers if uid not in behind}
        first = min((c.epoch for c in due), default=None)
        ready = [each for each in self._awaiting if first is None or first > each[0]]
        self._awaiting = [each for each in self._awaiting if each not in ready]
        for _, answer, ref in ready:
            with contextlib.suppress(InvalidStateError):
                answer.set_result(ref)  # type: ignore[arg-type]
        if isinstance(self._failure, OutputStopped):
            # Nobody offers the output again before the next start.
            for _, answer, _ in self._awaiting:
                with contextlib.suppress(InvalidStateError):
                    answer.set_exception(self._failure)
            self._awaiting.clear()

    def _newest_due(self) -> EpochId:
        """The last epoch whose output may be seen by now."""
        return max((c.epoch for c in self._store.due()), default=EpochId(Term(0), 0))

    def _unpin(self, layout: JobLayout, pin: str) -> None:
        try:
            self._perform(pins.remove(layout, pin))
            self._foreign_pin = None
        except StorageError as error:
            log.warning("the pin %s on the checkpoint this job began from could not be removed: %s", pin, error)

    def _publish_savepoint(self, pending: PendingCheckpoint, upload: PendingUpload, folder: str) -> None:
        """Make a savepoint with all its files real.

        1. Write `_metadata`, which makes it whole. A crash before leaves files that are no savepoint; one after it, for a
           savepoint that was to end the job, one that the job does not know: it goes on from its last checkpoint.
        2. One that ends the job enters the log. From here on the job resumes from it.
        3. Then its output is released, as after every checkpoint; a crash before leaves that to the next start. Whoever stops
           a job waits for it (`published`).
        """
        path = f"{folder}/_metadata"
        try:
            metadata = self._metadata(pending, upload)
            data = encode(metadata)
            self._storage.put(path, data)
        except StorageError as error:
            self._not_published(pending.id, error)
            return
        reach("savepoint.1-metadata", id=pending.id, term=self._store.term)
        self._forget(pending.id)
        entry = self._store.entry
        ref = CheckpointRef(
            id=pending.id,
            term=self._store.term,
            epoch=pending.epoch,
            lineage=entry.lineage,
            metadata=path,
            checksum=checksum_in(data),
            owned=False,
        )
        contents = contents_of(path, metadata, _staged_by)
        if pending.request.kind is RequestKind.TERMINAL_SAVEPOINT:
            self._perform(self._store.publish_terminal(ref, contents))
            self.snapshot = metadata
        else:
            self._store.follow_savepoint(ref, contents)
        log.info("savepoint %s complete", folder, extra={"job": metadata.job, "checkpoint": ref.id})
        actions = self._coordinator.published(pending.id, ref, (), self._now())
        self._release()
        self._act(actions)

    def _not_published(self, checkpoint_id: int, error: Exception) -> None:
        log.warning("checkpoint %d could not be published: %s", checkpoint_id, error)
        self._forget(checkpoint_id)
        self._act(self._coordinator.publish_failed(checkpoint_id, self._now(), str(error)))

    def _metadata(self, pending: PendingCheckpoint, upload: PendingUpload) -> CheckpointMetadata:
        job, snapshot = self._job, upload.snapshot
        root = upload.folder or self._layout.root
        beside = upload.folder or self._layout.exclusive(pending.id, "")[:-1]
        positions, query = store_notes(
            self._storage, root, beside, pending.id, snapshot.epoch, job.sources, upload.sources,
            "{}" if snapshot.positions is None else snapshot.positions.batch,
        )  # fmt: skip
        savepoint = upload.folder is not None
        described = operators.with_undeclared_states(job.operators, self.snapshot)
        if upload.tables is not None:
            described = tuple(replace(operator, backend=CANONICAL_BACKEND) for operator in upload.tables)
        from importlib.metadata import version

        return CheckpointMetadata(
            job=job.job,
            lineage=self._store.entry.lineage,
            checkpoint_id=pending.id,
            term=self._store.term,
            epoch=pending.epoch,
            kind=SnapshotKind.SAVEPOINT if savepoint else SnapshotKind.CHECKPOINT,
            savepoint_format=pending.request.format,
            triggered_ms=pending.triggered.wall_ms,
            completed_ms=pending.triggered.wall_ms + self._now().since(pending.triggered),
            tidegate_version=version("tidegate"),
            spark_version=job.spark_version,
            max_parallelism=job.max_parallelism,
            parallelism=job.parallelism,
            clock_ms=snapshot.clocks.clock_ms,
            watermark_ms=None if snapshot.clocks.watermark_ms == MIN_WATERMARK else snapshot.clocks.watermark_ms,
            splits=tuple(_split_time(name, ms) for name, ms in snapshot.clocks.greatest.items()),
            operators=described,
            state_numbers=tuple(StateNumber(uid, name, id) for (uid, name), id in job.state_ids.items()),
            tasks=tuple(pending.states.values()),
            positions=positions,
            query=query,
            committables=self._store.ledger.carried_by(pending.epoch),
        )

    def _note_stored(self, ref: CheckpointRef, metadata: CheckpointMetadata) -> None:
        self._stored = (ref, {state.task: digest_of(state.files) for state in metadata.tasks})
        self._kept = {state.task: state.version for state in metadata.tasks if state.size_bytes}

    def _clean(self) -> None:
        try:
            self._perform(self._store.clean(self._coordinator.in_flight()))
            if self._leavings:
                self._perform(self._store.sweep(self._coordinator.in_flight()))
                self._leavings = False
            if self._perform(self._store.dispose()):
                log.info("a savepoint that the job had claimed is deleted: newer checkpoints stand in its place")
        except Exception as error:
            # Whatever it is: the job is right without cleaning, and would fail here again after every restart.
            known = isinstance(error, TidegateError)
            log.warning("cleaning is skipped, files are kept until the next time: %s", error, exc_info=not known)
            self._leavings = True

    def _sweep_targets(self, settled: Mapping[Uid, EpochId]) -> None:
        """Let sinks remove what discarded attempts left in their targets. `settled` was known before the newest entry was
        won: whoever starts from that entry or a later one will not publish it again, unless a checkpoint carries it."""
        waiting = [request_of(committable) for committable in self._store.unsettled()] if settled else []
        lineage = self._store.entry.lineage
        for uid, epoch in settled.items():
            mine = tuple(r for r in waiting if r.sink == uid and r.lineage == lineage and r.epoch <= epoch)
            self._output.sweep(Settled(lineage, uid, epoch, mine))

    def _discard(self, paths: Sequence[str]) -> None:
        try:
            self._storage.delete(paths)
        except StorageError as error:
            log.warning("%d files that nobody needs are left for the next sweep: %s", len(paths), error)
            self._leavings = True

    def _on_rewind(self) -> None:
        self._act(self._coordinator.abort_all(CheckpointFailureReason.CHECKPOINT_COORDINATOR_SUSPEND, self._now()))
        self._uploads = {}
        self._leavings = True
        base = self._store.entry.base
        reached = None if base is None or base.epoch.term != self._store.term else base.epoch
        self._store.ledger.rewind(self._store.term, reached)
        if isinstance(self._failure, CheckpointsFailed):
            self._failure = None
            self._failed.clear()

    # -- storage -----------------------------------------------------------------------------------------------------

    def _sign(self, forget: bool = True) -> Signature:
        """For a new entry. `forget`: those signed before are known to be in the log, or not to be."""
        nonce = new_nonce()
        self._unsettled = {nonce} if forget else {*self._unsettled, nonce}
        return Signature(nonce, f"{socket.gethostname()} (process {os.getpid()})", self._now().wall_ms)

    def _perform(self, steps: Steps[T]) -> T:
        return perform(steps, self._storage)


def _pass_on(done: Future[CheckpointRef], answer: Future[str], folder: str) -> None:
    error = done.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(folder)


def _is_foreign(ref: CheckpointRef, snapshot: CheckpointMetadata) -> bool:
    """Whether it is a checkpoint of another job in the same storage."""
    return not ref.owned and snapshot.kind is SnapshotKind.CHECKPOINT and not is_absolute(ref.metadata)


def committed_name(ref: CheckpointRef, layout: JobLayout, snapshot: CheckpointMetadata) -> str:
    """Where the job of `layout` records that the output of its snapshot is published."""
    if snapshot.kind is SnapshotKind.SAVEPOINT:
        return layout.committed(ref.lineage, ref.term, ref.id)
    return committed_record(ref.metadata)


def _staged_by(committable: Committable) -> tuple[str, ...]:
    return committable.staged


def _split_time(name: str, ms: int) -> SplitTime:
    uid, split = of_split_name(name)
    return SplitTime(Uid(uid), split, ms)
