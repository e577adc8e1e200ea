"""What is between two snapshots: states, files, positions. From their metadata alone; no state is read. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.checkpoint.metadata import CheckpointMetadata
from tidegate.savepoint.plain import show_schema


@dataclass(frozen=True, slots=True)
class Difference:
    """`before` and `after` are texts for people; None where there is nothing on that side."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FileShare:
    """How the files of two snapshots overlap. A file is known by its name in storage."""

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


def files_between(before: CheckpointMetadata, after: CheckpointMetadata) -> FileShare:
    old, new = _files(before), _files(after)
    shared, gone, fresh = old.keys() & new.keys(), old.keys() - new.keys(), new.keys() - old.keys()
    return FileShare(
        len(shared), sum(old[f] for f in shared), len(gone), sum(old[f] for f in gone),
        len(fresh), sum(new[f] for f in fresh),
    )  # fmt: skip


def _files(metadata: CheckpointMetadata) -> dict[str, int]:
    lists = [task.files for task in metadata.tasks] + [p.files for p in metadata.positions]
    return {file.path: file.size_bytes for files in lists for file in files}


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
