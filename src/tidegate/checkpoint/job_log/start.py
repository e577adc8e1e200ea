"""The table of starts: how the last run ended × how this one is requested → resume, start fresh, or refuse.

Pure. A claim is written only for the first two, to the slot after the entry the decision was based on; if that slot is
taken meanwhile, the decision is repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from tidegate.checkpoint.job_log.entry import CheckpointRef, Entry, EntryKind, RunOutcome
from tidegate.core.errors import RestoreError
from tidegate.core.history import knows
from tidegate.core.ids import EpochId, Lineage, ordinal


class LastRun(Enum):
    """How the last run of a job ended, according to its log and heartbeat."""

    NEVER_RAN = "never ran"
    FINISHED = "finished"
    CANCELED = "canceled"
    FAILED = "failed"
    CRASHED = "suspended or crashed"
    STOPPED = "stopped with savepoint"
    RUNNING = "running elsewhere"


class StartRequest(Enum):
    """How a start is requested: a column of the table."""

    PLAIN = "plain"
    ROLLBACK = "from its own checkpoint or savepoint"
    GONE = "from its own checkpoint, no longer retained"
    AGAIN = "from another job's, from which the last run started and completed no checkpoint"
    FOREIGN = "from another job's"
    FRESH = "fresh"
    FRESH_FROM = "fresh, from a checkpoint or savepoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the user requests.

    `source` is the checkpoint or savepoint given by path, resolved; `fresh` abandons the history.
    """

    source: CheckpointRef | None = None
    fresh: bool = False
    accepted: tuple[EpochId, ...] = ()
    """Output in targets that the log does not know, and that the user accepts (`core.history`)."""
    unbounded: bool = False
    """Whether the run commits output before its checkpoint (mode AT_LEAST_ONCE)."""
    carried: tuple[EpochId, ...] = ()
    """Epochs whose output `source` carries, of its lineage: the log may not know them, if it is older."""
    location: str = ""
    """Where the job's directory is (`storage.place`). Empty: not known, for tests."""
    accepts_move: bool = False
    """Whether the user says that the directory was moved, and that nobody uses it at its old place."""


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


@dataclass(frozen=True, slots=True)
class RefuseCopy(Refuse):
    """The log was written elsewhere: this directory may be a copy."""


class StartRefused(RestoreError):
    """The job cannot be started as asked. Nothing was changed."""

    code = "START_REFUSED"

    def __init__(self, last: LastRun, refusal: Refuse) -> None:
        self.last = last
        self.refusal = refusal
        super().__init__(f"{refusal.why} {refusal.what_to_do}")


class DirectoryMoved(StartRefused):
    """The job's directory is not where its last run used it: it was moved, or it is a copy."""

    code = "DIRECTORY_MOVED"


def refused(last: LastRun, refusal: Refuse) -> StartRefused:
    """Return the error for a refusal."""
    return DirectoryMoved(last, refusal) if isinstance(refusal, RefuseCopy) else StartRefused(last, refusal)


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

_LOST_HISTORY = Refuse(
    "That savepoint is of a history that this job has not continued: its checkpoint directory was restored from an older backup, "
    "or the run that wrote the savepoint did not live to record it, and the job has run since. Output that the savepoint carries "
    "could not be told from output of this history.",
    "To continue from it, begin a new line of history: --fresh -s. Otherwise choose one that `tidegate checkpoints` lists.",
)
_OF_ORIGINAL = RefuseCopy(
    "That checkpoint or savepoint is of another line of history than the job continues here: the directory is a copy, and its "
    "original continues that line.",
    "Add --fresh to begin a new line of history from it. If the original is gone for good, use --accept-moved-directory.",
)

_ENDS = {
    RunOutcome.FINISHED: LastRun.FINISHED,
    RunOutcome.CANCELED: LastRun.CANCELED,
    RunOutcome.FAILED: LastRun.FAILED,
    RunOutcome.SUSPENDED: LastRun.CRASHED,
    RunOutcome.STOPPED: LastRun.STOPPED,
}


def _running(newest: Entry) -> Refuse:
    what = "has held the job since" if newest.kind is EntryKind.CLAIM else "completed its last checkpoint at"
    return Refuse(
        f"The job is running elsewhere: {newest.owner} writes its heartbeat, and {what} {_moment(newest.at_ms)}.",
        "Stop that run first (`tidegate stop`, or SIGTERM to its process). If it hangs, take the job over with --force "
        "(force=True). If it is another job, give this one another name.",
    )


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def last_run(newest: Entry | None, alive: bool) -> LastRun:
    if newest is None:
        return LastRun.NEVER_RAN
    if newest.outcome is not None:
        return _ENDS[newest.outcome]
    return LastRun.RUNNING if alive else LastRun.CRASHED


def request_of(newest: Entry | None, start: Start) -> StartRequest:
    """Return the column of the table for a request."""
    source = start.source
    if source is None:
        return StartRequest.FRESH if start.fresh else StartRequest.PLAIN
    # By the whole reference, with its checksum: the path alone may name another checkpoint by now.
    if source.owned and (newest is None or source not in newest.retained):
        return StartRequest.GONE
    if newest is not None and any(source.metadata == ref.metadata for ref in newest.disposing):
        return StartRequest.GONE  # A claimed savepoint that is being deleted.
    if start.fresh:
        return StartRequest.FRESH_FROM
    if newest is None:
        return StartRequest.FOREIGN
    if source.owned or source.lineage == newest.lineage:
        return StartRequest.ROLLBACK
    return StartRequest.AGAIN if begins_again(newest, source) else StartRequest.FOREIGN


def begins_again(newest: Entry, source: CheckpointRef) -> bool:
    """Whether the job of this log started from `source` and has completed no checkpoint since. Then the log says of its output
    the same as after the first start from there: nothing was committed."""
    base = newest.base
    return base is not None and (base.metadata, base.checksum) == (source.metadata, source.checksum)


def is_copy(newest: Entry | None, start: Start) -> bool:
    """Whether the log was written in another place: the original may be in use there, or be started again.

    A log of an earlier version says nothing about its place, and learns it with the next claim.
    """
    if newest is None or not newest.location or not start.location or start.accepts_move:
        return False
    return newest.location != start.location


def refuse_copy(newest: Entry | None, start: Start) -> RefuseCopy | None:
    """Refuse to continue the log of a copy. A new line of history may begin there: the original keeps the old one."""
    if newest is None or start.fresh or not is_copy(newest, start):
        return None
    return RefuseCopy(
        f"The job's directory is at {start.location}, but its last run used it at {newest.location}. If it is a copy, both would "
        "continue one line of history and write to the same targets.",
        "To start a job of its own from the copy, use `--fresh -s CHECKPOINT`: it gets a new line of history. If the directory "
        "was moved, and nobody will start the job at its old place, use --accept-moved-directory "
        "(execution.state-recovery.accept-moved-directory) once. If it is the same directory under another address, use the old "
        "address, or the same option.",
    )


def is_of_original(newest: Entry, source: CheckpointRef) -> bool:
    """Whether a snapshot is of the time before this directory was copied."""
    return source.lineage != newest.lineage and ordinal(source.term) < ordinal(newest.here_since)


def is_of_lost_history(newest: Entry, start: Start) -> bool:
    """Whether a savepoint of this lineage was written, or carries output, after this log branched off from its history: it has
    epochs that the log does not know, and the log has later claims of its own. The markers of those would cover its output.

    A log that is only older has no such claims: it learns what the savepoint knows.
    """
    source = start.source
    if source is None or source.owned or source.lineage != newest.lineage:
        return False
    unknown = [epoch for epoch in (source.epoch, *start.carried) if not knows(newest.claims, epoch)]
    return any(
        claim.own and claim.term != epoch.term and ordinal(claim.term) >= ordinal(epoch.term)
        for epoch in unknown
        for claim in newest.claims
    )


def decide(newest: Entry | None, start: Start, alive: bool = False) -> Resume | StartFresh | Refuse:
    """Return one cell of the table.

    `alive` says that the heartbeat of the current owner changed, and that it is not being forced out.
    """
    last = last_run(newest, alive)
    asked = request_of(newest, start)
    # First: about a job that runs, everything else may be different in a moment.
    if newest is not None and last is LastRun.RUNNING:
        return _running(newest)
    if (copy := refuse_copy(newest, start)) is not None:
        return copy
    # Also with `--fresh`: files of a checkpoint that is no longer retained may be half deleted.
    if asked is StartRequest.GONE:
        return GONE
    if newest is None or start.fresh:
        return StartFresh(start.source)
    if asked is StartRequest.AGAIN and last is not LastRun.FINISHED:
        # What a plain start does, too. It is the user's reference, who may claim the savepoint this time.
        return Resume(start.source, newest.lineage)
    if asked in (StartRequest.FOREIGN, StartRequest.AGAIN):
        return _FOREIGN
    if start.source is not None:
        if is_of_original(newest, start.source) and not start.accepts_move:
            return _OF_ORIGINAL
        if is_of_lost_history(newest, start):
            return _LOST_HISTORY
        return Resume(start.source, start.source.lineage)
    if last is LastRun.FINISHED:
        return _FINISHED
    # A plain start would begin from the beginning and repeat output that was committed. So the user decides.
    if newest.base is not None and newest.base.is_ours and newest.base not in newest.retained:
        return _GIVEN_UP
    return Resume(newest.base, newest.lineage)
