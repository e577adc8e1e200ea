"""Positions of sources in `_metadata`: stored by the uid of the source, so that a job may add, drop or reorder its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from tidegate.checkpoint.effects import Put, Steps, perform
from tidegate.checkpoint.metadata import CheckpointMetadata, FileList, QueryFile, SourcePosition, StateFile
from tidegate.checkpoint.metadata.format3 import SEGMENT_OF_NOTE
from tidegate.core.errors import RestoreError
from tidegate.core.ids import AttemptId, EpochId, Uid
from tidegate.runtime.sources.query_directory import SourceNotes
from tidegate.state.version import VersionId
from tidegate.storage import FileHandle, Storage, fetch, unique_name
from tidegate.storage.handle import checksum_of

_INLINE_BYTES = 16 << 10
"""Longer notes are separate objects: a source that has read a million files has notes of many megabytes."""
_BATCH = "batch"


class UnclaimedPositions(RestoreError):
    code = "UNCLAIMED_POSITIONS"

    def __init__(self, uids: Sequence[Uid]) -> None:
        names = ", ".join(repr(str(uid)) for uid in uids)
        super().__init__(
            f"The snapshot has positions of the sources {names}, which this job no longer defines. Give the source "
            "its old uid again, or discard the positions with -n (execution.state-recovery.ignore-unclaimed-state)."
        )


Described: TypeAlias = tuple[tuple[SourcePosition, ...], tuple[QueryFile, ...]]
"""The entries of `_metadata` for the sources."""


def store_notes(  # noqa: PLR0913 where it goes, and what it describes
    storage: Storage,
    root: str,
    folder: str,
    checkpoint_id: int,
    epoch: EpochId,
    uids: Sequence[Uid],
    sources: Sequence[SourceNotes],
    batch: str,
    before: CheckpointMetadata | None = None,
) -> Described:
    """Run `note_steps` on this storage."""
    return perform(note_steps(root, folder, checkpoint_id, epoch, uids, sources, batch, before), storage)


def note_steps(
    root: str,
    folder: str,
    checkpoint_id: int,
    epoch: EpochId,
    uids: Sequence[Uid],
    sources: Sequence[SourceNotes],
    batch: str,
    before: CheckpointMetadata | None = None,
) -> Steps[Described]:
    """Build the entries of `_metadata` for the sources. Long notes are stored first, in `folder`; names in the
    metadata are relative to `root`.

    `before` is a checkpoint whose files may be used again: of a note that only grew, the log of all files that a source has read,
    only what was added is stored.

    1. Store what `before` does not have. A crash leaves objects in the folder of a checkpoint that does not exist; the sweep
       finds them.
    2. The objects of `before` belong to both checkpoints from the moment that the new one is completed, and references to them
       are counted: they outlive `before`.
    """
    known = {} if before is None else {position.uid: position.files for position in before.positions}
    origin = VersionId(epoch, AttemptId(0))
    positions: list[SourcePosition] = []
    query = [QueryFile(_BATCH, batch)]

    def put(content: bytes) -> Steps[StateFile]:
        handle = FileHandle(f"{folder}/{unique_name()}", len(content), checksum_of(content))
        at = 0
        for name, size in handle.parts():
            yield Put(name, content[at : at + size])
            at += size
        return StateFile(
            name="",
            path=handle.path.removeprefix(f"{root}/"),
            size_bytes=handle.size_bytes,
            checksum=handle.checksum,
            origin=origin,
            since=checkpoint_id,
        )

    for uid, source in zip(uids, sources):
        stored: list[StateFile] = []
        reusable = notes_in(known.get(uid, FileList()))
        for name, content in source.notes.items():
            if len(content) <= _INLINE_BYTES:
                # In the metadata itself: an object for each small note would cost a request at every checkpoint and restore.
                query.append(QueryFile(f"sources/{uid}/{name}", content.decode()))
                continue
            # A log that only grew begins with the parts that `before` has stored.
            kept = reusable_parts(content, reusable.values())
            rest = content[sum(part.size_bytes for part in kept) :]
            if rest:
                kept = [*kept, (yield from put(rest))]
            stored += named_parts(name, kept)
        lines = () if source.line is None else (source.line,)
        positions.append(SourcePosition(uid, lines, FileList(stored)))
    return tuple(positions), tuple(query)


def notes_in(files: FileList) -> dict[str, list[StateFile]]:
    """Return the stored parts of each note, in order. A note that was stored at once has one, under the name of the note."""
    notes: dict[str, dict[int, StateFile]] = {}
    for file in files:
        found = SEGMENT_OF_NOTE.fullmatch(file.name)
        name, number = (file.name, 0) if found is None else (found[1], int(found[2]))
        notes.setdefault(name, {})[number] = file
    return {name: [parts[number] for number in sorted(parts)] for name, parts in notes.items()}


def named_parts(note: str, parts: Sequence[StateFile]) -> list[StateFile]:
    """Return the parts of a note under the names that they have in `_metadata`."""
    if len(parts) == 1:
        return [msgspec.structs.replace(parts[0], name=note)]
    return [msgspec.structs.replace(part, name=f"{note}.part-{number:04d}") for number, part in enumerate(parts)]


def reusable_parts(content: bytes, notes: Iterable[Sequence[StateFile]]) -> list[StateFile]:
    """Return the stored parts that `content` begins with, of the note that has most of it.

    What follows is one more part. So that a note has few of them, the last parts are left out, and are stored again with it,
    unless each is at least twice as long as all that follows: then a part is stored again once for each time that its length
    doubles, and a note of n bytes has at most log2(n) parts.
    """
    best: list[StateFile] = []
    for parts in notes:
        fitting = _prefix(content, parts)
        if sum(part.size_bytes for part in fitting) > sum(part.size_bytes for part in best):
            best = fitting
    rest_bytes = len(content) - sum(part.size_bytes for part in best)
    while rest_bytes and best and best[-1].size_bytes < 2 * rest_bytes:
        rest_bytes += best.pop().size_bytes
    return best


def _prefix(content: bytes, parts: Sequence[StateFile]) -> list[StateFile]:
    """Return the first parts, as many as `content` begins with."""
    at = 0
    fitting: list[StateFile] = []
    for part in parts:
        if at + part.size_bytes > len(content) or checksum_of(content[at : at + part.size_bytes]) != part.checksum:
            break
        fitting.append(part)
        at += part.size_bytes
    return fitting


def check_claimed(snapshot: CheckpointMetadata, uids: Sequence[Uid], allow: bool) -> None:
    """Raise `UnclaimedPositions` for positions of sources that the job does not have."""
    unclaimed = sorted(p.uid for p in snapshot.positions if p.lines and p.uid not in uids)
    if unclaimed and not allow:
        raise UnclaimedPositions(unclaimed)


def load_notes(
    storage: Storage, root: str, snapshot: CheckpointMetadata, uids: Sequence[Uid], allow_unclaimed: bool
) -> tuple[tuple[SourceNotes, ...], str]:
    """Return what each source of the job resumes from, and the line about the batch. New sources start at their beginning."""
    check_claimed(snapshot, uids, allow_unclaimed)
    known = {position.uid: position for position in snapshot.positions}
    inline: dict[Uid, dict[str, bytes]] = {}
    batch = "{}"
    for file in snapshot.query:
        if file.name == _BATCH:
            batch = file.text
        else:
            _, uid, name = file.name.split("/", 2)
            inline.setdefault(Uid(uid), {})[name] = file.text.encode()

    def bring(file: StateFile) -> bytes:
        return fetch(storage, FileHandle(f"{root}/{file.path}", file.size_bytes, file.checksum, file.part_bytes))

    return tuple(_notes(known.get(uid), inline.get(uid, {}), bring) for uid in uids), batch


def _notes(
    position: SourcePosition | None, inline: Mapping[str, bytes], bring: Callable[[StateFile], bytes]
) -> SourceNotes:
    if position is None:
        return SourceNotes(None, {})
    line = position.lines[0] if position.lines else None
    stored = {name: b"".join(map(bring, parts)) for name, parts in notes_in(position.files).items()}
    return SourceNotes(line, {**inline, **stored})
