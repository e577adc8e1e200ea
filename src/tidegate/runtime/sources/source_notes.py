"""Positions of sources in `_metadata`: stored by the uid of the source, so that a job may add, drop or reorder its sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidegate.checkpoint.metadata import CheckpointMetadata, FileList, QueryFile, SourcePosition, StateFile
from tidegate.core.errors import RestoreError
from tidegate.core.ids import AttemptId, EpochId, Uid
from tidegate.runtime.sources.query_directory import SourceNotes
from tidegate.state.version import VersionId
from tidegate.storage import FileHandle, Storage, fetch, store, unique_name

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


def store_notes(
    storage: Storage, root: str, folder: str, checkpoint_id: int, epoch: EpochId, uids: Sequence[Uid],
    sources: Sequence[SourceNotes], batch: str,
) -> tuple[tuple[SourcePosition, ...], tuple[QueryFile, ...]]:  # fmt: skip
    """Build the entries of `_metadata` for the sources. Long notes are stored first, in `folder`; names in the
    metadata are relative to `root`.
    """
    positions: list[SourcePosition] = []
    query = [QueryFile(_BATCH, batch)]
    for uid, source in zip(uids, sources):
        stored: list[StateFile] = []
        for name, content in source.notes.items():
            if len(content) <= _INLINE_BYTES:
                query.append(QueryFile(f"sources/{uid}/{name}", content.decode()))
                continue
            handle = store(storage, f"{folder}/{unique_name()}", content)
            relative, origin = handle.path.removeprefix(f"{root}/"), VersionId(epoch, AttemptId(0))
            stored.append(
                StateFile(
                    name=name,
                    path=relative,
                    size_bytes=handle.size_bytes,
                    checksum=handle.checksum,
                    origin=origin,
                    since=checkpoint_id,
                )
            )
        lines = () if source.line is None else (source.line,)
        positions.append(SourcePosition(uid, lines, FileList(stored)))
    return tuple(positions), tuple(query)


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
    return SourceNotes(line, {**inline, **{file.name: bring(file) for file in position.files}})
