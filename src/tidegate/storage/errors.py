"""Storage errors. Each adapter translates the exceptions of its client into these."""

from __future__ import annotations

from tidegate.core.errors import StorageError


class ObjectMissing(StorageError):
    """The name does not exist. This is a result rather than a fault: the caller decides what it means."""

    code = "STORAGE_MISSING"

    @staticmethod
    def of(store: str, path: str) -> ObjectMissing:
        return ObjectMissing(
            store,
            path,
            f"{path!r} does not exist in {store}. If it was deleted by hand, start from a checkpoint that has it.",
        )


class StorageUnavailable(StorageError):
    """The store did not respond, responded with an internal error, or is full. The same call may succeed later."""

    code = "STORAGE_UNAVAILABLE"
    retryable = True


class StorageDenied(StorageError):
    """The store denied access because of credentials or permissions. Nothing was changed."""

    code = "STORAGE_DENIED"


class StorageRefused(StorageError):
    """The store understood the request and will never accept it as it is. Nothing was changed."""

    code = "STORAGE_REFUSED"


class StorageMisconfigured(StorageError):
    """The URL, an option or the kind of store cannot be used for checkpoints."""

    code = "STORAGE_CONFIG"


class InvalidPath(StorageError):
    """The name is not one that every store keeps distinct and returns unchanged."""

    code = "STORAGE_PATH"


class OutcomeUnknown(StorageError):
    """A put-if-absent was sent, and neither its response nor the object could be read: it may or may not have won.

    The caller must stop acting as the owner of what the name decides. It may call `create` again later with the *same*
    body to find out who won.
    """

    code = "STORAGE_OUTCOME_UNKNOWN"

    @staticmethod
    def of(store: str, path: str, cause: object) -> OutcomeUnknown:
        return OutcomeUnknown(
            store,
            path,
            f"Whether {path!r} was created in {store} is unknown: {cause}. Stop what depends on it. When the store "
            "responds again, restart: recovery reads what was decided.",
        )


class CorruptFile(StorageError):
    """The length or checksum of a stored file differs from its handle."""

    code = "STORAGE_CORRUPT"
