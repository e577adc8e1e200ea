"""Checks that a savepoint can be written to its target before it starts."""

from __future__ import annotations

from tidegate.core.errors import CheckpointError
from tidegate.storage import Storage, StorageError
from tidegate.storage.errors import ObjectMissing
from tidegate.storage.port import unique_name


class BadSavepointTarget(CheckpointError):
    """A savepoint cannot be written below the target."""

    code = "SAVEPOINT_TARGET"

    def __init__(self, target: str, why: str) -> None:
        self.target = target
        super().__init__(f"No savepoint can be written below {target}: {why}")


def check_target(storage: Storage, target: str) -> None:
    """Write a few bytes below `target` and delete them. Raises `BadSavepointTarget`.

    Only tasks can tell whether their machines can write there, too; if not, they decline the savepoint. A crash leaves
    one object of a few bytes.
    """
    path = f"{target.rstrip('/')}/_probe-{unique_name()}"
    try:
        storage.put(path, b"probe")
        storage.delete([path])
    except ObjectMissing as error:
        raise BadSavepointTarget(
            target, "its bucket or container does not exist. Create it, or choose another."
        ) from error
    except StorageError as error:
        raise BadSavepointTarget(target, str(error)) from error
