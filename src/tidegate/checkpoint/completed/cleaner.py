"""Deletes the files that the completed checkpoints of a job no longer need.

Every method is a protocol of numbered steps, run by `effects.perform`. `clean` and `sweep` may run concurrently with the
protocols of the store.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice

from tidegate.checkpoint.completed.completed_store import CompletedCheckpointStore
from tidegate.checkpoint.effects import Delete, Get, GetMany, ListFolders, ListNames, Steps
from tidegate.checkpoint.files.contents import read_contents, verified
from tidegate.checkpoint.files.file_lists import list_in, objects_of
from tidegate.checkpoint.files.list_registry import HeldList, ListId
from tidegate.checkpoint.files.shared import Boundary, InFlight, orphans
from tidegate.checkpoint.job_log.log import trim
from tidegate.checkpoint.job_log.pins import read_pins
from tidegate.checkpoint.layout import claimed_record, committed_record
from tidegate.checkpoint.metadata import FileList
from tidegate.checkpoint.metadata.errors import MetadataError
from tidegate.checkpoint.output.committables import record_path
from tidegate.core.errors import CheckpointError
from tidegate.core.faults import reach
from tidegate.core.ids import Term
from tidegate.storage.routed import name_below

# A list of 1,000 files has about 118 KB, and twice that as names in a set (decision 0031).
_LISTS_AT_ONCE = 256
"""So many lists are in memory at once, at most."""
TASKS_OF_A_SWEEP = 64
"""A sweep of more tasks is done in slices of this many, one after each checkpoint: each costs a few requests per task."""


class CleaningSkipped(CheckpointError):
    """A pinned snapshot cannot be read, so the files it needs are unknown. Nothing is deleted, and the job continues."""

    code = "CLEANING_SKIPPED"
    retryable = True

    def __init__(self, metadata: str, why: str) -> None:
        self.metadata = metadata
        super().__init__(f"Nothing is cleaned up while {metadata}, which is pinned, cannot be read: {why}")


@dataclass(slots=True)
class _HeldBack:
    """What pins, pending checkpoints and uncommitted output need."""

    names: set[str] = field(default_factory=set)
    lists: dict[ListId, HeldList] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Slice:
    """What one call of `sweep` has listed."""

    names: list[str]
    """Except files of tasks."""
    tasks: dict[str, list[str]]
    """The files of each task."""


class Cleaner:
    """Cleans up for the present owner of the job, whose store knows which files are needed.

    Between calls it keeps only how far a sweep has come. After a crash, the sweep of the next owner finds what is left.
    """

    def __init__(self, store: CompletedCheckpointStore, *, parallel: bool = False) -> None:
        """With `parallel`, many files are deleted by several threads."""
        self._store = store
        self._parallel = parallel
        self._layout = store.layout
        self._shared = store.shared
        self._tasks_of_a_sweep = TASKS_OF_A_SWEEP
        self._unswept: dict[str, list[str]] = {}
        """The tasks that the sweep has not come to, and the folders of their files."""
        self.unreadable: set[str] = set()
        """Lists that cannot be read. Nothing of their tasks is deleted."""
        self._trimmed_for = -1
        """The folder of the newest entry when the log was trimmed last."""

    @property
    def is_sweeping(self) -> bool:
        """Whether a sweep has begun and is to be continued."""
        return bool(self._unswept)

    @property
    def wants_sweep(self) -> bool:
        """Whether a sweep is to be continued, or dropped checkpoints have left files that only a sweep finds."""
        return bool(self._unswept or self._shared.lists.unswept)

    def clean(self, in_flight: InFlight) -> Steps[int]:
        """Delete the files that dropped checkpoints leave and nothing else needs. Return the number of files.

        1. Read the pins. They are read after the entry that dropped the checkpoints, so no pin that was placed in time
           is missed.
        2. Delete `_metadata` of dropped checkpoints, so that no job starts from an incomplete one.
        3. Delete the files. A crash leaves some of them; the sweep of the next owner finds them.
        """
        store = self._store
        dropped = self._shared.lists.dropped()
        unreferenced = self._shared.unreferenced()
        # Names of a savepoint that the job claimed do not parse: `dispose` deletes its files.
        candidates = {path for path in unreferenced if self._layout.parse(path) is not None}
        # Forgotten, or every later `clean` would look at them again.
        self._shared.forget(unreferenced - candidates)
        if not candidates and not dropped:
            return 0

        # What the store still knows of checkpoints that no entry names. A base of a pending checkpoint stays: its files
        # may become part of that one.
        named = (*store.entry.retained, *(() if store.entry.base is None else (store.entry.base,)))
        superseded = store.contents.keys() - {ref.metadata for ref in named} - in_flight.bases
        # Pins are read here, after the entry that dropped what is deleted: see step 1.
        held = yield from self._held(in_flight)
        candidates |= yield from self._remove_lists([id for id in dropped if id not in held.lists])
        unneeded = candidates - held.names
        reach("clean.1-marked", term=store.term)
        # The order of `Delete` is not defined, so `_metadata` needs a request of its own.
        metadata_paths = {path for path in unneeded if path.endswith("/_metadata")}
        yield from self._delete(metadata_paths)
        reach("clean.2-metadata", term=store.term)
        yield from self._delete(unneeded - metadata_paths)
        reach("clean.3-files", term=store.term)
        # Only now: if a request above failed, the next `clean` finds the same names again.
        self._shared.forget(unneeded)
        store.forget(superseded)
        return len(unneeded)

    def _remove_lists(self, dropped: Iterable[ListId]) -> Steps[set[str]]:
        """Return the files that only these lists have. They are noted as dropped at once, so that an error loses none."""
        lists, found, alone = self._shared.lists, set[str](), list[ListId]()
        for id in dropped:
            if not lists.is_dropped(id):
                continue
            if lists.to_load(id) is None:
                found |= self._left(lists.remove(id))
            else:
                alone.append(id)
        for start in range(0, len(alone), _LISTS_AT_ONCE):
            # These share no object with another list, so nothing but their content says what they consist of.
            some = alone[start : start + _LISTS_AT_ONCE]
            names = yield from self._names([each for id in some if (each := lists.to_load(id)) is not None])
            for id in some:
                found |= self._left(lists.remove(id, names.get(id)))
        return found

    def _left(self, names: frozenset[str]) -> set[str]:
        # Names in a list come from storage. Nothing outside the job's own folder of shared files is deleted because a
        # list names it.
        ours = {name for name in names if name.startswith(f"{self._layout.root}/shared/")}
        self._shared.leave(ours)
        return ours

    def sweep(self, in_flight: InFlight) -> Steps[int]:
        """Delete the files that crashes, failed checkpoints and former owners left. Return the number of files.

        For many tasks, one call does a part of it; see `is_sweeping`.

        1. Note what is referenced, then list, then read the pins. In this order concurrent completions do no harm:
           what they add is beyond the boundary, and what they drop is still noted, so a pin placed before is not missed.
        2. Load the lists of the tasks whose files were listed. If one is missing or damaged, that task is left alone.
        3. Delete the files that nothing references or can reference later (see `shared`), `_metadata` first.
        """
        store = self._store

        # Taken before anything is listed: what is completed during the sweep is beyond this boundary.
        boundary = Boundary(store.term, store.entry.last_id, in_flight.lowest_id, store.completed_epoch)
        orphaned = yield from self._orphans(in_flight, boundary)
        yield from self._delete(path for path in orphaned if path.endswith("/_metadata"))
        yield from self._delete(path for path in orphaned if not path.endswith("/_metadata"))
        reach("sweep.2-deleted", term=store.term)
        self._shared.forget(orphaned)
        return len(orphaned)

    def left_by_ended_run(self) -> Steps[list[str]]:
        """Return what a sweep of the next owner would delete, if the entry of the store ends its run. Deletes nothing.

        Nothing follows such an entry but a claim. Its term is greater than all terms so far, and it starts from what the entry
        retains, or from outside. So all terms so far are those of former owners.
        """
        entry = self._store.entry
        after = Boundary(Term(entry.term + 1), entry.last_id, entry.last_id + 1, None)
        # Nothing is pending in a run that has ended, so every id up to the last one is over.
        found = yield from self._orphans(InFlight(entry.last_id + 1), after)
        # A job of many tasks is swept in slices. Here nobody waits, so all of them follow at once.
        while self.is_sweeping:
            found += yield from self._orphans(InFlight(entry.last_id + 1), after)
        return found

    def _orphans(self, in_flight: InFlight, boundary: Boundary) -> Steps[list[str]]:
        """Steps 1 and 2 of a sweep: return the files to delete."""
        store, lists = self._store, self._shared.lists

        # Step 1: everything that is referenced now, before the listing. `_metadata` and COMMITTED records are not
        # counted as files.
        needed = set(self._shared.counts())
        for ref in store.entry.retained:
            needed |= {ref.metadata, committed_record(ref.metadata)}
        noted = {task: lists.referenced(task) for task in lists.tasks()}
        # Noted before the listing as well: a task that becomes doubtful during the sweep stays so for the next one.
        doubtful = set(lists.unswept)
        listed = yield from self._list_slice()
        reach("sweep.1-listed", term=store.term)
        held = yield from self._held(in_flight)
        needed |= held.names
        orphaned = list(orphans(self._layout, listed.names, boundary, needed))
        pinned: dict[str, list[HeldList]] = {}
        # Pinned lists may be older than everything that is retained; their files must be subtracted as well.
        for each in held.lists.values():
            pinned.setdefault(each.id.task, []).append(each)
        wanted = {
            task: {each.id: each for each in (*noted.get(task, ()), *pinned.get(task, ()))} for task in listed.tasks
        }
        names = yield from self._names([each for some in wanted.values() for each in some.values()])
        for task, files in listed.tasks.items():
            # A needed list is missing or damaged. Without it, every file of this task looks like an orphan.
            if not names.keys() >= wanted[task].keys():
                continue
            # The lists are in memory anyway: from now on the registry knows how they differ, and the next drop needs no
            # sweep.
            lists.compare(task, {id.digest: names[id] for id in wanted[task]})
            mine = frozenset[str]().union(*(names[id] for id in wanted[task]))
            orphaned += orphans(self._layout, (path for path in files if path not in needed), boundary, mine)
        # Only tasks of this slice: those of later slices keep their note.
        lists.unswept -= doubtful.intersection(listed.tasks)
        return orphaned

    def _list_slice(self) -> Steps[_Slice]:
        """List the next part of what a sweep looks at: all files, or those of some tasks."""
        root, listed, shared = self._layout.root, list[str](), list[str]()
        tasks: dict[str, list[str]] = {}
        if not self._unswept:
            # Only the first call of a sweep lists what does not belong to one task.
            for folder in ("taskowned", "acks"):
                listed += yield ListNames(f"{root}/{folder}")
            folders: list[str] = yield ListFolders(root)
            for folder in folders:
                # Never `log`, `entries`, `pins`, `committed` or `discarded`: those are no business of a sweep.
                if folder.startswith("chk-"):
                    listed += yield ListNames(f"{root}/{folder}")
            # For few tasks, one listing of all shared files is cheaper than one for each task and term.
            if len(self._shared.lists) <= self._tasks_of_a_sweep:
                tasks = {task: list[str]() for task in self._shared.lists.unswept}
                shared += yield ListNames(f"{root}/shared")
            else:
                yield from self._begin_slices()
        for task in tuple(islice(self._unswept, self._tasks_of_a_sweep)):
            tasks[task] = []
            for folder in self._unswept[task]:
                shared += yield ListNames(folder)
            # Removed when it is listed. If the sweep fails later, the task's orphans wait for the next whole sweep.
            del self._unswept[task]
        for name in shared:
            # A name that no task has (written by a stranger) goes through the same rules as other files: it does not
            # parse, and stays.
            of = self._layout.task_in(name)
            (listed if of is None else tasks.setdefault(of, [])).append(name)
        return _Slice(listed, tasks)

    def _begin_slices(self) -> Steps[None]:
        shared = f"{self._layout.root}/shared"
        # Tasks with doubtful lists are part of the sweep even without a file: their note is cleared by it.
        found: dict[str, list[str]] = {task: [] for task in self._shared.lists.unswept}
        terms: list[str] = yield ListFolders(shared)
        for term in terms:
            tasks: list[str] = yield ListFolders(f"{shared}/{term}")
            for task in tasks:
                found.setdefault(task, []).append(f"{shared}/{term}/{task}")
        self._unswept = found

    def dispose(self) -> Steps[int]:
        """Delete claimed savepoints that the log has dropped. Return the number of files. Any owner may repeat it.

        1. Read the pins and the metadata of each savepoint. If it is pinned, leave it for later. If it is missing, it was
           deleted before. If it is not the savepoint that was claimed, it was put there by someone else, and it stays.
        2. Delete the files that the metadata names in the savepoint's own folder. A crash leaves a savepoint that no job
           can start from, and that is still listed in the entry.
        3. Delete `_metadata`, `_claimed` and the COMMITTED record. A crash leaves only its name in the entry.
        4. The next entry of the store no longer lists it.
        """
        store, deleted = self._store, 0
        listed = [ref for ref in store.entry.disposing if ref.metadata not in store.disposed]
        # Usually no savepoint waits to be deleted, and the pins need not be read.
        pinned = {pin.metadata for pin in (yield from read_pins(self._layout))} if listed else set()
        for ref in listed:
            if ref.metadata in pinned:
                continue
            body: bytes | None = yield Get(ref.metadata)
            contents = yield from verified(store.read, ref, body)
            if contents is not None:
                folder = ref.metadata.removesuffix("_metadata")
                names = yield from self._names(contents.lists, contents.root)
                files = contents.files.union(*names.values())
                # tidegate writes all files of a savepoint below it. A forged one could name any file of the job.
                own_files = {path for path in files if path.startswith(folder)}
                reach("dispose.1-read", term=store.term)
                yield from self._delete(own_files)
                reach("dispose.2-files", term=store.term)
                deleted += len(own_files) + 1
            # If someone else put another savepoint there (body, but not ours), nothing of it is touched. `_claimed` of
            # one that is already gone is removed all the same.
            if contents is not None or body is None:
                yield Delete((ref.metadata, claimed_record(ref.metadata), record_path(self._layout, ref)))
            reach("dispose.3-metadata", term=store.term)
            store.disposed.add(ref.metadata)
        return deleted

    def trim_log(self) -> Steps[int]:
        """Delete old folders of the log, once for each folder that this owner writes to. Return the number of entries."""
        entry = self._store.entry
        # A new folder begins once in about a thousand entries; in between, listing would cost a request for nothing.
        if entry.folder == self._trimmed_for:
            return 0
        deleted = yield from trim(self._layout, entry, self._parallel)
        self._trimmed_for = entry.folder
        return deleted

    def _delete(self, paths: Iterable[str]) -> Steps[None]:
        if some := tuple(sorted(paths)):
            yield Delete(some, self._parallel)

    def _held(self, in_flight: InFlight) -> Steps[_HeldBack]:
        """Everything that pins, pending checkpoints and uncommitted output need."""
        held, root = _HeldBack(), self._layout.root
        for contents in self._store.uncommitted:
            held.names |= contents.staged
        for pin in (yield from read_pins(self._layout)):
            body: bytes | None = yield Get(pin.metadata)
            # A pin on a checkpoint that is gone holds nothing: it came too late, and its process removes it.
            if body is not None:
                try:
                    contents = yield from read_contents(self._store.read, pin.metadata, body)
                except MetadataError as error:
                    # Fail closed: a pin that cannot be read might hold any file. The job continues without clean-up.
                    raise CleaningSkipped(pin.metadata, str(error)) from error
                held.names |= contents.files | contents.staged | {pin.metadata, committed_record(pin.metadata)}
                held.lists |= {each.id: each for each in contents.lists_in(root)}
        # Also if there are none: pins that were removed since give up their lists here.
        self._shared.lists.hold(held.lists.values())
        # Their files are on offer to tasks that upload right now.
        for base in in_flight.bases:
            contents = self._store.contents[base]
            held.names |= contents.files
            held.lists |= {each.id: each for each in contents.lists_in(root)}
        return held

    def _names(self, lists: Collection[HeldList], root: str | None = None) -> Steps[dict[ListId, frozenset[str]]]:
        """Return the objects of each list. A list that is missing or damaged is left out."""
        root = self._layout.root if root is None else root
        names: dict[ListId, frozenset[str]] = {}
        stored: dict[ListId, tuple[str, ...]] = {}
        for each in lists:
            if isinstance(each.files, FileList):
                names[each.id] = objects_of(root, each.files, each.files)
            else:
                stored[each.id] = tuple(name_below(root, path) for path in each.files.paths)
        # Several lists may have one base.
        # Loaded with concurrent requests: one after the other, 64 tasks would take 64 round trips.
        wanted = tuple(dict.fromkeys(name for paths in stored.values() for name in paths))
        bodies: dict[str, bytes] = (yield GetMany(wanted)) if wanted else {}
        for each in lists:
            if isinstance(each.files, FileList) or not all(name in bodies for name in stored[each.id]):
                continue
            try:
                listed = list_in(each.files, [bodies[name] for name in stored[each.id]])
            except MetadataError:
                # Reported as a metric and left out of the result, which makes the caller spare the task.
                self.unreadable.update(stored[each.id])
                continue
            names[each.id] = objects_of(root, listed, each.files)
        return names
