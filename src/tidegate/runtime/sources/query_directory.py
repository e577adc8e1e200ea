"""The directory of the streaming query, in which Spark records how far it has read. It is on the driver's disk and is
created for every start from what a checkpoint stored; tidegate never relies on Spark's own recovery.

    offsets/{batch}       where each source stands after the batch: a version, a line about the batch, a line for each source.
                          Written in version 1, read in versions 1 and 2
    commits/{batch}       that the batch was run
    sources/{i}/…         notes of source i: where it began (rate, Kafka), or which files it has seen (files)
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidegate.core.errors import PreconditionFailed, ProtocolViolation
from tidegate.runtime.sources.file_log import put_down
from tidegate.runtime.spark_versions import IncompatibleSpark

NOWHERE = "-"
"""Spark's notation for a source that has not started."""
_VERSION = "v1"
"""The version of the offset log that queries start from. Spark continues a log in the version that it finds."""
_VERSION_BY_NAME = "v2"
"""Since Spark 4.2: each line begins with the name of a source, which is its number unless the query names its sources."""
_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
_COMMIT_VERSIONS = ("v1", "v2")
"""Version 2 adds ids of Spark's own state (`spark.sql.streaming.stateStore.checkpointFormatVersion`), of which there is none."""
_NOTE = re.compile(r"(\d+)(\.compact)?")


@dataclass(frozen=True, slots=True)
class Positions:
    """End offsets of every source after one batch, in the order of the sources. Opaque text in each source's own format."""

    lines: tuple[str, ...]
    batch: str = ""
    """Spark's line about the batch: its creation time and settings, not its position."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Positions) and self.lines == other.lines

    def __hash__(self) -> int:
        return hash(self.lines)


@dataclass(frozen=True, slots=True)
class SourceNotes:
    """What one source needs to resume: its line (None: it has not started) and the texts of its notes, by name."""

    line: str | None
    notes: Mapping[str, bytes]


def read_positions(directory: Path, batch_id: int) -> Positions | None:
    """Return the positions at the end of a batch; None if the log has no such batch (there is none before the first)."""
    path = directory / "offsets" / str(batch_id)
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        logged = parse_offsets(text)
    except ValueError:
        logged = None
    # Sources with names have no order. `check_session` refuses the setting that makes Spark ask for names.
    if logged is None or not logged.lines or list(logged.lines) != [str(place) for place in range(len(logged.lines))]:
        raise IncompatibleSpark(
            f"The offset log {path} has a format that tidegate does not know: it begins with {text[:40]!r}, not "
            f"{_VERSION!r}. Set spark.sql.streaming.offsetLog.formatVersion to 1."
        )
    return Positions(tuple(logged.lines.values()), logged.batch)


def check_commit_log(directory: Path, batch_id: int) -> None:
    """Raise IncompatibleSpark if Spark notes in an unknown format that a batch is done: it would not understand the note with
    which a restored query begins.

    A batch without a note is no fault: Spark would deliver it again, and it would be skipped.
    """
    path = directory / "commits" / str(batch_id)
    with suppress(FileNotFoundError):
        text = path.read_text()
        version, _, note = text.partition("\n")
        if version not in _COMMIT_VERSIONS or not note.startswith("{"):
            raise IncompatibleSpark(
                f"The commit log {path} has a format that tidegate does not know: it begins with {text[:40]!r}, not "
                f"{' or '.join(_COMMIT_VERSIONS)}."
            )


@dataclass(frozen=True, slots=True)
class LoggedOffsets:
    """A file of the offset log."""

    batch: str
    lines: Mapping[str, str]
    """The line of each source by its name. The names of a log without names are the numbers of the sources, in order."""


def parse_offsets(text: str) -> LoggedOffsets:
    """Parse a file of the offset log. Raises ValueError if its version, or its form, is unknown."""
    version, batch, *lines = text.splitlines()
    # Spark accepts an empty line in place of the batch's own metadata, and a restore writes one if a checkpoint has none.
    if batch and not batch.startswith("{"):
        raise ValueError(batch)
    if version == _VERSION:
        return LoggedOffsets(batch, {str(place): line for place, line in enumerate(lines)})
    if version != _VERSION_BY_NAME:
        raise ValueError(version)
    by_name = dict(_named(line) for line in lines)
    # Spark writes a map of more than four sources in the order of its hash table.
    return LoggedOffsets(batch, {name: by_name[name] for name in sorted(by_name, key=_number_first)})


def _named(line: str) -> tuple[str, str]:
    name, colon, offset = line.partition(":")
    if not colon or name.startswith("{"):
        raise ValueError(line)
    return name, offset


def _number_first(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (sys.maxsize, name)


def read_sources(
    directory: Path, positions: Positions | None, count: int, names: Sequence[str] | None = None
) -> tuple[SourceNotes, ...]:
    """Return what each of `count` sources needs to resume from `positions`; None: from the beginning, which is kept if a
    source has fixed it (Kafka's "latest" must mean the same after a restart). `names` are the folders of notes, if the query
    names its sources.
    """
    if positions is not None and len(positions.lines) != count:
        raise PreconditionFailed(
            f"Spark reads {len(positions.lines)} streams for the {count} sources of the job, so their positions "
            "cannot be told apart. Pass every stream to job.source(…) separately: for a union of two streams, define "
            "two sources and union them afterwards; read a DataFrame that is used twice only once."
        )
    lines = (None,) * count if positions is None else positions.lines
    folders = [str(place) for place in range(count)] if names is None else names
    return tuple(_read_source(directory / "sources" / folder, line) for folder, line in zip(folders, lines))


def _read_source(directory: Path, line: str | None) -> SourceNotes:
    line = None if line == NOWHERE else line
    names = {int(found[1]): path for path in _files(directory) if (found := _NOTE.fullmatch(path.name))}
    last = log_offset(line)
    if last is not None:
        # Spark's log of seen files: every tenth entry contains all before it.
        first = max((n for n, path in names.items() if n <= last and path.name.endswith(".compact")), default=0)
        wanted = [names[n] for n in sorted(names) if first <= n <= last]
        if len(wanted) != last - first + 1:
            raise ProtocolViolation(f"The log of files in {directory} has gaps before entry {last}.")
    elif line is None:
        # A file log that was started for a batch which has not run contains files that are still to be read.
        wanted = [path for path in names.values() if not _lists_files(path)]
    else:
        wanted = list(names.values())
    return SourceNotes(line, {path.name: path.read_bytes() for path in wanted})


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []


def log_offset(line: str | None) -> int | None:
    """Return the last entry of the file log that an offset of a file source points to."""
    try:
        found = json.loads(line) if line is not None else None
    except ValueError:
        return None
    return int(found["logOffset"]) if isinstance(found, dict) and "logOffset" in found else None


def _lists_files(path: Path) -> bool:
    lines = path.read_bytes().splitlines()
    return len(lines) > 1 and lines[1].startswith(b"{") and b'"path"' in lines[1]


def rebuild(directory: Path, sources: Sequence[SourceNotes], batch: str, compact_every: int) -> Positions | None:
    """Create the directory of a query that resumes from there. Return the positions at which it begins.

    Batches are counted from 0 again: nothing outside this directory refers to their numbers. `compact_every` is Spark's
    setting for logs of seen files.
    """
    (directory / "sources").mkdir(parents=True)
    (directory / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))

    for place, source in enumerate(sources):
        notes = directory / "sources" / str(place)
        if source.notes:
            notes.mkdir()
        last = log_offset(source.line)
        put = source.notes if last is None else put_down(source.notes, last, compact_every)
        for name, content in put.items():
            (notes / name).write_bytes(content)

    # Nothing has been read: without an entry in `offsets`, Spark plans the first batch itself, from the notes.
    if all(source.line is None for source in sources):
        return None

    lines = tuple(NOWHERE if source.line is None else source.line for source in sources)
    for folder, text in (("offsets", "\n".join((_VERSION, batch, *lines))), ("commits", _COMMIT)):
        (directory / folder).mkdir()
        (directory / folder / "0").write_text(text)
    return Positions(lines, batch)


@dataclass(frozen=True, slots=True)
class RunBatch:
    """A batch to run: it begins where the last epoch ended."""


@dataclass(frozen=True, slots=True)
class SkipBatch:
    """A batch that has already run."""


def decide_batch(done: Positions | None, start: Positions | None, end: Positions | None) -> RunBatch | SkipBatch:
    """Make sure that a batch runs once. `done` is where the last accepted epoch ended, or what the run was restored from.

    Raises ProtocolViolation if the batch neither follows the last epoch nor repeats one: rows would be lost.
    """
    if end is None:
        raise ProtocolViolation("Spark delivered a batch whose offsets are not in its log.")
    # The first check decides also if the batch is empty, and begins and ends at the same place.
    if start == done:
        return RunBatch()
    if end == done:
        return SkipBatch()
    raise ProtocolViolation(
        f"Spark delivered a batch from {start} to {end}, but the last epoch ended at {done}. Rows in between "
        "would be lost or duplicated."
    )
