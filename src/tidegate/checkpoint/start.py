"""The table of starts: how the last run ended × how this one is requested → resume, start fresh, or refuse.

Pure. A claim is written only for the first two, to the slot after the entry the decision was based on; if that slot is
taken meanwhile, the decision is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidegate.checkpoint.entry import CheckpointRef, Entry, RunOutcome
from tidegate.core.errors import RestoreError
from tidegate.core.ids import Lineage


class LastRun(Enum):
    """How the last run of a job ended, according to its log and heartbeat."""

    NEVER_RAN = "never ran"
    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"
    CRASHED = "suspended or crashed"
    STOPPED = "stopped with savepoint"
    RUNNING = "running elsewhere"


class How(Enum):
    """How a start is requested."""

    PLAIN = "plain"
    ROLLBACK = "from its own checkpoint or savepoint"
    GONE = "from its own checkpoint, no longer retained"
    FOREIGN = "from another job's"
    FRESH = "fresh"
    FRESH_FROM = "fresh, from a checkpoint or savepoint"


@dataclass(frozen=True, slots=True)
class Start:
    """What the user requests.

    `source` is the checkpoint or savepoint given by path, resolved; `fresh` abandons the history.
    """

    source: CheckpointRef | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """Continue in the same lineage, from `base` (None: from the beginning; no output was ever made visible)."""

    base: CheckpointRef | None
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class StartFresh:
    """Start a new lineage, with the state of `base` if there is one. The origin commits the uncommitted output of `base`."""

    base: CheckpointRef | None


@dataclass(frozen=True, slots=True)
class Refuse:
    why: str
    what_to_do: str


class StartRefused(RestoreError):
    """The job cannot be started as asked. Nothing was changed."""

    code = "START_REFUSED"

    def __init__(self, last: LastRun, refusal: Refuse) -> None:
        self.last = last
        self.refusal = refusal
        super().__init__(f"{refusal.why} {refusal.what_to_do}")


_RUNNING = Refuse(
    "The job is running elsewhere: its heartbeat moved.",
    "Stop that run first, or take the job over with --force if you know that it hangs.",
)
_FINISHED = Refuse(
    "The job has finished; there is nothing to resume.",
    "Start it with --fresh to run it again from the beginning, or from a savepoint with -s.",
)
GONE = Refuse(
    "That checkpoint or savepoint is no longer retained; its files may be gone or may go at any moment.",
    "Choose one that `tidegate checkpoints` lists, or a savepoint.",
)
_FOREIGN = Refuse(
    "That checkpoint or savepoint belongs to another line of history than the job of this name.",
    "Give the new run another name, or add --fresh to abandon this job's history.",
)
_GIVEN_UP = Refuse(
    "The job's checkpoints were deleted when it ended, as its retention says, and output may have been committed since.",
    "Start it with --fresh to run it again from the beginning, or from a savepoint with -s.",
)

_ENDS = {
    RunOutcome.FINISHED: LastRun.FINISHED,
    RunOutcome.CANCELED: LastRun.CANCELED,
    RunOutcome.FAILED: LastRun.FAILED,
    RunOutcome.SUSPENDED: LastRun.CRASHED,
    RunOutcome.STOPPED: LastRun.STOPPED,
}


def last_run(newest: Entry | None, alive: bool) -> LastRun:
    if newest is None:
        return LastRun.NEVER_RAN
    if newest.outcome is not None:
        return _ENDS[newest.outcome]
    return LastRun.RUNNING if alive else LastRun.CRASHED


def how(newest: Entry | None, start: Start) -> How:
    """Return the column of the table for a request."""
    source = start.source
    if source is None:
        return How.FRESH if start.fresh else How.PLAIN
    if source.owned and (newest is None or source not in newest.retained):
        return How.GONE
    if newest is not None and any(source.metadata == ref.metadata for ref in newest.disposing):
        return How.GONE  # A claimed savepoint that is being deleted.
    if start.fresh:
        return How.FRESH_FROM
    own = newest is not None and (source.owned or source.lineage == newest.lineage)
    return How.ROLLBACK if own else How.FOREIGN


def decide(newest: Entry | None, start: Start, alive: bool = False) -> Resume | StartFresh | Refuse:
    """Return one cell of the table.

    `alive` says that the heartbeat of the current owner changed, and that it is not being forced out.
    """
    last = last_run(newest, alive)
    asked = how(newest, start)
    if last is LastRun.RUNNING:
        return _RUNNING
    if asked is How.GONE:
        return GONE
    if newest is None or start.fresh:
        return StartFresh(start.source)
    if asked is How.FOREIGN:
        return _FOREIGN
    if start.source is not None:
        return Resume(start.source, start.source.lineage)
    if last is LastRun.FINISHED:
        return _FINISHED
    if newest.base is not None and newest.base.is_ours and newest.base not in newest.retained:
        return _GIVEN_UP
    return Resume(newest.base, newest.lineage)
