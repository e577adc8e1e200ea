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
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid, ordinal

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
# File systems take 255 bytes: two such parts, two digests and the numbers stay below.
_SEGMENT_CHARS = 80
# A trillion epochs of a claim. The rest, 23 bits, counts claims.
_NUMBER_BITS = 40
_TERM_BITS = 63 - _NUMBER_BITS


def file_stem(context: WriterContext) -> str:
    """Return the prefix of one attempt's file names. Letters, digits and `._-` only: tables and stores differ in
    how they escape anything else.
    """
    return f"part-{segment(context.lineage)}-{segment(context.sink)}-{context.epoch.name}-{context.slot:05d}-{context.attempt}"


def is_staged_name(request: Committable, name: str) -> bool:
    """Whether a file of this name, without folders, was staged by an attempt of the request's own slot and epoch."""
    stem = f"part-{segment(request.lineage)}-{segment(request.sink)}-{request.epoch.name}-{request.slot:05d}"
    return re.fullmatch(rf"{re.escape(stem)}-[0-9]+-[0-9]{{4,}}\.parquet", name) is not None


def staged_output(lineage: Lineage, sink: Uid, name: str) -> tuple[EpochId, Slot] | None:
    """Return the epoch and slot in the name of a file, without folders. None: no writer of this lineage and sink chose it."""
    stem = re.escape(f"part-{segment(lineage)}-{segment(sink)}")
    found = re.fullmatch(rf"{stem}-([0-9]+)\.([0-9]+)-([0-9]{{5,}})-[0-9]+-[0-9]{{4,}}\.parquet", name)
    if found is None:
        return None
    return EpochId(Term(int(found[1])), int(found[2])), Slot(int(found[3]))


def segment(text: str) -> str:
    """Convert text to a part of a file name: unchanged if valid, otherwise its valid characters and a digest of the whole."""
    kept = _UNSAFE.sub("_", text)[:_SEGMENT_CHARS]
    return kept if kept == text else f"{kept}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def marker_name(lineage: Lineage, sink: Uid) -> str:
    """Names in the table up to which epoch all slots of this (lineage, sink) are committed."""
    return f"tidegate/{lineage}/{sink}/all"


def slot_marker_name(request: Committable) -> str:
    """Names what earlier versions marked for each slot. Read, never written: no slot is called `all`."""
    return f"tidegate/{request.lineage}/{request.sink}/{request.slot}"


def term_marker_name(lineage: Lineage, sink: Uid) -> str:
    """Names in the table the whole term of the marker, of which the marker's number has room only for the count."""
    return f"tidegate/{lineage}/{sink}/term"


def greatest_marker_name(lineage: Lineage, sink: Uid) -> str:
    """Names in the table the greatest number that the marker ever had, if it has moved back since."""
    return f"tidegate/{lineage}/{sink}/greatest"


def marker_number(epoch: EpochId) -> int:
    """Encode an epoch as a 63-bit number that grows with (term, number). It has the number of the claim only."""
    claim = ordinal(epoch.term)
    if epoch.number >= 1 << _NUMBER_BITS or claim >= 1 << _TERM_BITS:
        raise CommitRefused(
            f"Epoch {epoch} exceeds what a table's marker can count. Fork the job to start a new lineage."
        )
    return claim << _NUMBER_BITS | epoch.number


def marked_epoch(number: int, term: int | None) -> EpochId:
    """Return the epoch of a marker and the term next to it. Before terms had random bits, there was none."""
    claim = number >> _NUMBER_BITS
    # The two are written in one commit. If they disagree, somebody has changed one, and the number decides.
    whole = term if term is not None and ordinal(term) == claim else claim
    return EpochId(Term(whole), number & (1 << _NUMBER_BITS) - 1)


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
