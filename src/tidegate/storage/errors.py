"""What can go wrong with storage, in tidegate's words. Each adapter translates its client's exceptions into these."""

from __future__ import annotations

from tidegate.core.errors import StorageError


class ObjectMissing(StorageError):
    """The name does not exist. An answer rather than a fault: whoever expected the object decides what that means."""

    code = "STORAGE_MISSING"

    @staticmethod
    def of(store: str, path: str) -> ObjectMissing:
        return ObjectMissing(
            store,
            path,
            f"{path!r} does not exist in {store}. If it was deleted by hand, start from a checkpoint that has it.",
        )


class StorageUnavailable(StorageError):
    """The store did not answer, answered with a fault of its own, or is full. The same call may succeed later."""

    code = "STORAGE_UNAVAILABLE"
    retryable = True


class StorageDenied(StorageError):
    """The store refused: credentials or rights. Nothing was changed."""

    code = "STORAGE_DENIED"


class StorageRefused(StorageError):
    """The store understood the request and will never grant it as it is. Nothing was changed."""

    code = "STORAGE_REFUSED"


class StorageMisconfigured(StorageError):
    """The URL, an option or the kind of store cannot serve for checkpoints."""

    code = "STORAGE_CONFIG"


class InvalidPath(StorageError):
    """The name is outside of what every store keeps apart and gives back unchanged."""

    code = "STORAGE_PATH"


class OutcomeUnknown(StorageError):
    """A put-if-absent was sent, and neither its answer nor the name could be read: it may or may not have won.

    Whoever gets this must stop acting as the owner of what the name decides. Calling `create` again later with the
    *same* body is allowed and will tell.
    """

    code = "STORAGE_OUTCOME_UNKNOWN"

    @staticmethod
    def of(store: str, path: str, cause: object) -> OutcomeUnknown:
        return OutcomeUnknown(
            store,
            path,
            f"Whether {path!r} was created in {store} is unknown: {cause}. Stop what depends on it; when the store "
            "answers again, start anew: recovery reads what was decided.",
        )


class CorruptFile(StorageError):
    """A stored file is short, long or has another checksum than its handle says."""

    code = "STORAGE_CORRUPT"
