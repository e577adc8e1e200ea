"""Claiming a job, and the heartbeat of its owner.

The claim itself is a log entry, so the store decides it. The heartbeat is only a courtesy: a start without force does
not take over a job whose owner is alive. A wrong guess about liveness costs a restart, never a result.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

import msgspec

from tidegate.checkpoint.effects import Get, Put, Sleep, Steps
from tidegate.checkpoint.job_log import entry as entries
from tidegate.checkpoint.job_log.entry import Entry, Signature
from tidegate.checkpoint.job_log.log import ClaimLost, append, newest, path_of
from tidegate.checkpoint.job_log.log_end import check_end
from tidegate.checkpoint.job_log.start import (
    GONE,
    Refuse,
    Resume,
    Start,
    decide,
    is_copy,
    last_run,
    refuse_copy,
    refused,
)
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.faults import reach
from tidegate.core.history import UNBOUNDED
from tidegate.core.ids import Lineage, Term
from tidegate.storage.port import Nonce, Won


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Body of `owner`.

    It changes with every beat; `slot` is the end of the log as its writer last saw it, as a hint.
    """

    term: Term
    beat: int
    slot: int
    process: str = ""
    """The process of the owner, by a name that other processes on its machine can check (`core.processes`)."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Heartbeat).decode


def claim(
    layout: JobLayout,
    start: Start,
    sign: Callable[[], Signature],
    new_lineage: Callable[[], Lineage],
    patience_ms: int,
    force: bool = False,
    process: str = "",
    has_died: Callable[[str], bool] = lambda process: False,
) -> Steps[Entry]:
    """Claim the job, or raise `StartRefused`. `sign` creates a new signature for every body. `process` is the claimant.

    1. Read the heartbeat and the end of the log. If the last run has not ended, watch both for `patience_ms` on our own
       clock. `force` skips the watching, but only for the owner seen first, so two forced starts do not fight. An owner
       that `has_died` reports as dead is not watched either: a driver restarted on the machine where it was killed need
       not wait. Traces of entries after that end mean that entries were deleted: `LogCorrupt`.
    2. Decide by the table of starts. If the start is refused, nothing was written. A snapshot that was named is looked for
       again, because another driver may have claimed and deleted it since it was read. If it is there, and the entry that was
       read does not dispose of it, nobody deletes it before our entry, which is the next one.
    3. Write the claim to the slot after the entry read. A crash right after this leaves a claim without a heartbeat:
       the next start waits once and proceeds. If a checkpoint of the old owner took the slot, repeat from 1 with that
       checkpoint as the newer base. If another claim took it, repeat from 1 with its writer as the owner.
    4. Write a heartbeat.
    """
    evicted: Term | None = None
    # Another round only if somebody else has written an entry meanwhile.
    while True:
        # Before the end of the log: traces that are read first cannot be of an entry that was written after that end.
        beat = yield from read_heartbeat(layout)
        before = yield from newest(layout, beat.slot if beat else 0)
        alive = False
        if before is not None and before.outcome is None:
            # `--force` is meant for this owner. If another start claims the job meanwhile, that one is watched like any
            # other.
            if evicted is None:
                evicted = before.term
            # Only a heartbeat of the newest term says something about its owner.
            gone = beat is not None and beat.term == before.term and has_died(beat.process)
            if not gone and not (force and before.term == evicted):
                # On our own clock: clocks of two machines are never compared.
                yield Sleep(patience_ms)
                later = yield from read_heartbeat(layout)
                after = yield from newest(layout, before.slot)
                # A new entry is a sign of life as well.
                alive = after != before or _moved(before.term, beat, later)
                # What was read before the wait may be outdated; the claim must follow the newest entry.
                before = after
        # Before the decision: from a log that was cut off, an older checkpoint would look like the newest.
        yield from check_end(layout, before, beat.slot if beat else 0, beat.term if beat else 0)
        reach("claim.1-read")
        decision = decide(before, start, alive)
        if isinstance(decision, Refuse):
            raise refused(last_run(before, alive), decision)
        base = decision.base
        if base is not None and base == start.source and (yield Get(base.metadata)) is None:
            raise refused(last_run(before, alive), GONE)
        lineage = decision.lineage if isinstance(decision, Resume) else new_lineage()
        reach("claim.2-decided")
        mine = entries.claim(
            before, sign(), lineage, base, start.accepted, start.unbounded, start.location, start.carried
        )
        # Only with `--fresh`, or the decision would have refused it.
        if is_copy(before, start):
            mine = entries.in_copy(mine)
        result = yield from append(layout, mine)
        if isinstance(result, Won):
            reach("claim.3-won")
            yield from show_life(layout, mine, 0, process)
            reach("claim.4-shown")
            return mine
        # Lost to an entry of a later folder (`append`): this slot was taken, and deleted since.
        if result.slot > mine.slot:
            # The claim may have been in the log, and others have followed it while this driver slept. It does not claim twice.
            raise ClaimLost(mine.term, result)


def claim_again(layout: JobLayout, last: Entry, ours: Container[Nonce], sign: Callable[[], Signature]) -> Steps[Entry]:
    """Claim the job under a new term, in the same driver, after a failure that left the outcome of a write unknown.

    `last` is the last entry known to be ours, `ours` the nonces of entries that we tried to write since. Raises
    `ClaimLost` if another driver has claimed the job meanwhile; the job is never taken back from it.

    1. Read the end of the log. An entry of ours after `last` was written without our knowledge: it counts.
    2. Write the claim to the slot after it. If a late write of ours took the slot, repeat from 1. After this, nothing
       that the previous term still has in flight can enter the log.
    3. Write a heartbeat.
    """
    while True:
        before = yield from newest(layout, last.slot)
        if before is None or before.slot < last.slot:
            raise entries.LogCorrupt(path_of(layout, last), "was written by this driver and is gone")
        # By nonce, not by term: an entry of this term that this driver did not sign is not its own.
        if before.nonce != last.nonce and before.nonce not in ours:
            raise ClaimLost(last.term, before)
        reach("claim-again.1-read")
        decision = decide(before, Start())
        if isinstance(decision, Refuse):
            raise refused(last_run(before, False), decision)
        assert isinstance(decision, Resume)
        # The mode of the run does not change with a new term. Its first claim has recorded it.
        unbounded = bool(last.claims) and last.claims[-1].last == UNBOUNDED
        mine = entries.claim(before, sign(), decision.lineage, decision.base, unbounded=unbounded)
        if isinstance((yield from append(layout, mine)), Won):
            reach("claim-again.2-won")
            yield from show_life(layout, mine, 0)
            return mine


def check_location(layout: JobLayout, start: Start) -> Steps[None]:
    """Raise `DirectoryMoved` if the log was written elsewhere. The claim decides it again; this is for a start that must not ask
    its targets first, whose answer would be confusing."""
    before = yield from newest(layout)
    refusal = refuse_copy(before, start)
    if refusal is not None:
        raise refused(last_run(before, alive=False), refusal)


def read_heartbeat(layout: JobLayout) -> Steps[Heartbeat | None]:
    data: bytes | None = yield Get(layout.owner)
    try:
        return None if data is None else _decode(data)
    # A damaged heartbeat is none: it is a courtesy, and the next beat replaces it.
    except msgspec.MsgspecError:
        return None


def show_life(layout: JobLayout, mine: Entry, beat: int, process: str = "") -> Steps[None]:
    """Write one heartbeat.

    Raises `ClaimLost` if a newer term already has a heartbeat: stopping early is better than failing to complete a checkpoint.
    """
    seen = yield from read_heartbeat(layout)
    if seen is not None and seen.term > mine.term:
        winner = yield from newest(layout, seen.slot)
        if winner is not None and winner.term > mine.term:
            raise ClaimLost(mine.term, winner)
    # A successor that claims in this moment may lose its first heartbeat to this one, and writes the next. Nothing but
    # courtesy depends on it.
    yield Put(layout.owner, _encode(Heartbeat(mine.term, beat, mine.slot, process)))


def _moved(term: Term, before: Heartbeat | None, after: Heartbeat | None) -> bool:
    """Whether the owner of `term` wrote a heartbeat in between. Heartbeats of former owners that woke up do not count."""
    return after is not None and after.term == term and after != before
