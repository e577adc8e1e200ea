"""Reading the end of a job's log and writing the next entry.

Only the log decides who owns a job and what it consists of.
"""

from __future__ import annotations

from tidegate.checkpoint import entry as entries
from tidegate.checkpoint.effects import Create, Get, Steps
from tidegate.checkpoint.entry import Entry
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.errors import CheckpointError
from tidegate.storage.port import Lost, Won


class ClaimLost(CheckpointError):
    """Another driver has claimed the job. This one must stop; it deletes nothing and commits nothing more."""

    code = "CLAIM_LOST"

    def __init__(self, mine: int, winner: Entry) -> None:
        self.mine = mine
        self.winner = winner
        super().__init__(
            f"The job was claimed by {winner.owner} (term {winner.term}) while this driver (term {mine}) was running. "
            "This driver stops. Nothing is lost: the other one continued from the newest checkpoint. If you did not start it, "
            "look for a second deployment of the same job name."
        )


def newest(layout: JobLayout, hint: int = 0) -> Steps[Entry | None]:
    """Return the last entry of the log, or None if it is empty.

    Entries are gapless and never removed, so "slot n exists" is true up to the end and false after it. The end is found
    by an exponential search from `hint` and bisection: at most 2·log2(entries) reads, two if the hint is right. A wrong
    hint costs reads, never correctness.
    """
    found = (yield from _read(layout, hint)) if hint > 0 else None
    known = hint if found is not None else 0
    step = 1
    while (probe := (yield from _read(layout, known + step))) is not None:
        found, known, step = probe, known + step, step * 2
    absent = known + step
    while absent - known > 1:
        middle = (known + absent) // 2
        probe = yield from _read(layout, middle)
        if probe is None:
            absent = middle
        else:
            found, known = probe, middle
    return found


def append(layout: JobLayout, entry: Entry) -> Steps[Won | Entry]:
    """Try to write `entry` to its slot. Return `Won`, or the entry that holds the slot instead.

    `OutcomeUnknown` propagates: a driver that cannot learn what its slot holds must stop as if it had crashed. The next
    claim reads what was decided.
    """
    result: Won | Lost = yield Create(layout.log(entry.slot), entries.to_bytes(entry), entry.nonce)
    if isinstance(result, Lost):
        return entries.from_bytes(result.existing, layout.log(entry.slot))
    return result


def history(layout: JobLayout, last: int) -> Steps[tuple[Entry, ...]]:
    """Return every entry up to slot `last`, checked. For people and tests; no protocol needs it."""
    read = []
    for slot in range(1, last + 1):
        found = yield from _read(layout, slot)
        if found is None:
            raise entries.LogCorrupt(layout.log(slot), "is missing")
        read.append(found)
    entries.fold(read, f"{layout.root}/log")
    return tuple(read)


def _read(layout: JobLayout, slot: int) -> Steps[Entry | None]:
    path = layout.log(slot)
    data: bytes | None = yield Get(path)
    if data is None:
        return None
    found = entries.from_bytes(data, path)
    if found.slot != slot:
        raise entries.LogCorrupt(path, f"says that it is slot {found.slot}")
    return found
