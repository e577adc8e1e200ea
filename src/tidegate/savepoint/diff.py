"""The differences between two snapshots: states, files, positions. Uses only metadata; reads no state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.savepoint.schema_codec import show_schema
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.storage.handle import checksum_of


@dataclass(frozen=True, slots=True)
class Difference:
    """`before` and `after` are display texts; None if that side has nothing."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FileShare:
    """How the files of two snapshots overlap. A file is identified by its content: a savepoint holds copies under other
    names, and two savepoints may use one name for different files."""

    shared: int
    shared_bytes: int
    gone: int
    gone_bytes: int
    new: int
    new_bytes: int


def differences(before: CheckpointMetadata, after: CheckpointMetadata) -> Iterator[Difference]:
    old, new = dict(_facts(before)), dict(_facts(after))
    for what in dict.fromkeys((*old, *new)):
        if old.get(what) != new.get(what):
            yield Difference(what, old.get(what), new.get(what))


def files_between(before: StoredSnapshot, after: StoredSnapshot) -> FileShare:
    """Compare the files. Reads the lists that are objects of their own, and no state."""
    old, new = _contents(before), _contents(after)
    shared, gone, fresh = old & new, old - new, new - old
    return FileShare(
        shared=shared.total(),
        shared_bytes=_bytes(shared),
        gone=gone.total(),
        gone_bytes=_bytes(gone),
        new=fresh.total(),
        new_bytes=_bytes(fresh),
    )


def _contents(snapshot: StoredSnapshot) -> Counter[tuple[str, int]]:
    """Count each content, by checksum and size, in stored files and in files inlined into the metadata."""
    metadata = snapshot.metadata
    lists = chain(map(snapshot.files_of, metadata.tasks), (position.files for position in metadata.positions))
    found = Counter((file.checksum, file.size_bytes) for files in lists for file in files)
    found.update((checksum_of(file.data), len(file.data)) for task in metadata.tasks for file in task.inline)
    return found


def _bytes(contents: Counter[tuple[str, int]]) -> int:
    return sum(size_bytes * times for (_, size_bytes), times in contents.items())


def _facts(m: CheckpointMetadata) -> Iterator[tuple[str, str]]:
    yield "job", m.job
    yield "lineage", m.lineage
    yield "epoch", str(m.epoch)
    yield "parallelism", f"{m.parallelism} of {m.max_parallelism}"
    yield "watermark", str(m.watermark_ms)
    yield "full size", f"{m.full_size_bytes} bytes"
    for position in m.positions:
        yield f"position of {position.uid}", " ".join(position.lines)
    for operator in m.operators:
        yield f"key of {operator.uid}", show_schema(operator.key)
        yield f"backend of {operator.uid}", operator.backend
        for state in operator.states:
            shown = f"{state.kind} {show_schema(state.value)}"
            if state.map_key is not None:
                shown += f" by {show_schema(state.map_key)}"
            yield f"state {operator.uid}/{state.name}", shown
