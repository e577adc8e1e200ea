"""The outcomes of a commit. Each is handled differently.

| outcome | reported by | what the job does |
|---|---|---|
| committed | `commit` returns | continues |
| already committed | `commit` returns `ALREADY_COMMITTED` for the request | continues, and counts it |
| retry later | `RetryLater`, any retryable error of ours, any error that is not ours | keeps the rows and retries |
| failed, known | `CommitRefused`, any other error of ours | stops: nothing was committed, and a retry would fail again |
| failed, unknown | `CommitInDoubt` | stops: a retry might commit rows twice, skipping them might lose them |

A job that stops keeps the rows and the checkpoint that carries them; the next start commits them again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from tidegate.core.errors import ConnectorError, TidegateError
from tidegate.core.ids import EpochId, Slot, Uid, ordinal


class CommitOutcome(enum.Enum):
    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    """The marker in the target covers it. Nothing was changed."""
    RETRY_LATER = "retry later"
    FAILED_KNOWN = "failed, nothing was committed"
    FAILED_UNKNOWN = "failed, what was committed is not known"

    @property
    def stops_the_job(self) -> bool:
        return self in (CommitOutcome.FAILED_KNOWN, CommitOutcome.FAILED_UNKNOWN)


class RetryLater(ConnectorError):
    """The target does not take rows now. They are kept, and the commit is retried."""

    code = "COMMIT_LATER"
    retryable = True


class CommitRefused(ConnectorError):
    """The target does not take these rows, and will not until something is changed. None of them was committed."""

    code = "COMMIT_REFUSED"


class UntrustedOutput(CommitRefused):
    """A snapshot carries output that no writer of the sink can have left there. Nothing of it was committed."""

    code = "UNTRUSTED_OUTPUT"

    def __init__(self, sink: Uid, slot: Slot, epoch: EpochId, what: str) -> None:
        self.sink = sink
        self.slot = slot
        self.epoch = epoch
        super().__init__(
            f"The output of epoch {epoch} and slot {slot} for sink {sink!r} {what}. No writer of this sink left that in the "
            "checkpoint or savepoint, so nothing of it is committed. Somebody else wrote or changed the snapshot: start from "
            "one that you trust. If you know that the output is not needed, discard it: start once without the sink and "
            "with -n (execution.state-recovery.ignore-unclaimed-state)."
        )


class ForeignOutput(CommitRefused):
    """A target has output of the job that the job's checkpoint directory does not know."""

    code = "FOREIGN_OUTPUT"

    def __init__(self, sink: str, epochs: Sequence[EpochId], hides: bool = False) -> None:
        """`hides`: output of this run waits, and the target would treat it as committed."""
        self.sink = sink
        self.epochs = tuple(sorted(epochs))
        shown = ", ".join(f"epoch {epoch.number} of term {ordinal(epoch.term)}" for epoch in self.epochs[:3])
        more = f" and {len(self.epochs) - 3} more" if len(self.epochs) > 3 else ""
        if hides:
            super().__init__(
                f"The target of sink {sink!r} has output of this job, up to {shown}{more}, and would treat output that waits in "
                "this checkpoint directory as the same, although nobody has committed it: two runs continued from the same "
                "backup or copy, and the target has output of one and the directory that of the other. Nothing was changed. If "
                "the other run is still active, stop this one. Otherwise start a new line of history with `--fresh -s "
                "CHECKPOINT`, or discard the output that waits: start once without the sink and with -n "
                "(execution.state-recovery.ignore-unclaimed-state)."
            )
            return
        super().__init__(
            f"The target of sink {sink!r} has output of this job, up to {shown}{more}, that the checkpoint directory does not "
            "know. The directory was restored from an older backup, or it is a copy of one that is in use elsewhere. Nothing "
            "was changed. If the job also runs elsewhere, stop this one. Otherwise choose how to continue: `--fresh -s "
            "CHECKPOINT` starts a new line of history from here, and rows since that checkpoint are written again; or "
            "--accept-foreign-output (execution.state-recovery.accept-foreign-output) continues this one, which also writes "
            "them again, after what the target has. Output that waits is committed as well. To see each "
            "row once, first remove from the target what was written after the backup."
        )


class CommitInDoubt(ConnectorError):
    """Whether the rows were committed cannot be known. Somebody has to look, and to say."""

    code = "COMMIT_IN_DOUBT"


def outcome_of(error: Exception) -> CommitOutcome:
    """Classify an error of a committer. An error that is not ours may be temporary, so the commit is retried."""
    if isinstance(error, CommitInDoubt):
        return CommitOutcome.FAILED_UNKNOWN
    if isinstance(error, TidegateError) and not error.retryable:
        return CommitOutcome.FAILED_KNOWN
    return CommitOutcome.RETRY_LATER


def outcomes(requests: Sequence[object], committed: Sequence[object]) -> list[CommitOutcome]:
    """Return the outcomes for a committer that has committed some of its requests: the others were already committed."""
    # By identity: requests may be equal.
    now = {id(request) for request in committed}
    return [CommitOutcome.COMMITTED if id(request) in now else CommitOutcome.ALREADY_COMMITTED for request in requests]
