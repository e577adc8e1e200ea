"""The outcomes of a commit. Each is handled differently.

| outcome | reported by | what the job does |
|---|---|---|
| committed | `commit` returns | continues |
| already committed | `commit` returns `ALREADY_COMMITTED` for the request | continues, and counts it |
| retry later | `RetryLater`, any retryable error of ours, any error that is not ours | keeps the rows and retries |
| failed, known | `CommitRefused`, any other error of ours | stops: nothing was published, and a retry would fail again |
| failed, unknown | `CommitInDoubt` | stops: a retry might publish rows twice, skipping them might lose them |

A job that stops keeps the rows and the checkpoint that carries them; the next start commits them again.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from tidegate.core.errors import ConnectorError, TidegateError


class CommitOutcome(enum.Enum):
    COMMITTED = "committed"
    ALREADY_COMMITTED = "already committed"
    """The marker in the target covers it. Nothing was changed."""
    RETRY_LATER = "retry later"
    FAILED_KNOWN = "failed, nothing was published"
    FAILED_UNKNOWN = "failed, what was published is not known"

    @property
    def stops_the_job(self) -> bool:
        return self in (CommitOutcome.FAILED_KNOWN, CommitOutcome.FAILED_UNKNOWN)


class RetryLater(ConnectorError):
    """The target does not take rows now. They are kept and come again."""

    code = "COMMIT_LATER"
    retryable = True


class CommitRefused(ConnectorError):
    """The target does not take these rows, and will not until something is changed. None of them was published."""

    code = "COMMIT_REFUSED"


class CommitInDoubt(ConnectorError):
    """Whether the rows were published cannot be known. Somebody has to look, and to say."""

    code = "COMMIT_IN_DOUBT"


def outcome_of(error: Exception) -> CommitOutcome:
    """Classify an error of a committer. An error that is not ours may be temporary, so the commit is retried."""
    if isinstance(error, CommitInDoubt):
        return CommitOutcome.FAILED_UNKNOWN
    if isinstance(error, TidegateError) and not error.retryable:
        return CommitOutcome.FAILED_KNOWN
    return CommitOutcome.RETRY_LATER


def outcomes(requests: Sequence[object], published: Sequence[object]) -> list[CommitOutcome]:
    """Return the outcomes for a committer that has published some of its requests: the others were already committed."""
    now = {id(request) for request in published}
    return [CommitOutcome.COMMITTED if id(request) in now else CommitOutcome.ALREADY_COMMITTED for request in requests]
