"""Errors between a staged file and a table."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.core.errors import ConnectorError, PreconditionFailed


class TableUnsuitable(PreconditionFailed):
    """The table does not exist, or has a feature that files added from outside would break."""

    code = "TABLE_UNSUITABLE"


class TableChanged(ConnectorError):
    """The table is no longer the one for which output was staged."""

    code = "TABLE_CHANGED"


class CommitConflict(ConnectorError):
    """Other writers were faster every time. Nothing was added; the same requests may be given again."""

    code = "COMMIT_CONFLICT"
    retryable = True

    def __init__(self, table: str, attempts: int, last: Exception) -> None:
        self.table, self.attempts = table, attempts
        super().__init__(
            f"Other writers changed {table} during each of {attempts} attempts to add to it: {last}. The commit will "
            "be retried; if this persists, run maintenance of the table less often or at quieter times."
        )


class StagedFilesGone(ConnectorError):
    """Files that wait for their commit were removed. Nothing was added."""

    code = "STAGED_FILES_GONE"

    def __init__(self, table: str, paths: Sequence[str], remedy: str) -> None:
        self.table, self.paths = table, tuple(paths)
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        super().__init__(
            f"Output for {table} was staged and is missing or truncated: {shown}. {remedy} Restore the files, or "
            "restore the job from a savepoint taken before that output, so that it is produced again."
        )
