"""The completed checkpoints of a job, while one driver owns it: recovery, publication, release to sinks, clean-up, end.

Every method is a protocol of numbered steps, run by `effects.perform`. One thread calls them one after the other, except
`clean` and `sweep`, which may run beside the others. Nothing here waits for a target: the owner of the store publishes what
is `due` (`committables.commit`) and reports what was `published`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tidegate.checkpoint import committables
from tidegate.checkpoint import entry as entries
from tidegate.checkpoint.committables import Ledger, channel
from tidegate.checkpoint.contents import CheckpointContents, Reader
from tidegate.checkpoint.effects import Create, Delete, Get, ListFolders, ListNames, Put, Steps
from tidegate.checkpoint.entry import CheckpointRef, Entry, RunOutcome, Signature
from tidegate.checkpoint.layout import JobLayout, claimed_record, committed_record
from tidegate.checkpoint.log import ClaimLost, append
from tidegate.checkpoint.metadata import Committable, CommittedMark
from tidegate.checkpoint.metadata.errors import MetadataError, MetadataTooNew
from tidegate.checkpoint.pins import read_pins
from tidegate.checkpoint.release_plan import Publication
from tidegate.checkpoint.shared import Boundary, InFlight, SharedRegistry, orphans
from tidegate.core.errors import TidegateError
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Term
from tidegate.storage.errors import StorageError
from tidegate.storage.port import Lost, Nonce, Won


class CheckpointUnreadable(TidegateError):
    """A checkpoint that the log names cannot be read, or is not what was published."""

    code = "CHECKPOINT_UNREADABLE"

    def __init__(self, ref: CheckpointRef, why: str) -> None:
        self.ref = ref
        super().__init__(
            f"Checkpoint {ref.id} at {ref.metadata} {why}. Nothing was changed. Going back past it may double output that "
            "was already committed: start from an older retained checkpoint or a savepoint with -s if you accept that."
        )


class RunEnded(TidegateError):
    """The log says that this run is over; nothing may follow but a new claim."""

    code = "RUN_ENDED"

    def __init__(self, end: Entry) -> None:
        super().__init__(f"This run has ended as {end.outcome}. Start the job anew; it resumes from where it ended.")


class CleaningSkipped(TidegateError):
    """A pinned snapshot cannot be read, so what it needs is unknown and nothing was deleted. The job goes on."""

    code = "CLEANING_SKIPPED"
    retryable = True

    def __init__(self, metadata: str, why: str) -> None:
        self.metadata = metadata
        super().__init__(f"Nothing is cleaned up while {metadata}, which is pinned, cannot be read: {why}")


class NotPublished(TidegateError):
    """`_metadata` could not be written, so no entry was tried: the checkpoint does not exist, and the job may go on."""

    code = "NOT_PUBLISHED"
    retryable = True


@dataclass(frozen=True, slots=True)
class Draft:
    """A checkpoint with all uploads acknowledged, ready to be published.

    `metadata` contains `checksum` as its nonce.
    """

    id: int
    epoch: EpochId
    metadata: bytes
    checksum: str
    contents: CheckpointContents


class CompletedCheckpointStore:
    """State of the present owner.

    Nothing in it is needed after a crash: the log and the retained metadata have it all.
    """

    def __init__(
        self,
        layout: JobLayout,
        claimed: Entry,
        read: Reader,
        sign: Callable[[], Signature],
        num_retained: int = 1,
    ) -> None:
        self.layout = layout
        self.entry = claimed
        self.ledger = Ledger()
        self.shared = SharedRegistry()
        self.unreadable: list[CheckpointRef] = []
        self._read = read
        self._sign = sign
        self._num_retained = num_retained
        self._contents: dict[str, CheckpointContents] = {}
        self._dropped: set[str] = set()
        self._released: set[str] = set()
        self._owing: list[CheckpointContents] = []
        """Contents whose output the ledger may still carry although no retained checkpoint of ours names its rows."""
        self._unrecorded: dict[str, tuple[CheckpointRef, CheckpointContents]] = {}
        """Completed checkpoints and savepoints whose output is not recorded COMMITTED yet."""
        self._published_epoch: EpochId | None = None
        self.due_epoch: EpochId | None = None
        """Up to where output of this term may be seen."""
        self._disposed: set[str] = set()
        """Claimed savepoints that are deleted, and that our next entry takes off the list."""

    @property
    def term(self) -> Term:
        return self.entry.term

    def contents(self, ref: CheckpointRef) -> CheckpointContents:
        """Of a retained checkpoint or the base."""
        return self._contents[ref.metadata]

    def recover(self) -> Steps[bytes | None]:
        """Take over what the log says. Answer: the base's metadata, or None for a start from the beginning.

        1. Read and verify the metadata of the base, and of every other retained checkpoint. One of those that is
           damaged can never be started from: it is named in `unreadable` and holds no files. A damaged base is an
           error; if a successor has cleaned up meanwhile, that is `ClaimLost`.
        2. Learn which of them are COMMITTED.
        3. Take over the output that the base carries, and that earlier claims turned away from: what once completed
           becomes visible, in order of epochs, even if a rollback abandons it. It is `due` from here on; what is not
           published by then is carried by the next checkpoint. A crash leaves all of that to the next start.
           What an older base carries, and a newer one that was turned away from does not any more, is published.
        """
        base = self.entry.base
        data: bytes | None = None
        for ref in dict.fromkeys((*self.entry.retained, *self.entry.owed, *(() if base is None else (base,)))):
            body: bytes | None = yield Get(ref.metadata)
            contents = self._readable(ref, body)
            if contents is not None:
                self._contents[ref.metadata] = contents
                data = body if ref == base else data
                continue
            yield from self._check_owner()
            if ref == base:
                raise CheckpointUnreadable(ref, "is missing" if body is None else "is not what its log entry says")
            self.unreadable.append(ref)
        reach("recover.1-read", term=self.term)
        for ref in self.entry.retained:
            if ref not in self.unreadable:
                yield from self._learn_committed(ref)
        reach("recover.2-learnt", term=self.term)
        mine = [ref for ref in self.entry.owed if ref not in self.unreadable]
        if base is not None and base.lineage == self.entry.lineage:
            mine.append(base)
        yield from self._take_over_output(mine)
        reach("recover.3-owed", term=self.term)
        return data

    def _take_over_output(self, refs: Iterable[CheckpointRef]) -> Steps[None]:
        """Step 3 of `recover`, for the base and for what was turned away from."""
        recorded: list[CommittedMark] = []
        left_behind = self._left_behind()
        for ref in refs:
            contents = self._contents[ref.metadata]
            self.ledger.accept(c for c in contents.committables if not left_behind(c))
            self._owing.append(contents)
            done: bytes | None = yield Get(self._record_of(ref))
            if done is None:
                self._unrecorded[ref.metadata] = ref, contents
            else:
                recorded += committables.read_record(done)
        self.ledger.confirm(recorded)

    def _left_behind(self) -> Callable[[Committable], bool]:
        """Whether one that was turned away from, of the same line and not older, carries it no more: then it is published.

        A savepoint is complete only when the log has a checkpoint of its epoch or a later one, and each of those carries on
        what is not published. So rows of a savepoint may be gone although nothing is recorded for it: a run that did not
        know it has published them.
        """
        owed = self.entry.owed
        if any(ref in self.unreadable for ref in owed):
            return lambda waits: False
        carried = {(channel(c), c.epoch) for ref in owed for c in self._contents[ref.metadata].committables}
        reached: dict[Lineage, EpochId] = {}
        for ref in owed:
            reached[ref.lineage] = max(ref.epoch, reached.get(ref.lineage, ref.epoch))

        def is_left_behind(waits: Committable) -> bool:
            last = reached.get(waits.lineage)
            return last is not None and waits.epoch <= last and (channel(waits), waits.epoch) not in carried

        return is_left_behind

    def _record_of(self, ref: CheckpointRef) -> str:
        """Where it is recorded that all output of a checkpoint is published. Never in a savepoint's folder: that is the
        user's, and a copy of it must be the same savepoint."""
        return committed_record(ref.metadata) if ref.owned else self.layout.committed(ref.lineage, ref.term, ref.id)

    def _readable(self, ref: CheckpointRef, body: bytes | None) -> CheckpointContents | None:
        if body is None or ref.checksum.encode() not in body:
            return None
        try:
            return self._read(ref.metadata, body)
        except MetadataTooNew:
            raise
        except MetadataError:
            return None

    def _check_owner(self) -> Steps[None]:
        after: bytes | None = yield Get(self.layout.log(self.entry.slot + 1))
        if after is not None:
            raise ClaimLost(self.term, entries.from_bytes(after, self.layout.log(self.entry.slot + 1)))

    def _learn_committed(self, ref: CheckpointRef) -> Steps[None]:
        contents = self._contents[ref.metadata]
        done: bytes | None = (yield Get(self._record_of(ref))) if contents.committables else None
        if done is None and self._is_carried_on(ref):
            self._unrecorded[ref.metadata] = ref, contents
        self.shared.register(ref.metadata, contents.files if done is not None else contents.files | contents.staged)

    def _is_carried_on(self, ref: CheckpointRef) -> bool:
        """Whether a newer one of its line is taken over here: what that does not carry of its output is published."""
        base = self.entry.base
        taken = [*self.entry.owed, *((base,) if base is not None and base.lineage == self.entry.lineage else ())]
        if any(each in self.unreadable for each in taken):
            return False
        return any(each.lineage == ref.lineage and ref.epoch <= each.epoch for each in taken)

    def publish(self, draft: Draft) -> Steps[CheckpointRef]:
        """Make a fully acknowledged checkpoint real.

        Raises `NotPublished` when it certainly is not in the log; `ClaimLost` when another driver has the job; any
        other error leaves the outcome unknown, and the driver must stop.

        1. Write `_metadata`. A crash before the next step leaves an orphan, swept once its id has been passed. If a
           predecessor's orphan has the name, take the one with our term.
        2. Win the next slot of the log. Before, the checkpoint does not exist; after, it is what every restart begins
           from, and the oldest ones beyond the retained number are dropped.
        """
        if draft.id <= self.entry.last_id:
            raise NotPublished(f"Checkpoint {draft.id} comes too late: {self.entry.last_id} is in the log already.")
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
        before = self.entry
        yield from self._append(entries.checkpoint(before, self._sign(), ref, self._num_retained))
        self._contents[path] = draft.contents
        self.shared.register(path, draft.contents.files | draft.contents.staged)
        self._published_epoch = self.due_epoch = draft.epoch
        self._unrecorded[path] = ref, draft.contents
        self._drop(before.retained)
        reach("publish.2-entry", id=draft.id, term=self.term)
        return ref

    def _write_metadata(self, draft: Draft) -> Steps[str]:
        for path in (self.layout.metadata(draft.id), self.layout.metadata(draft.id, self.term)):
            try:
                result: Won | Lost = yield Create(path, draft.metadata, Nonce(draft.checksum))
            except StorageError as error:
                raise NotPublished(f"Checkpoint {draft.id} could not write {path}: {error}") from error
            if isinstance(result, Won):
                return path
        raise entries.LogCorrupt(path, "was written by somebody else under this driver's term")

    def publish_terminal(self, ref: CheckpointRef, contents: CheckpointContents) -> Steps[None]:
        """Enter the savepoint that ends the job into the log, before anything of it is committed.

        1. Win the next slot. Before, the job goes on from its last checkpoint; after, every restart begins from here.
        Then what it carries is `due`; a crash before all of it is published leaves that to the next start.
        """
        yield from self._append(entries.terminal_savepoint(self.entry, self._sign(), ref))
        self._contents[ref.metadata] = contents
        self._owing.append(contents)
        self.due_epoch = ref.epoch
        self._unrecorded[ref.metadata] = ref, contents
        reach("stop.1-entry", term=self.term)

    def follow_savepoint(self, ref: CheckpointRef, contents: CheckpointContents) -> None:
        """Record it for a savepoint of the user's, too, once what it carries is published."""
        self._unrecorded[ref.metadata] = ref, contents

    def due(self) -> tuple[Committable, ...]:
        """Output that may be seen and is not known to be: all of earlier terms, and of this one up to its newest completed
        checkpoint, or the savepoint that ended it."""
        reached = self.due_epoch
        return tuple(
            c for c in self.ledger.waiting() if c.epoch.term < self.term or (reached is not None and c.epoch <= reached)
        )

    def published(self, publication: Publication) -> None:
        """A target has taken all of this: step 1 of the release, in `committables.commit`, is done.

        From here on no checkpoint carries it. One that is published later is as good as a record: whoever starts from it
        does not know the output any more, and whoever starts from an older one finds the markers.
        """
        self.ledger.confirm(committables.marks(publication.committables))

    def record(self) -> Steps[None]:
        """Note durably which completed checkpoints and savepoints have nothing left to publish.

        2. Record COMMITTED. A crash before leaves a repeat that finds the markers. What a savepoint carried is recorded in
           the job's own folder.
        3. Let go of the staged rows, but only with the next entry we win: until then a successor that started from this
           checkpoint before the record was there may be carrying them on.
        """
        for ref, contents in tuple(self._unrecorded.values()):
            dropped = ref.owned and ref not in self.entry.retained
            if not dropped and self.ledger.holds(contents.committables):
                continue
            # What the user let go of was not published: it is there for whoever starts from this one with the sink again.
            if contents.committables and not dropped and not self.ledger.has_forgotten(contents.committables):
                yield Put(self._record_of(ref), committables.record(contents.committables))
                if ref.owned:
                    self._released.add(ref.metadata)
                reach("release.2-committed", id=ref.id, term=self.term)
            self._unrecorded.pop(ref.metadata, None)

    def unsettled(self) -> tuple[Committable, ...]:
        """All output that may yet be committed, or committed once more: what the ledger has, and what checkpoints carry
        that a later start may begin from or must settle, as far as this owner has not noted them COMMITTED."""
        carried = [
            committable
            for path, contents in self._contents.items()
            if path not in self._released
            for committable in contents.committables
        ]
        return (*self.ledger.waiting(), *carried)

    def clean(self, in_flight: InFlight) -> Steps[int]:
        """Delete what dropped checkpoints left and nothing else needs. Answer: how many files.

        1. Read the pins. They are read after the entry that dropped, so no pin that was placed in time is missed.
        2. Delete `_metadata` of dropped checkpoints, so that nobody starts from half of one.
        3. Delete the files. A crash leaves some; the sweep of the next owner finds them.
        """
        self._dropped = {path for path in self._dropped if self.layout.parse(path) is not None}
        candidates = {path for path in self._dropped if path not in self.shared}
        if not candidates:
            return 0
        named = (*self.entry.retained, *(() if self.entry.base is None else (self.entry.base,)))
        over = self._contents.keys() - {ref.metadata for ref in named} - in_flight.bases
        doomed = candidates - (yield from self._held(in_flight))
        reach("clean.1-marked", term=self.term)
        first = tuple(sorted(path for path in doomed if path.endswith("/_metadata")))
        if first:
            yield Delete(first)
        reach("clean.2-metadata", term=self.term)
        if rest := tuple(sorted(doomed.difference(first))):
            yield Delete(rest)
        reach("clean.3-files", term=self.term)
        self._dropped -= doomed
        for path in over:
            self._contents.pop(path, None)
        return len(doomed)

    def sweep(self, in_flight: InFlight) -> Steps[int]:
        """Delete everything that crashes, failed checkpoints and former owners left behind. Answer: how many files.

        1. Note what is referenced, then list, then read the pins: in this order, publications beside us do no harm.
           What they add is beyond the boundary; what they drop is still in the notes, so a pin placed before is not
           missed.
        2. Delete what nothing references and nothing can come to reference (see `shared`), `_metadata` first.
        """
        boundary = Boundary(self.term, self.entry.last_id, in_flight.lowest_id, self._published_epoch)
        needed = set(self.shared.counts())
        for ref in self.entry.retained:
            needed |= {ref.metadata, committed_record(ref.metadata)}
        listed: list[str] = []
        for folder in ("shared", "taskowned"):
            listed += yield ListNames(f"{self.layout.root}/{folder}")
        folders: list[str] = yield ListFolders(self.layout.root)
        for folder in folders:
            if folder.startswith("chk-"):
                listed += yield ListNames(f"{self.layout.root}/{folder}")
        reach("sweep.1-listed", term=self.term)
        needed |= yield from self._held(in_flight)
        lost = sorted(orphans(self.layout, listed, boundary, needed), key=lambda path: not path.endswith("/_metadata"))
        if lost:
            yield Delete(tuple(lost))
        reach("sweep.2-deleted", term=self.term)
        self._dropped.difference_update(lost)
        return len(lost)

    def dispose(self) -> Steps[int]:
        """Delete claimed savepoints that the log has dropped. Answer: how many files. May be repeated, by any owner.

        1. Read the pins, and its metadata. Pinned: not now. Gone: it was deleted before. Another than was claimed: somebody
           put it there, and it is not ours.
        2. Delete the files that it names in its own folder. A crash leaves a savepoint that cannot be started from, and that is
           still on the list.
        3. Delete `_metadata`, `_claimed` and its COMMITTED record. A crash leaves nothing but the entry on the list.
        4. Our next entry takes it off the list.
        """
        deleted = 0
        listed = [ref for ref in self.entry.disposing if ref.metadata not in self._disposed]
        pinned = {pin.metadata for pin in (yield from read_pins(self.layout))} if listed else set()
        for ref in listed:
            if ref.metadata in pinned:
                continue
            body: bytes | None = yield Get(ref.metadata)
            contents = self._readable(ref, body)
            if contents is not None:
                folder = ref.metadata.removesuffix("_metadata")
                own = tuple(sorted(path for path in contents.files if path.startswith(folder)))
                reach("dispose.1-read", term=self.term)
                if own:
                    yield Delete(own)
                reach("dispose.2-files", term=self.term)
                deleted += len(own) + 1
            if contents is not None or body is None:
                yield Delete((ref.metadata, claimed_record(ref.metadata), self._record_of(ref)))
            reach("dispose.3-metadata", term=self.term)
            self._disposed.add(ref.metadata)
        return deleted

    def finish(self, outcome: RunOutcome, keep: bool) -> Steps[None]:
        """End the run in order.

        1. Enter the end into the log; without `keep` it gives up every checkpoint of the job. Not while a target still
           has to take output of the newest one: then they are kept, a finished run ends as SUSPENDED, and the next start
           commits it.
        2. `clean` deletes what was given up.
        """
        before = self.entry
        owes = bool(self.due())
        if owes and outcome is RunOutcome.FINISHED:
            # A finished job is not started again, and its output would wait for ever. A suspended one is.
            outcome = RunOutcome.SUSPENDED
        yield from self._append(entries.end(before, self._sign(), outcome, keep or owes))
        self._drop(before.retained)
        reach("end.1-entry", term=self.term)

    def _append(self, entry: Entry) -> Steps[None]:
        if self.entry.outcome is not None:
            raise RunEnded(self.entry)
        left = tuple(ref for ref in entry.disposing if ref.metadata not in self._disposed)
        entry = replace(entry, disposing=left)
        result = yield from append(self.layout, entry)
        if not isinstance(result, Won):
            raise ClaimLost(self.term, result)
        self.entry = entry
        self._owing = [contents for contents in self._owing if self.ledger.holds(contents.committables)]

    def _drop(self, before: Iterable[CheckpointRef]) -> None:
        """An entry was won: give up what it dropped, and the rows of what was recorded COMMITTED before it."""
        before = tuple(before)
        for metadata in self._released & {ref.metadata for ref in before}:
            contents = self._contents[metadata]
            self.shared.register(metadata, contents.files)
            self._dropped.update(path for path in contents.staged if path not in self.shared)
        self._released.clear()
        for ref in before:
            if ref not in self.entry.retained:
                self._dropped |= self.shared.drop(ref.metadata)
                self._dropped |= {ref.metadata, committed_record(ref.metadata)}

    def _held(self, in_flight: InFlight) -> Steps[set[str]]:
        """Everything that pins, pending checkpoints and output not yet taken need."""
        held: set[str] = set()
        for contents in self._owing:
            held |= contents.staged
        for pin in (yield from read_pins(self.layout)):
            body: bytes | None = yield Get(pin.metadata)
            if body is not None:
                try:
                    contents = self._read(pin.metadata, body)
                except MetadataError as error:
                    raise CleaningSkipped(pin.metadata, str(error)) from error
                held |= contents.files | contents.staged | {pin.metadata, committed_record(pin.metadata)}
        for base in in_flight.bases:
            held |= self._contents[base].files
        return held
