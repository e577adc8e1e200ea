"""The file chain of a heap version: one full file, then deltas. How it grows and is read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from tidegate.core.errors import CorruptState
from tidegate.state.heap import change_file
from tidegate.state.heap.change_file import Changes, Header
from tidegate.state.heap.table import HeapTable
from tidegate.state.version import Manifest, VersionFile, VersionId

ORIGINS_KEPT = 64
"""How many versions a delta names. A worker with an older table reads all files again."""

_FILE_BYTES = 1024
"""Upper bound for the size of a file without its entries: the smallest change must not look smaller than the smallest file."""


def kept_files(files: Sequence[VersionFile], change_bytes: int) -> int:
    """Return how many files at the front of a chain to link; the rest is merged with the changes into one new file.

    A file is merged if it is not larger than what would be written anyway. Chain length and the number of times an
    entry is rewritten are therefore logarithmic in the size of the state. If no file is kept, the new file is a full
    one.
    """
    writing = change_bytes + _FILE_BYTES
    kept = len(files)
    while kept and files[kept - 1].size_bytes <= writing:
        kept -= 1
        writing += files[kept].size_bytes
    return kept


def load(path: Path, manifest: Manifest, cached: HeapTable | None) -> HeapTable:
    """Return the table of the version in `path`: the cached one, brought up to date, if it is an ancestor; else read from files.

    A cached table that is not an ancestor belongs to a discarded epoch or a losing attempt, and is dropped.
    """
    files = manifest.files
    if not files:
        return HeapTable(None, {})
    tip = files[-1].origin
    if cached is not None and cached.tip == tip:
        return cached
    # It may be some versions old: its worker did not serve every epoch.
    if cached is not None and cached.tip is not None:
        missing: list[VersionFile] = []
        for file in reversed(files):
            header = change_file.read_header(path / file.name)
            if file.origin == cached.tip:
                break
            # A full file was written since, so deltas cannot lead from the cached table to it.
            if header.full:
                cached = None
                break
            missing.insert(0, file)
            if cached.tip in header.origins:
                break
        if cached is not None:
            cached.apply(merged(path, missing), tip)
            return cached
    entries: dict[bytes, bytes] = {}
    for at, file in enumerate(files):
        if change_file.read_header(path / file.name).full != (at == 0):
            raise CorruptState(f"{path / file.name} is out of place in the chain of version {manifest.version}.")
        change_file.read_into(path / file.name, entries, keep_deletes=False)
    return HeapTable(tip, entries)


def merged(path: Path, files: Sequence[VersionFile]) -> Changes:
    """Return the combined changes of consecutive deltas."""
    changes: Changes = {}
    for file in files:
        change_file.read_into(path / file.name, changes, keep_deletes=True)
    return changes


def write_full(path: Path, table: HeapTable, changes: Changes, target: VersionId) -> None:
    """Write all entries of `target` to `path`."""
    rest = ((key, value) for key, value in table.entries.items() if key not in changes)
    new = ((key, value) for key, value in changes.items() if value is not None)
    change_file.write(path, Header(True, (target,)), itertools.chain(rest, new))


def write_delta(path: Path, source: Path, absorbed: Sequence[VersionFile], changes: Changes, target: VersionId) -> None:
    """Write to `path` the combined changes of the deltas `absorbed`, in `source`, and of `changes`."""
    # The new file takes over what the merged ones cover, so workers with older tables can still catch up.
    held = [origin for file in absorbed for origin in change_file.read_header(source / file.name).origins]
    together = merged(source, absorbed) | changes if absorbed else changes
    change_file.write(path, Header(False, (*held[-ORIGINS_KEPT:], target)), together.items())
