"""One state of a snapshot as one local file, for a spreadsheet, a notebook or a script."""

from __future__ import annotations

import csv
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from tidegate.control.jobs.texts import jsonable
from tidegate.core.errors import ControlError
from tidegate.savepoint.entries import StateEntry, StateLayout
from tidegate.savepoint.file_copy import Progress, ignore_progress
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import StoredSnapshot

_BATCH = 16_384
_LOOK_EVERY = 256
"""How many entries pass between two looks at the clock."""
_FIELDS = ("operator", "state", "key_group", "key", "namespace", "map_key", "position", "value", "renewed")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""A cell that begins with one of these is a formula for spreadsheets, and runs when the file is opened. A key or a value
may come from anyone. Full-width forms are taken for the same by some of them."""
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class UnknownFormat(ControlError):
    code = "UNKNOWN_FORMAT"

    def __init__(self, path: str) -> None:
        super().__init__(f"{path!r} does not end in one of {', '.join(_WRITERS)}, which say how it is written.")


class TooLargeToExport(ControlError):
    code = "TOO_LARGE_TO_EXPORT"

    def __init__(self, uid: str, state: str, snapshot: str) -> None:
        super().__init__(
            f"{uid}/{state} is too large for a request. Export it where its files are read directly: "
            f"tidegate state export {snapshot} {uid} {state} --to {state}.parquet"
        )


def export_state(
    snapshot: StoredSnapshot,
    uid: str,
    state: str,
    target: str,
    progress: Progress = ignore_progress,
    within_s: float | None = None,
) -> int:
    """Write all entries to `target` and return their number. The file appears whole, or not at all.

    Raises `TooLargeToExport` if it is not done after `within_s` seconds.
    """
    latest = None if within_s is None else time.monotonic() + within_s
    path = Path(target)
    write = _WRITERS.get(path.suffix)
    if write is None:
        raise UnknownFormat(target)
    layout = snapshot.layout(uid, state)

    # Next to the target: a rename replaces a file at once only within one file system.
    private = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with SnapshotReader(snapshot) as reader:
            entries = _walk(reader, snapshot, layout, progress)
            if latest is not None:
                entries = _until(latest, entries, TooLargeToExport(uid, state, snapshot.url))
            count = write(private, layout, entries)
        os.replace(private, path)
    finally:
        private.unlink(missing_ok=True)
    return count


def _walk(
    reader: SnapshotReader, snapshot: StoredSnapshot, layout: StateLayout, progress: Progress
) -> Iterator[StateEntry]:
    if not layout.keyed:
        # Every task has a copy of a broadcast, and a part of a list.
        yield from reader.entries(layout.uid, layout.info.name)
        return
    for task in snapshot.tasks_of(layout.uid):
        yield from reader.task_entries(task, layout)
        # Deletes the fetched files, so local disk holds one task at a time.
        reader.drop(task)
        progress(task.size_bytes)


def _until(latest: float, entries: Iterator[StateEntry], error: TooLargeToExport) -> Iterator[StateEntry]:
    for number, entry in enumerate(entries):
        if number % _LOOK_EVERY == 0 and time.monotonic() > latest:
            raise error
        yield entry


def _parquet(path: Path, layout: StateLayout, entries: Iterator[StateEntry]) -> int:
    import pyarrow.parquet as pq

    from tidegate.savepoint.canonical_table import StateTable

    table = StateTable(layout)
    count = 0
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        while chunk := list(islice(entries, _BATCH)):
            writer.write_batch(table.batch(chunk))
            count += len(chunk)
    return count


def _json_lines(path: Path, layout: StateLayout, entries: Iterable[StateEntry]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for entry in entries:
            row = {name: jsonable(part) for name, part in zip(_FIELDS, entry) if part is not None or name == "value"}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _csv(path: Path, layout: StateLayout, entries: Iterable[StateEntry]) -> int:
    count = 0
    # The csv module writes line ends itself.
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_FIELDS)
        for entry in entries:
            writer.writerow([_cell(part) for part in entry])
            count += 1
    return count


def _cell(part: Any) -> Any:
    plain = jsonable(part)
    if plain is None:
        return ""
    return _neutralized(plain) if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _neutralized(text: str) -> str:
    """Put a quote before a text that a spreadsheet would take for a formula. Numbers that are stored as text stay numbers."""
    if not text.startswith(_FORMULA):
        return text
    return text if _NUMBER.fullmatch(text) else f"'{text}"


_WRITERS: dict[str, Callable[[Path, StateLayout, Iterator[StateEntry]], int]] = {
    ".parquet": _parquet,
    ".jsonl": _json_lines,
    ".csv": _csv,
}

FORMATS = tuple(suffix.removeprefix(".") for suffix in _WRITERS)
