"""Reading the end of a job's log, writing the next entry, and deleting old ones.

Only the log decides who owns a job and what it consists of. Its first entry is in the folder `log`, all others are in folders of
up to a thousand entries, `entries/{first slot}/{slot}`. The owner deletes old folders, so a slot that is absent may have
existed. Two rules replace "entries are never removed":

- Entries of the folder with the greatest number, and of the one before it, are never deleted. So a greatest folder that has not
  changed proves that nothing in it was deleted.
- An entry counts when its slot was won and no later folder has an entry. A driver that slept while its slot was taken and
  deleted can still create that name, and learns from the listing that it owns nothing (decision 0029).
"""

from __future__ import annotations

from tidegate.checkpoint.effects import Create, Delete, Get, ListFolders, ListNames, Steps, Sweep
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import Entry
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.errors import CheckpointError, StorageError
from tidegate.core.faults import reach
from tidegate.core.ids import ordinal
from tidegate.storage.errors import OutcomeUnknown
from tidegate.storage.port import Lost, Won


class ClaimLost(CheckpointError):
    """Another driver has claimed the job. This one must stop; it deletes nothing and commits nothing more."""

    code = "CLAIM_LOST"

    def __init__(self, mine: int, winner: Entry) -> None:
        self.mine = mine
        self.winner = winner
        super().__init__(
            f"The job was claimed by {winner.owner} (term {ordinal(winner.term)}) while this driver (term {ordinal(mine)}) was "
            "running. "
            "This driver stops. Nothing is lost: the other one continued from the newest checkpoint. If you did not start it, "
            "look for a second deployment of the same job name."
        )


def path_of(layout: JobLayout, entry: Entry) -> str:
    return layout.log(entry.slot, entry.folder)


def newest(layout: JobLayout, hint: int = 0) -> Steps[Entry | None]:
    """Return the last entry of the log, or None if it is empty.

    1. List the folders.
    2. Find the last entry of the last folder that has entries; without such a folder, of `log`. Slots are gapless, so the
       end is found by an exponential search from `hint` and bisection: three reads if the hint is right, about 20 if there
       is none. A wrong hint costs reads, never correctness.
    3. List the folders again. If the last one is the same, nothing that was read or looked for in step 2 has been deleted
       meanwhile. Otherwise repeat: whoever reads here may have slept for any time.
    """
    last = yield from _folders(layout)
    while True:
        found = yield from _end_in(layout, last, hint)
        now = yield from _folders(layout)
        if now[-1:] == last[-1:]:
            return found
        last = now


def append(layout: JobLayout, entry: Entry) -> Steps[Won | Entry]:
    """Try to write `entry` to its slot. Return `Won`, or an entry that shows that another driver was there first.

    1. Create the slot if absent. A crash after this leaves the entry in the log, unless step 2 would have refused it.
    2. List the folders. If an entry is in a later folder, the slot may have been taken and deleted before, and this name
       decides nothing: readers look only at the later folders, and the owner deletes it. A crash changes nothing.

    `OutcomeUnknown` propagates: a driver that cannot learn what its slot holds must stop as if it had crashed. The next
    claim reads what was decided.
    """
    path = path_of(layout, entry)
    result: Won | Lost = yield Create(path, entries.to_bytes(entry), entry.nonce)
    # An entry is in the slot, and it is not ours: `create` has compared the bodies.
    if isinstance(result, Lost):
        return entries.from_bytes(result.existing, path)
    reach("append.1-created", slot=entry.slot)
    if entry.folder == 0:
        return result  # entries of `log` are never deleted
    try:
        later = yield from _later(layout, entry)
    except StorageError as error:
        # The entry is written, and it is not known whether it counts. A plain error would mean that it does not.
        raise OutcomeUnknown.of(error.store, path, error) from error
    return result if later is None else later


def _later(layout: JobLayout, entry: Entry) -> Steps[Entry | None]:
    """Return an entry of a folder after that of `entry`, if there is one."""
    folders = yield from _folders(layout)
    if folders[-1:] <= [entry.folder]:
        return None
    # The later folder may be empty: a file system shows it as soon as a driver prepares to write its first entry.
    end = yield from newest(layout)
    return end if end is not None and end.folder > entry.folder else None


def trim(layout: JobLayout, mine: Entry, parallel: bool = False) -> Steps[int]:
    """Delete old folders: all but that of `mine`, which the caller has won, and the one before it. Return the number of entries.

    1. List the folders. All that are deleted are older than a durable entry, also if another driver owns the job by now.
    2. Delete the entries of each. A crash leaves some of them; the next call finds their folder.
    """
    # Sorted, so the one that is spared below is the newest of them.
    older = [folder for folder in (yield from _folders(layout)) if folder < mine.folder]
    deleted = 0
    reach("trim.1-listed", term=mine.term)
    for folder in older[:-1]:
        place = f"{layout.entries}/{folder:012d}"
        names: list[str] = yield ListNames(place)
        if not names:
            # File systems keep a folder in which a writer died: its unfinished file is never listed.
            yield Sweep(place)
        # An empty folder is removed with any name in it.
        yield Delete(tuple(names) or (layout.log(folder, folder),), parallel)
        deleted += len(names)
        reach("trim.2-deleted", term=mine.term)
    return deleted


def history(layout: JobLayout, last: int) -> Steps[tuple[Entry, ...]]:
    """Return the entries up to slot `last` that have not been deleted, checked. For people and tests; no protocol needs it."""
    paths: dict[int, tuple[str, int]] = {}
    flat: list[str] = yield ListNames(f"{layout.root}/log")
    for path in flat:
        paths[_slot_in(path)] = path, 0
    folders = yield from _folders(layout)
    for folder in folders:
        names: list[str] = yield ListNames(f"{layout.entries}/{folder:012d}")
        for path in names:
            paths[_slot_in(path)] = path, folder
    read: list[Entry] = []
    slot = last
    while slot in paths:
        path, folder = paths[slot]
        found = yield from _read(layout, slot, folder)
        if found is None:
            break
        read.append(found)
        slot -= 1
    # Older entries may be missing: those of deleted folders, and of folders that are being deleted.
    if slot > 0 and (len(folders) < 2 or slot >= folders[-2]):
        raise entries.LogCorrupt(f"{layout.root}: entry {slot} of the log", "is missing")
    read.reverse()
    if slot == 0:
        entries.fold(read, f"{layout.root}/log")
    else:
        entries.fold(read[1:], f"{layout.root}/log", read[0])
    return tuple(read)


def _slot_in(path: str) -> int:
    return int(path.rpartition("/")[2])


def _folders(layout: JobLayout) -> Steps[list[int]]:
    names: list[str] = yield ListFolders(layout.entries)
    return sorted(int(name) for name in names if name.isdigit())


def _end_in(layout: JobLayout, folders: list[int], hint: int) -> Steps[Entry | None]:
    for folder in reversed(folders):
        first = yield from _read(layout, folder, folder)
        if first is not None:
            return (yield from _last_in(layout, folder, first, hint))
    return (yield from _last_in(layout, 0, None, hint))


def _last_in(layout: JobLayout, folder: int, found: Entry | None, hint: int) -> Steps[Entry | None]:
    """Return the last entry of a folder. `found` is an entry of it, or None to begin before the first."""
    known = 0 if found is None else found.slot
    # The hint may be of another folder, or made up by a damaged heartbeat. It counts only if that slot exists here.
    if hint > known and (probe := (yield from _read(layout, hint, folder))) is not None:
        found, known = probe, hint
    # Exponential, then by halves: slots are gapless, so "exists" is true up to the end and false after it.
    step = 1
    while (probe := (yield from _read(layout, known + step, folder))) is not None:
        found, known, step = probe, known + step, step * 2
    absent = known + step
    while absent - known > 1:
        middle = (known + absent) // 2
        probe = yield from _read(layout, middle, folder)
        if probe is None:
            absent = middle
        else:
            found, known = probe, middle
    return found


def _read(layout: JobLayout, slot: int, folder: int) -> Steps[Entry | None]:
    path = layout.log(slot, folder)
    data: bytes | None = yield Get(path)
    if data is None:
        return None
    found = entries.from_bytes(data, path)
    if found.slot != slot:
        raise entries.LogCorrupt(path, f"says that it is slot {found.slot}")
    if found.folder != folder:
        raise entries.LogCorrupt(path, f"says that it is in the folder {found.folder}")
    return found
