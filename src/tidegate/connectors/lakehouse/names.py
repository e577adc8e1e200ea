"""Names of staged files and markers. (lineage, sink, epoch, slot, attempt) is never reused, so neither are they."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from pathlib import Path

from tidegate.connectors.outcome import CommitRefused
from tidegate.connectors.sink import Committable, WriterContext
from tidegate.core.errors import PreconditionFailed
from tidegate.core.ids import EpochId

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
_SEGMENT_CHARS = 80
_NUMBER_BITS = 40
_TERM_BITS = 63 - _NUMBER_BITS


def file_stem(context: WriterContext) -> str:
    """Return the prefix of one attempt's file names. Letters, digits and `._-` only: tables and stores differ in
    how they escape anything else.
    """
    return (
        f"part-{segment(context.lineage)}-{segment(context.sink)}-{context.epoch}-{context.slot:05d}-{context.attempt}"
    )


def segment(text: str) -> str:
    """Convert text to a part of a file name: unchanged if valid, otherwise its valid characters and a digest of the whole."""
    kept = _UNSAFE.sub("_", text)[:_SEGMENT_CHARS]
    return kept if kept == text else f"{kept}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def marker_name(request: Committable) -> str:
    """Names in the table up to which epoch all slots of this (lineage, sink) are committed."""
    return f"tidegate/{request.lineage}/{request.sink}/all"


def slot_marker_name(request: Committable) -> str:
    """Names what earlier versions marked for each slot. Read, never written: no slot is called `all`."""
    return f"tidegate/{request.lineage}/{request.sink}/{request.slot}"


def marker_number(epoch: EpochId) -> int:
    """Encode an epoch as a 63-bit number that grows with (term, number)."""
    if epoch.number >= 1 << _NUMBER_BITS or epoch.term >= 1 << _TERM_BITS:
        raise CommitRefused(
            f"Epoch {epoch} exceeds what a table's marker can count. Fork the job to start a new lineage."
        )
    return epoch.term << _NUMBER_BITS | epoch.number


def require(package: str, sink: str, extra: str) -> None:
    """Reject a sink where it is constructed if its client library is missing."""
    if importlib.util.find_spec(package) is None:
        raise PreconditionFailed(f"{sink} needs the package {package!r}. Install it: pip install 'tidegate[{extra}]'.")


def local_path(location: str) -> Path | None:
    """Return the local path that a location means, or None for a remote store."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return None if "://" in location else Path(location)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
