"""Checks on every write and delete of one job, with knowledge that no driver has: the whole truth at that moment."""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulation.faults import Violation
from chaos.simulation.storage import SimStorage
from tidegate.checkpoint.files.contents import CheckpointContents, Reader
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, EntryKind
from tidegate.checkpoint.layout import FileScope, JobLayout, committed_record
from tidegate.connectors.sink import Committable
from tidegate.storage.port import Nonce


class JobWatch:
    def __init__(
        self,
        layout: JobLayout,
        storage: SimStorage,
        read: Reader,
        files_of: Callable[[bytes], frozenset[str]],
        shows: Callable[[Committable], bool],
    ) -> None:
        """`shows`: whether the job's target shows some output."""
        self._shows = shows
        self.layout = layout
        self.log: list[Entry] = []
        """Every entry that was ever in force, also deleted ones."""
        self.ghosts = 0
        """Entries that were created in slots which had been taken and deleted."""
        self.lost: list[Entry] = []
        """Entries that were lost when the job was restored from a backup."""
        self.pinned: dict[str, CheckpointRef] = {}
        self.claim_times: dict[int, float] = {}
        """By slot: when drivers claimed the job of their own accord."""
        self.asked_for: set[Nonce] = set()
        """Of claims that somebody asks for, by a rescale or a start that accepts output. They say nothing about the health of the
        owner before them. Known before they are written: the run may end before their driver hears that it has won."""
        self.now_ms: Callable[[], float] = lambda: 0.0
        self._storage = storage
        self._read = read
        self._files_of = files_of
        self._needed: dict[str, frozenset[str]] = {}
        """Metadata name → files that must be there, for everything retained or pinned."""

    @property
    def newest(self) -> Entry | None:
        return self.log[-1] if self.log else None

    def written(self, path: str, data: bytes) -> None:
        if path.startswith((f"{self.layout.root}/log/", f"{self.layout.entries}/")):
            self._entry(entries.from_bytes(data, path))
        elif path.endswith("/_committed"):
            self._recount()

    def _entry(self, entry: Entry) -> None:
        if self.log and entry.slot == self.log[-1].slot and entry == self.log[-1]:
            return
        if self.newest is not None and entry.folder < self.newest.folder and entry.slot <= self.newest.slot:
            self.ghosts += 1  # a deleted slot is created again; nobody may act on it
            return
        try:
            entries.check(self.newest, entry, self.layout.log(entry.slot))
        except entries.LogCorrupt as error:
            raise Violation(str(error)) from error
        self.log.append(entry)
        if entry.kind is EntryKind.CLAIM:
            if any(before.kind is EntryKind.CLAIM and self._repeats(before, entry) for before in self.log[:-1]):
                raise Violation(f"{entry.owner} claimed twice: it took its own claim for another's")
            if entry.nonce not in self.asked_for:
                self.claim_times[entry.slot] = self.now_ms()
        if entry.kind in (EntryKind.CHECKPOINT, EntryKind.TERMINAL_SAVEPOINT):
            assert entry.base is not None
            for file in self._files(entry.base):
                if file not in self._storage.objects:
                    raise Violation(
                        f"checkpoint {entry.base.id} of {entry.owner} was published without its file {file}"
                    )
        self._recount()

    def _repeats(self, before: Entry, entry: Entry) -> bool:
        """Whether a driver claims the job again that nobody has taken from it. If a rival's entry is in a later folder, a driver
        that slept cannot tell whether its own claim counted (decision 0029), and asks for the job like any other."""
        between = [each for each in self.log if before.slot < each.slot < entry.slot]
        taken = any(each.owner != before.owner and each.folder > before.folder for each in between)
        return before.owner == entry.owner and not taken

    def _contents(self, ref: CheckpointRef) -> CheckpointContents:
        data = self._storage.objects.get(ref.metadata)
        if data is None:
            raise Violation(f"{ref.metadata} is missing and the log says that it is retained")
        return self._read(ref.metadata, data)

    def _files(self, ref: CheckpointRef) -> frozenset[str]:
        return self._files_of(self._storage.objects[ref.metadata])

    def _recount(self) -> None:
        retained = self.newest.retained if self.newest else ()
        needed = {}
        for ref in (*retained, *self.pinned.values()):
            contents, files = self._contents(ref), self._files(ref)
            if not ref.owned:
                # The job goes on after a savepoint, and may have published what that carries: it never returns to it alone.
                waiting = [each for each in contents.committables if not self._shows(each)]
                needed[ref.metadata] = files.union(*(each.staged for each in waiting))
            elif committed_record(ref.metadata) not in self._storage.objects:
                needed[ref.metadata] = files | contents.staged
            else:
                needed[ref.metadata] = files
        self._needed = needed

    def restore(self, log: list[Entry]) -> None:
        """The job's folder was replaced by a backup that has this log."""
        self.lost += self.log[len(log) :]
        self.log = list(log)
        self.pinned.clear()
        self._recount()

    def pin(self, pin_id: str, ref: CheckpointRef) -> None:
        self.pinned[pin_id] = ref
        self._recount()

    def unpin(self, pin_id: str) -> None:
        self.pinned.pop(pin_id, None)
        self._recount()

    def deleted(self, path: str) -> None:
        for metadata, files in self._needed.items():
            if path == metadata or path in files:
                raise Violation(f"{path} was deleted and {metadata} still needs it")
        if path.startswith(f"{self.layout.root}/log/"):
            raise Violation(f"an entry was deleted that older versions rely on: {path}")
        if path.startswith(f"{self.layout.entries}/"):
            folder = int(path.split("/")[-2])
            newer = {entry.folder for entry in self.log if entry.folder > folder}
            if len(newer) < 2:
                raise Violation(f"an entry was deleted that readers may need: {path}")

    def check_won(self, entry: Entry) -> None:
        """A driver acts on this entry: it must be in force."""
        if entry not in self.log:
            raise Violation(f"{entry.owner} acts on slot {entry.slot}, which another entry had held before")

    def old_folders(self) -> list[str]:
        """Folders of the log that should have been deleted."""
        return self._storage.folders(self.layout.entries)[:-2]

    def leftovers(self) -> list[str]:
        """Files that nothing needs and that a sweep should have found.

        Metadata of ids to come goes once they have come.
        """
        keep = set().union(*self._needed.values()) if self._needed else set()
        for ref in self.newest.retained if self.newest else ():
            keep |= {ref.metadata, committed_record(ref.metadata)}
            keep |= self._contents(ref).staged  # if published, they go with the next entry
        mine = self._storage.below(self.layout.root)
        last_id = self.newest.last_id if self.newest else 0
        parsed = ((path, self.layout.parse(path)) for path in mine if path not in keep)
        return [p for p, f in parsed if f is not None and not (f.scope is FileScope.EXCLUSIVE and f.number > last_id)]
