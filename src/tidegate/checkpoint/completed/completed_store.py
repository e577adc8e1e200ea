"""The completed checkpoints of a job, while one driver owns it: recovery, completion, output, end.

Methods that touch storage are protocols of numbered steps, run by `effects.perform`. One thread calls them one after the
other; only `Cleaner.clean` and `Cleaner.sweep` may run concurrently. No method waits for a target: the owner of the store
commits what is `due` (`committables.commit`) and reports what is committed (`output_committed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate.checkpoint.effects import Create, Get, Put, Steps
from tidegate.checkpoint.files.contents import CheckpointContents, Reader, UnreadOutput, verified
from tidegate.checkpoint.files.output_objects import INLINE_BYTES, ObjectPlace, OutputParts, divided
from tidegate.checkpoint.files.shared import SharedRegistry
from tidegate.checkpoint.files.task_part import ListChange
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, RunOutcome, Signature
from tidegate.checkpoint.job_log.log import ClaimLost, append, newest
from tidegate.checkpoint.layout import JobLayout, committed_record
from tidegate.checkpoint.metadata import CommittedMark
from tidegate.checkpoint.output import committables
from tidegate.checkpoint.output.committables import Carried, Ledger, channel, record_path
from tidegate.checkpoint.output.discarded_output import DiscardedOutput
from tidegate.checkpoint.output.release_plan import CommitBatch
from tidegate.checkpoint.output.sink_output import OutputUpTo
from tidegate.connectors.sink import Committable
from tidegate.core.errors import CheckpointError, RestoreError, StorageError, TidegateError
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Term
from tidegate.storage.port import Lost, Nonce, Won


class CheckpointUnreadable(RestoreError):
    """A checkpoint that the log names cannot be read, or is not the one that was completed."""

    code = "CHECKPOINT_UNREADABLE"

    def __init__(self, ref: CheckpointRef, why: str) -> None:
        self.ref = ref
        super().__init__(
            f"Checkpoint {ref.id} at {ref.metadata} {why}. Nothing was changed. Rolling back past it may duplicate output that "
            "was already committed: start from an older retained checkpoint or a savepoint with -s if you accept that."
        )


class RunEnded(CheckpointError):
    """The log says that this run has ended; only a new claim may follow."""

    code = "RUN_ENDED"

    def __init__(self, end: Entry) -> None:
        super().__init__(f"This run has ended as {end.outcome}. Start the job again; it resumes from where it ended.")


class CheckpointNotCompleted(TidegateError):
    """`_metadata` could not be written, so no entry was tried: the checkpoint does not exist, and the job may continue."""

    code = "NOT_PUBLISHED"
    retryable = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A checkpoint with all uploads acknowledged, ready to be completed.

    `metadata` contains `checksum` as its nonce.
    """

    id: int
    epoch: EpochId
    metadata: bytes
    checksum: str
    contents: CheckpointContents
    changes: Mapping[str, ListChange] = field(default_factory=dict)
    """By task: how the list of its files differs from that of the base."""
    objects: Mapping[str, bytes] = field(default_factory=dict)
    """Objects with output that the metadata refers to and that are not stored yet, by name."""


class CompletedCheckpointStore:
    """What the current owner knows about the job's completed checkpoints.

    Nothing in it is needed after a crash: the log and the retained metadata hold everything.
    """

    def __init__(
        self,
        layout: JobLayout,
        claimed: Entry,
        read: Reader,
        sign: Callable[[], Signature],
        num_retained: int = 1,
        inline_bytes: int = INLINE_BYTES,
    ) -> None:
        self.layout = layout
        self.read = read
        # A new signature for each entry: a nonce may be used for one body only.
        self._sign = sign
        self._num_retained = num_retained
        self.inline_bytes = inline_bytes
        self.entry = claimed
        """The newest entry that this owner has won."""
        self.ledger = Ledger()
        self.discarded = DiscardedOutput(layout, self.ledger)
        self.shared = SharedRegistry()
        self.unreadable: list[CheckpointRef] = []
        self.contents: dict[str, CheckpointContents] = {}
        """By name of the metadata: of retained and abandoned checkpoints, the base, and dropped ones until they are cleaned."""
        self._uncommitted: list[Carried] = []
        """Contents whose output the ledger may still carry although no retained checkpoint of this job names its rows."""
        self.disposed: set[str] = set()
        """Claimed savepoints that the cleaner has deleted. The next entry no longer lists them."""
        self.completed_epoch: EpochId | None = None
        """Of the newest checkpoint of this term."""
        self.due_epoch: EpochId | None = None
        """The last epoch of this term whose output may become visible."""
        self._recorded: set[str] = set()
        """Checkpoints recorded COMMITTED since the last checkpoint completed."""
        self._unrecorded: dict[str, tuple[CheckpointRef, Carried]] = {}
        """Completed checkpoints and savepoints whose output is not recorded COMMITTED yet."""

    @property
    def term(self) -> Term:
        return self.entry.term

    @property
    def uncommitted(self) -> list[CheckpointContents]:
        """Contents whose staged rows are still needed although no retained checkpoint of this job names them."""
        return [carried.contents for carried in self._uncommitted]

    def recover(self) -> Steps[bytes | None]:
        """Take over what the log says. Return the metadata of the base, or None if the job starts from the beginning.

        1. Read and verify the metadata of the base and of every other retained checkpoint. If one of the others is
           damaged, no job can start from it: it is listed in `unreadable` and holds no files. A damaged base is an
           error, or `ClaimLost` if a successor has cleaned up in the meantime.
        2. Learn which of them are COMMITTED.
        3. Take over the output that the base carries, and that of checkpoints that earlier claims abandoned: output of a
           completed checkpoint becomes visible, in the order of epochs, even after a rollback. It is `due` from now on; the
           next checkpoint carries what is not committed by then. A crash leaves all of that to the next start.
           Output that an older base carries, and a newer abandoned checkpoint no longer does, is already committed.
           Output that the user discarded in an earlier run is dropped again (`discarded_output`).
        """
        base = self.entry.base
        base_body: bytes | None = None
        # One snapshot may be retained, abandoned and the base at once; it is read once.
        for ref in dict.fromkeys((*self.entry.retained, *self.entry.owed, *(() if base is None else (base,)))):
            body: bytes | None = yield Get(ref.metadata)
            contents = yield from verified(self.read, ref, body)
            if contents is not None:
                self.contents[ref.metadata] = contents
                base_body = body if ref == base else base_body
                continue
            # A successor may have dropped and deleted this checkpoint while this driver was paused. That is no damage.
            yield from self._check_owner()
            if ref == base:
                raise CheckpointUnreadable(ref, "is missing" if body is None else "is not what its log entry says")
            # An older retained checkpoint is not needed to continue. Refusing to start would turn one damaged object
            # into an outage.
            self.unreadable.append(ref)
        reach("recover.1-read", term=self.term)
        for ref in self.entry.retained:
            if ref not in self.unreadable:
                yield from self._learn_committed(ref)
        reach("recover.2-learnt", term=self.term)
        taken_over = [ref for ref in self.entry.owed if ref not in self.unreadable]
        # The base of a fork carries output of its origin, which commits it itself.
        if base is not None and base.lineage == self.entry.lineage:
            taken_over.append(base)
        yield from self._take_over_output(taken_over)
        reach("recover.3-owed", term=self.term)
        return base_body

    def _check_owner(self) -> Steps[None]:
        now = yield from newest(self.layout, self.entry.slot)
        if now is not None and now.slot > self.entry.slot:
            raise ClaimLost(self.term, now)

    def _learn_committed(self, ref: CheckpointRef) -> Steps[None]:
        contents = self.contents[ref.metadata]

        # A checkpoint without output needs no record, and no request.
        record: bytes | None = (yield Get(record_path(self.layout, ref))) if contents.committables else None
        if record is None and self._is_carried_on(ref):
            self._unrecorded[ref.metadata] = ref, Carried(contents)
        # Rows that are recorded COMMITTED are not held any more, so clean-up may delete them while the checkpoint
        # stays.
        files = contents.files if record is not None else contents.files | contents.staged
        self.shared.register(ref.metadata, files, contents.lists_in(self.layout.root))

    def _is_carried_on(self, ref: CheckpointRef) -> bool:
        """Whether this owner takes over a newer checkpoint of its lineage: output that it lacks is already committed."""
        base = self.entry.base
        newer = [*self.entry.owed, *((base,) if base is not None and base.lineage == self.entry.lineage else ())]
        # A newer snapshot that cannot be read proves nothing about what it still carried.
        if any(each in self.unreadable for each in newer):
            return False
        return any(each.lineage == ref.lineage and ref.epoch <= each.epoch for each in newer)

    def _take_over_output(self, refs: Iterable[CheckpointRef]) -> Steps[None]:
        """Step 3 of `recover`, for the base and for checkpoints that earlier claims abandoned."""
        marks: list[CommittedMark] = []
        # The same: unless all abandoned snapshots can be read, no output counts as committed.
        all_are_readable = not any(ref in self.unreadable for ref in self.entry.owed)
        is_committed = _committed_before(self.entry.owed if all_are_readable else (), self.contents)
        for ref in refs:
            contents = self.contents[ref.metadata]
            self.ledger.accept(c for c in contents.committables if not is_committed(c))
            self._uncommitted.append(Carried(contents))
            record: bytes | None = yield Get(record_path(self.layout, ref))
            if record is None:
                self._unrecorded[ref.metadata] = ref, Carried(contents)
            else:
                marks += committables.read_record(record)
        # After all have been accepted: output of one checkpoint may be recorded beside another one.
        self.ledger.confirm(marks)
        yield from self.discarded.recover()

    def append_checkpoint(self, draft: Draft) -> Steps[CheckpointRef]:
        """Complete a checkpoint that all tasks have acknowledged.

        Raises `CheckpointNotCompleted` if it is certainly not in the log, and `ClaimLost` if another driver owns the job.
        After any other error the outcome is unknown, and the driver must stop.

        0. Store output that has waited since the last checkpoint, if it is much (`output_objects`). A crash before the entry
           leaves objects that nothing refers to, in the folder of a checkpoint that does not exist; they are swept like it.
        1. Write `_metadata`. A crash before the next step leaves an orphan, which is swept once a higher id completes.
           If a predecessor's orphan has the name, use the name that contains this owner's term.
        2. Win the next slot of the log. Before that, the checkpoint does not exist; after it, every restart begins from
           the checkpoint, and the oldest ones beyond the retained number are dropped.
        """
        # Clean-up takes everything under ids up to `last_id` for over, so none of them may enter the log any more.
        if draft.id <= self.entry.last_id:
            raise CheckpointNotCompleted(
                f"Checkpoint {draft.id} is too late: {self.entry.last_id} is already in the log."
            )
        # First: this checkpoint no longer carries what the user discarded, and whoever starts from an older one must
        # learn that.
        yield from self.discarded.record(self.term)
        yield from _write_objects(draft, self.term)
        path = yield from self._write_metadata(draft)
        reach("publish.1-metadata", id=draft.id, term=self.term)
        ref = CheckpointRef(
            id=draft.id,
            term=self.term,
            epoch=draft.epoch,
            lineage=self.entry.lineage,
            metadata=path,
            checksum=draft.checksum,
        )
        # From here on every error but `ClaimLost` leaves the outcome open: the entry may be in the log.
        before = self.entry
        yield from self._append(entries.checkpoint(before, self._sign(), ref, self._num_retained))
        # The entry is won. Everything below only updates memory, so nothing can fail between here and the return.
        self.contents[path] = draft.contents
        files, lists = draft.contents.files | draft.contents.staged, draft.contents.lists_in(self.layout.root)
        # Before the old ones are dropped: files that both have must never count as unreferenced in between.
        self.shared.register(path, files, lists, draft.changes)
        self.completed_epoch = self.due_epoch = draft.epoch
        self._unrecorded[path] = ref, Carried(draft.contents)
        self._drop(before.retained)
        reach("publish.2-entry", id=draft.id, term=self.term)
        return ref

    def _write_metadata(self, draft: Draft) -> Steps[str]:
        # Ids are used again after a crash, names are not: the plain name may hold a predecessor's orphan.
        for path in (self.layout.metadata(draft.id), self.layout.metadata(draft.id, self.term)):
            try:
                result: Won | Lost = yield Create(path, draft.metadata, Nonce(draft.checksum))
            except StorageError as error:
                raise CheckpointNotCompleted(f"Checkpoint {draft.id} could not write {path}: {error}") from error
            if isinstance(result, Won):
                return path
        raise entries.LogCorrupt(path, "was written by another writer under this driver's term")

    def append_terminal_savepoint(self, ref: CheckpointRef, contents: CheckpointContents) -> Steps[None]:
        """Append the savepoint that ends the job to the log, before any of its output is committed.

        1. Win the next slot. Before that, a restart begins from the last checkpoint; after it, from this savepoint.
        Then the output it carries is `due`; a crash before all of it is committed leaves the rest to the next start.
        """
        yield from self.discarded.record(self.term)
        yield from self._append(entries.terminal_savepoint(self.entry, self._sign(), ref))
        self.contents[ref.metadata] = contents
        self._uncommitted.append(Carried(contents))
        self.due_epoch = ref.epoch
        self._unrecorded[ref.metadata] = ref, Carried(contents)
        reach("stop.1-entry", term=self.term)

    def follow_savepoint(self, ref: CheckpointRef, contents: CheckpointContents) -> None:
        """Let `record` also cover this user's savepoint, once the output that it carries is committed."""
        self._unrecorded[ref.metadata] = ref, Carried(contents)

    def due(self) -> OutputUpTo:
        """Output that may become visible and is not known to be: all output of earlier terms, and the output of this term up
        to its newest completed checkpoint or the savepoint that ended the job."""
        # Before every epoch of this term. Until its first checkpoint completes, only output of earlier terms is due.
        before_term = EpochId(self.term, -1)
        return self.ledger.up_to(before_term if self.due_epoch is None else max(before_term, self.due_epoch))

    def output_committed(self, batch: CommitBatch) -> None:
        """A target has accepted all of this: step 1 of a commit, in `committables.commit`, is done.

        From now on no checkpoint carries it. A checkpoint that completes later serves as a record: a driver that starts from
        it does not know the output, and a driver that starts from an older one finds the markers.
        """
        self.ledger.confirm(committables.marks(batch.committables))

    def record(self) -> Steps[None]:
        """Record durably which completed checkpoints and savepoints have nothing left to commit.

        2. Record COMMITTED. After a crash before this step, the repeat finds the markers. The record of a savepoint is in
           the job's own folder.
        3. Drop the staged rows, but only with the next entry that this owner wins: until then, a successor that started
           from this checkpoint before the record existed may still carry them.
        """
        for ref, carried in tuple(self._unrecorded.values()):
            # Beside a dropped checkpoint, the record would be one more object that only a sweep finds.
            dropped = ref.owned and ref not in self.entry.retained
            if not dropped and carried.is_in(self.ledger):
                continue
            contents = carried.contents
            # Output that the user discarded is not committed: a job that starts from here with the sink commits it.
            if contents.committables and not dropped and not self.ledger.has_forgotten(contents.committables):
                yield Put(record_path(self.layout, ref), committables.record(contents.committables))
                if ref.owned:
                    # A user's savepoint is not registered with its rows, so the next entry has nothing to drop for it.
                    self._recorded.add(ref.metadata)
                reach("release.2-committed", id=ref.id, term=self.term)
            self._unrecorded.pop(ref.metadata, None)

    def uncommitted_output(self) -> tuple[Committable, ...]:
        """All output that may still be committed, or committed again: what the ledger holds, and what checkpoints carry
        that a later start may begin from or must commit the output of, unless this owner has recorded them COMMITTED."""

        carried = [
            committable
            for path, contents in self.contents.items()
            if path not in self._recorded
            for committable in contents.committables
        ]
        return (*self.ledger.waiting(), *carried)

    def finish(self, outcome: RunOutcome, keep: bool) -> Steps[None]:
        """End the run gracefully.

        1. Append the end to the log; without `keep` it drops every checkpoint of the job. If a target has not accepted
           all output of the newest checkpoint yet, all checkpoints are kept, a finished run ends as SUSPENDED, and the
           next start commits that output.
        2. `Cleaner.clean` deletes what was dropped.
        """
        before = self.entry
        # Asked before the entry: it decides what the entry says.
        has_uncommitted = bool(self.due())
        if has_uncommitted and outcome is RunOutcome.FINISHED:
            # A finished job is not restarted, so its output would never be committed. A suspended one is restarted.
            outcome = RunOutcome.SUSPENDED
        yield from self._append(entries.end(before, self._sign(), outcome, keep or has_uncommitted))
        self._drop(before.retained)
        reach("end.1-entry", term=self.term)

    def forget(self, checkpoints: Iterable[str]) -> None:
        """The cleaner has deleted these dropped checkpoints, named by their metadata."""
        for metadata in checkpoints:
            self.contents.pop(metadata, None)

    def _append(self, entry: Entry) -> Steps[None]:
        # The log would refuse it as well, but only when somebody reads it: `append` does not check what it writes.
        if self.entry.outcome is not None:
            raise RunEnded(self.entry)
        # Step 4 of `Cleaner.dispose`: what was deleted since the last entry leaves the list with this one.
        disposing = tuple(ref for ref in entry.disposing if ref.metadata not in self.disposed)
        entry = replace(entry, disposing=disposing)
        result = yield from append(self.layout, entry)
        if not isinstance(result, Won):
            raise ClaimLost(self.term, result)
        self.entry = entry
        # An entry is won that no longer carries what has left the ledger, so its rows may go.
        self._uncommitted = [carried for carried in self._uncommitted if carried.is_in(self.ledger)]

    def _drop(self, before: Iterable[CheckpointRef]) -> None:
        """An entry is won that no longer retains all of `before`: drop those checkpoints, and the staged rows of checkpoints
        that were recorded COMMITTED before the entry."""
        before = tuple(before)
        # Registered again without `staged`: this is step 3 of `record`.
        for metadata in self._recorded & {ref.metadata for ref in before}:
            contents = self.contents[metadata]
            self.shared.register(metadata, contents.files, contents.lists_in(self.layout.root))
        self._recorded.clear()
        # After the entry that no longer retains them. In the other order, a crash would leave an entry that names
        # deleted files.
        for ref in before:
            if ref not in self.entry.retained:
                self.shared.drop(ref.metadata, exclusive=(ref.metadata, committed_record(ref.metadata)))


def divided_output(store: CompletedCheckpointStore, checkpoint_id: int, epoch: EpochId, shares: bool) -> OutputParts:
    """Return the output that a checkpoint of `epoch` must contain. With `shares`, it may refer to objects of the latest completed
    checkpoint, if that is the job's own."""
    carried = store.ledger.carried_by(epoch)
    base = store.entry.base
    latest = store.contents.get(base.metadata) if shares and base is not None and base.owned else None
    # Without the committables of the latest checkpoint in memory, nothing is known to be in its objects. Writing all of
    # it again costs bytes only.
    if latest is None or isinstance(latest.output, UnreadOutput):
        return OutputParts(carried)
    place = ObjectPlace(store.layout, checkpoint_id, store.term)
    return divided(carried, latest.committables, latest.output, place, store.inline_bytes)


def _write_objects(draft: Draft, term: Term) -> Steps[None]:
    """Step 0 of `append_checkpoint`."""
    for name, data in draft.objects.items():
        try:
            yield Put(name, data)
        except StorageError as error:
            raise CheckpointNotCompleted(f"Checkpoint {draft.id} could not write {name}: {error}") from error
        reach("publish.0-output", id=draft.id, term=term)


def _committed_before(
    abandoned: Iterable[CheckpointRef], contents: Mapping[str, CheckpointContents]
) -> Callable[[Committable], bool]:
    """Whether an abandoned checkpoint of the same lineage, not older than the output, no longer carries it: then it is committed.

    A savepoint is complete only when the log has a checkpoint of its epoch or a later one, and each of those carries what
    is not committed. So the rows of a savepoint may be gone although no record exists for it: a run that did not know the
    savepoint has committed them.
    """
    abandoned = tuple(abandoned)
    # Output is identified by its channel (lineage, sink, slot) and its epoch: one epoch of a slot is one committable.
    carried = {(channel(c), c.epoch) for ref in abandoned for c in contents[ref.metadata].committables}
    newest: dict[Lineage, EpochId] = {}
    for ref in abandoned:
        newest[ref.lineage] = max(ref.epoch, newest.get(ref.lineage, ref.epoch))

    def is_committed(waiting: Committable) -> bool:
        last = newest.get(waiting.lineage)
        return last is not None and waiting.epoch <= last and (channel(waiting), waiting.epoch) not in carried

    return is_committed
