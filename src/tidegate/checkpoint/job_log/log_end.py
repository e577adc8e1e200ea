"""Checks that the end found in a log is its true end: deleted entries leave traces elsewhere.

Only traces that an entry of the log must have preceded are evidence:

- the slot and the term in the heartbeat, which an owner writes after it has won that slot;
- terms in the names of state files and staged rows, since every term starts with a claim in the log;
- `_committed` next to a `_metadata`, which is written after the entry that completed the checkpoint.

A `chk-{id}` above the last completed id is not evidence by itself: a driver that dies between `_metadata` and its entry
leaves one, and so does a failed checkpoint.
"""

from __future__ import annotations

import re

from tidegate.checkpoint.effects import Get, ListFolders, Steps
from tidegate.checkpoint.job_log.entry import Entry, LogCorrupt
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.layout import JobLayout, committed_record
from tidegate.core.ids import ordinal

_CHECKPOINT = re.compile(r"chk-(\d+)(?:\.(\d+))?")


def check_end(layout: JobLayout, end: Entry | None, seen_slot: int = 0, seen_term: int = 0) -> Steps[None]:
    """Raise `LogCorrupt` if entries after `end` once existed. `seen_…` are from a heartbeat that was read before `end`.

    1. Look for traces beyond `end`. If there are none, it is the end.
    2. Read the end again: a driver may have written entries meanwhile. Only traces beyond the new end, too, are
       evidence.
    """
    slot, term, last_id = _reach(end)
    seen_id = last_id
    # The heartbeat alone does not prove a gap. Listings cost three requests, and are asked for only if it does not
    # disagree already.
    if seen_slot <= slot and seen_term <= term:
        folders: list[str] = yield ListFolders(layout.root)
        # Names of terms only, with a delimiter: not the files below them.
        for folder in ("shared", "taskowned"):
            names: list[str] = (yield ListFolders(f"{layout.root}/{folder}")) if folder in folders else []
            seen_term = max((seen_term, *(int(name) for name in names if name.isdigit())))
        seen_id = yield from _committed_beyond(layout, folders, last_id)
        if seen_term <= term and seen_id <= last_id:
            return
    # Something lies beyond the end. Either a driver has written entries since, or they were deleted.
    end = yield from newest(layout, slot)
    slot, term, last_id = _reach(end)
    why = None
    if seen_slot > slot:
        why = f"the heartbeat names slot {seen_slot}"
    elif seen_term > term:
        why = f"term {ordinal(seen_term)} left traces"
    elif seen_id > last_id:
        why = f"checkpoint {seen_id} was completed"
    if why is not None:
        missing = layout.log(slot + 1, 0 if end is None else end.next_folder)
        raise LogCorrupt(missing, f"is missing: the log ends before it, but {why}")


def _reach(end: Entry | None) -> tuple[int, int, int]:
    return (0, 0, 0) if end is None else (end.slot, end.term, end.last_id)


def _committed_beyond(layout: JobLayout, folders: list[str], last_id: int) -> Steps[int]:
    """Return the greatest id above `last_id` whose output was recorded as committed, or `last_id`."""
    greatest = last_id
    for folder in folders:
        found = _CHECKPOINT.fullmatch(folder)
        if found is not None and int(found[1]) > greatest:
            record: bytes | None = yield Get(committed_record(f"{layout.root}/{folder}/_metadata"))
            greatest = greatest if record is None else int(found[1])
    return greatest
