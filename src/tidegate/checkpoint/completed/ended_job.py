"""Finds the files that nothing needs of a job that has ended, for a process that does not own it.

A job that runs, or that crashed, finds them itself: its next sweep does. This is for a job that nobody will start again, or not
soon.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.checkpoint.completed.cleaner import Cleaner
from tidegate.checkpoint.completed.completed_store import CheckpointUnreadable, CompletedCheckpointStore
from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.files.contents import Reader
from tidegate.checkpoint.job_log.entry import Entry, Signature
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.layout import JobLayout


def unneeded_files(layout: JobLayout, read: Reader) -> Steps[list[str]]:
    """Return the files to delete, none if the job has not ended. Raises `CheckpointUnreadable` if a snapshot cannot be read: what
    it needs is unknown.

    1. Read the newest entry. If it does not end its run, its owner may complete checkpoints out of files that no entry names.
    2. Note what the snapshots need that the entry names, and list the others.
    3. Read the newest entry again. If a driver has claimed the job since step 1, it may carry rows that another one has recorded
       as committed only after that. Nothing is returned then.
    The files may be deleted at any time after that: no later entry refers to them (see `shared`).
    """
    end = yield from newest(layout)
    if end is None or end.outcome is None:
        return []
    store = CompletedCheckpointStore(layout, _without_discarded_base(end), read, _unsigned)
    yield from store.recover()
    if store.unreadable:
        raise CheckpointUnreadable(store.unreadable[0], "is missing, or is not what its log entry says")
    # No retention and no threads: nothing is deleted here.
    files = yield from Cleaner(store).left_by_ended_run()
    # With the slot as a hint this is three reads.
    again = yield from newest(layout, end.slot)
    return files if again == end else []


def _without_discarded_base(end: Entry) -> Entry:
    """A job that ended without keeping its checkpoints names the last one as its base, which is gone."""
    is_discarded = end.base is not None and end.base.is_ours and end.base not in end.retained
    return replace(end, base=None) if is_discarded else end


def _unsigned() -> Signature:
    raise AssertionError("who only looks writes no entry")
