"""Errors between a staged file and a table."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tidegate.connectors.outcome import CommitRefused, RetryLater
from tidegate.core.errors import ConnectorError, PreconditionFailed, TidegateError
from tidegate.core.redaction import redacted
from tidegate.storage.probe import environment_has_credentials


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
        self.table = table
        self.attempts = attempts
        super().__init__(
            f"Other writers changed {table} during each of {attempts} attempts to add to it: {last}. The commit will "
            "be retried; if this persists, run maintenance of the table less often or at quieter times."
        )


class StagedFilesGone(ConnectorError):
    """Files that wait for their commit were removed. Nothing was added."""

    code = "STAGED_FILES_GONE"

    def __init__(self, table: str, paths: Sequence[str], remedy: str) -> None:
        self.table = table
        self.paths = tuple(paths)
        shown = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        super().__init__(
            f"Output for {table} was staged and is missing or truncated: {shown}. {remedy} Restore the files, or "
            "restore the job from a savepoint taken before that output, so that it is produced again."
        )


_CANNOT_PASS = {
    "NoSuchNamespaceError",
    "UnauthorizedError",
    "ForbiddenError",
    "OAuthError",
    "NotInstalledError",
    "BadRequestError",
    "TableNotFoundError",
    "PermissionError",
    "NotADirectoryError",
    "FileExistsError",
    "ValueError",
    "TypeError",
    "ModuleNotFoundError",
    "NoSuchModuleError",
    "ArgumentError",
    "NoCredentialsError",
}
"""Names of errors, of pyiceberg, deltalake, SQLAlchemy and Python, that say the same until somebody corrects something."""

_CANNOT_PASS_TEXTS = (
    "NoSuchBucket",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "AccessDenied",
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "SIGNATURE_DOES_NOT_MATCH",
    "NO_SUCH_BUCKET",
    "401 Unauthorized",
    "403 Forbidden",
    "unable to open database file",
    "password authentication failed",
    "no password supplied",
)
"""Parts of the texts of the others: clients of object stores and of databases have one type for all that can go wrong."""

_ADVICE = {
    "NoSuchNamespaceError": "Create the namespace first, for example with catalog.create_namespace(…), or correct the name of "
    "the table.",
    "unable to open database file": "SQLite creates the file of the catalog, but not its directory: create that, or correct uri "
    "in the properties of the sink.",
    "Not a directory": "A part of the path is a file. Choose a path whose parts are all directories.",
    "NoSuchBucket": "Create the bucket, or correct its name.",
    "NO_SUCH_BUCKET": "Create the bucket, or correct its name.",
    "InvalidAccessKeyId": "Correct the access key.",
    "INVALID_ACCESS_KEY_ID": "Correct the access key.",
    "SignatureDoesNotMatch": "Correct the secret key.",
    "SIGNATURE_DOES_NOT_MATCH": "Correct the secret key.",
    "ExpiredToken": "Renew the session token.",
    "AccessDenied": "Allow the user of the credentials to read and write there.",
    "ACCESS_DENIED": "Allow the user of the credentials to read and write there.",
    "password authentication failed": "Correct user and password of the catalog.",
    "no password supplied": "Add the password of the catalog.",
    "UnauthorizedError": "Correct the credentials of the catalog.",
    "ForbiddenError": "Allow the user of the catalog to use this table.",
    "ModuleNotFoundError": "Install the package on the driver and the executors.",
    "NotInstalledError": "Install the package on the driver and the executors.",
}
"""What to do, by a type of error or a part of its text. The first that fits counts."""
_OTHER_ADVICE = "Correct the address, the credentials or the options of the sink, or create what is missing."

_LONGEST_REASON = 400
_NOISE = re.compile(r"\x1b\[[0-9;]*m|\u21b3|\(Background on this error at: [^)]*\)")
"""Colours, arrows, and what SQLAlchemy adds."""


@contextmanager
def translated(target: str) -> Iterator[None]:
    """Translate errors of a client that opens a table. `target` names the table and how it is reached."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as error:
        reason = redacted(" ".join(_NOISE.sub("", str(error)).split()) or type(error).__name__)
        if len(reason) > _LONGEST_REASON:
            reason = reason[:_LONGEST_REASON] + "\u2026"
        # By names and texts: the clients are extras, and none of their classes may be imported here.
        if _is_final(error):
            raise CommitRefused(f"The {target} cannot be opened: {reason.rstrip('.')}. {_advice(error)}") from error
        raise RetryLater(
            f"The {target} cannot be opened now: {reason.rstrip('.')}. If its address is right, start the job again when the "
            "catalog or the store answers."
        ) from error


def _is_final(error: Exception) -> bool:
    names = {each.__name__ for each in type(error).__mro__}
    return bool(names & _CANNOT_PASS) or any(each in str(error) for each in _CANNOT_PASS_TEXTS)


def _advice(error: Exception) -> str:
    names = {each.__name__ for each in type(error).__mro__}
    return next((advice for key, advice in _ADVICE.items() if key in names or key in str(error)), _OTHER_ADVICE)


def check_credentials(
    target: str, address: str, options: Collection[str], has_any: Collection[str], remedy: str
) -> None:
    """Raise `CommitRefused` if a table on S3 would be opened without credentials: clients look for the role of the machine for
    minutes before they say so. `options` are names that the sink was given, `has_any` those that hold credentials.
    """
    if address.partition("://")[0] not in ("s3", "s3a", "s3n") or any(name in has_any for name in options):
        return
    # Both clients also read the files of the AWS tools, which the one for checkpoints does not.
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_SHARED_CREDENTIALS_FILE")
    if profile or (Path.home() / ".aws" / "credentials").exists() or environment_has_credentials():
        return
    raise CommitRefused(
        f"The {target} cannot be opened: there are no credentials for {address}. Set {remedy} of the sink, or AWS_ACCESS_KEY_ID "
        "and AWS_SECRET_ACCESS_KEY in the environment of the driver and the executors; this machine has no role that it could "
        "use instead."
    )
