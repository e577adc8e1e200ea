"""Errors of `_metadata` files, each with what to do about it."""

from __future__ import annotations

from tidegate.core.errors import CheckpointError


class MetadataError(CheckpointError):
    """A `_metadata` file cannot be used. Nothing was restored from it."""

    code = "METADATA"


class MetadataTooNew(MetadataError):
    """Written by a later version of tidegate, in a format that this one does not know."""

    code = "METADATA_TOO_NEW"

    def __init__(self, format: int, newest: int, written_by: str) -> None:
        self.format = format
        self.newest = newest
        self.written_by = written_by
        super().__init__(
            f"This checkpoint has metadata format {format} (written by tidegate {written_by}); this tidegate reads "
            f"formats up to {newest}. Run the job with tidegate {written_by} or later; the checkpoint itself is sound."
        )


class MetadataDamaged(MetadataError):
    """The bytes differ from what was written: truncated, altered, or not a `_metadata` file at all."""

    code = "METADATA_DAMAGED"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"The checkpoint metadata is damaged: {what}. Fetch the file again if it was copied or edited by hand "
            "(even reformatting it breaks its checksum); otherwise start from an older retained checkpoint or a "
            "savepoint."
        )


class MetadataIncomplete(MetadataError):
    """The checksum matches, but a field is missing or of the wrong type: the writer is at fault, not the storage."""

    code = "METADATA_INCOMPLETE"

    def __init__(self, what: str, written_by: str) -> None:
        self.what = what
        self.written_by = written_by
        super().__init__(
            f"The checkpoint metadata was written whole but does not follow its format: {what}. It was written by "
            f"{written_by!r}; write it again with a released tidegate, or start from another checkpoint or savepoint."
        )


class UntrustedSnapshot(MetadataError):
    """The checksum holds, but the metadata says what no tidegate writes, such as the name of a file outside the snapshot."""

    code = "UNTRUSTED_SNAPSHOT"

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"{what.rstrip('.')}. tidegate does not write such a snapshot, so nothing of it is used.")
