"""Creates a savepoint from a checkpoint or another savepoint, offline: copied, converted, changed.

The result is self-contained in its directory, with relative names: it can be moved anywhere. Uncommitted output of the
checkpoint is left to its job, as with every savepoint that does not end one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from tidegate.checkpoint.layout import committed_record
from tidegate.checkpoint.metadata import CheckpointMetadata, FileList, SnapshotKind, SourcePosition, TaskState, encode
from tidegate.core.errors import CheckpointError
from tidegate.core.faults import reach
from tidegate.core.ids import Slot, TaskId
from tidegate.savepoint.additions import Addition, declared_with, write_additions
from tidegate.savepoint.changes import ChangeRefused, Changes, applied
from tidegate.savepoint.entries import StateEntry, StateLayout
from tidegate.savepoint.file_copy import Progress, copy_files, ignore_progress
from tidegate.savepoint.pinned import pinned
from tidegate.savepoint.reader import SnapshotReader
from tidegate.savepoint.snapshot import CANONICAL, CANONICAL_BACKEND, METADATA, NATIVE, StoredSnapshot
from tidegate.state.keys.key_groups import range_of_slot, slot_of
from tidegate.storage import ObjectMissing, Storage, open_storage
from tidegate.storage.port import encode_segment


class TargetNotEmpty(CheckpointError):
    """A savepoint needs a directory of its own."""

    code = "TARGET_NOT_EMPTY"

    def __init__(self, url: str) -> None:
        super().__init__(
            f"{url} is not empty, and a savepoint needs a directory of its own. Name another one, or empty it."
        )


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a copy."""

    metadata: CheckpointMetadata
    url: str
    entries: int
    """Typed entries written; 0 for a native copy."""
    waiting_output: int
    """Committables of the origin that are not known to be committed: only its own job commits them."""


def copy_snapshot(
    snapshot: StoredSnapshot,
    target: Storage,
    format: str = CANONICAL,
    changes: Changes | None = None,
    progress: Progress = ignore_progress,
    additions: Sequence[Addition] = (),
) -> Copied:
    """Write a savepoint into the empty directory `target`.

    1. Pin the checkpoint, if a job owns it, so that none of it is deleted meanwhile.
    2. Write the state, and copy the files of sources. A crash leaves files without metadata: not a savepoint, safe to
       delete.
    3. Write `_metadata`. From here on the savepoint exists.

    `additions` are states from elsewhere; one that exists already must be among the dropped. `progress` is called with
    the bytes of the origin processed. Raises ChangeRefused, TargetNotEmpty, UnreadableState.
    """
    changes = changes or Changes()
    if format not in (CANONICAL, NATIVE):
        raise ChangeRefused(f"There is no savepoint format {format!r}. Use {CANONICAL} or {NATIVE}.")
    # All refusals come before the first write, and before the pin.
    canonical_origin = snapshot.format == CANONICAL
    if format == NATIVE and canonical_origin:
        raise ChangeRefused(
            "A canonical savepoint has no native files to copy. Restore it and take a native savepoint."
        )
    if format == NATIVE and changes.rewrites_state:
        raise ChangeRefused(
            "A native copy keeps the backend's files as they are, so no state can be dropped or converted, and max "
            "parallelism cannot change. Copy to the canonical format (--type canonical)."
        )
    if format == NATIVE and additions:
        raise ChangeRefused("State can be added to canonical savepoints only. Write the canonical format.")
    metadata = declared_with(applied(snapshot.metadata, changes), additions)
    # A savepoint that is written over another one would leave a mixture if it fails.
    if target.list():
        raise TargetNotEmpty(target.url)
    with pinned(snapshot, f"copied to {target.url}"):
        reach("savepoint.copy.1-pinned")
        written = 0
        if format == NATIVE:
            tasks = tuple(_native(snapshot, target, progress))
        else:
            tasks, written = _canonical(snapshot, metadata, changes, target, progress)
            tasks, added = write_additions(metadata, additions, tasks, target)
            written += added
        positions = tuple(
            replace(p, files=_position(snapshot, p, at, target, progress)) for at, p in enumerate(metadata.positions)
        )
        # Under the pin: the record is deleted with its checkpoint.
        waiting = _waiting(snapshot)
    reach("savepoint.copy.2-written")
    made = replace(
        metadata,
        kind=SnapshotKind.SAVEPOINT,
        savepoint_format=format,
        tidegate_version=version("tidegate"),
        # With fewer key groups than tasks, there are fewer tasks.
        parallelism=max((t.task.slot + 1 for t in tasks), default=metadata.parallelism),
        operators=tuple(
            replace(
                operator,
                parallelism=sum(t.task.level == operator.level for t in tasks),
                backend=operator.backend if format == NATIVE else CANONICAL_BACKEND,
            )
            for operator in metadata.operators
        ),
        tasks=tasks,
        positions=positions,
        # The origin's job commits its output. A copy that carried it would commit it again under the same markers.
        committables=(),
        stored_output=(),
    )
    # Last: a directory without `_metadata` is no savepoint.
    target.put(METADATA, encode(made))
    reach("savepoint.copy.3-published")
    return Copied(made, target.url, written, waiting)


def _native(snapshot: StoredSnapshot, target: Storage, progress: Progress) -> Iterator[TaskState]:
    id = snapshot.metadata.checkpoint_id
    for task in snapshot.metadata.tasks:
        files = copy_files(
            snapshot.storage, snapshot.root, snapshot.files_of(task), target, str(task.task), id, progress
        )
        yield replace(task, files=files)


def _canonical(
    snapshot: StoredSnapshot, metadata: CheckpointMetadata, changes: Changes, target: Storage, progress: Progress
) -> tuple[tuple[TaskState, ...], int]:
    from tidegate.savepoint.canonical_write import CanonicalWriter  # noqa: PLC0415 start-up time

    writers = {
        task: CanonicalWriter(
            storage=target,
            root="",
            task=task,
            key_groups=groups,
            version=old.version,
            savepoint_id=metadata.checkpoint_id,
        )
        for task, groups, old in _new_tasks(snapshot.metadata, metadata.max_parallelism)
    }
    layouts = {s.id: StateLayout(operator, s) for operator in metadata.operators for s in operator.states}
    counts = _slots(snapshot.metadata, metadata.max_parallelism)
    limit = changes.max_parallelism
    done: list[TaskState] = []
    with SnapshotReader(snapshot) as reader:
        for task in snapshot.metadata.tasks:
            level = task.task.level
            for operator in snapshot.metadata.operators:
                for state in operator.states:
                    if operator.level != level or changes.dropped(operator.uid, state.name):
                        continue
                    old = snapshot.layout(operator.uid, state.name)
                    new = layouts[state.id]
                    entries = _living(reader.task_entries(task, old), state.ttl_ms, snapshot.metadata)
                    if (retyped := changes.types.get((operator.uid, state.name))) is not None:
                        entries = _converted(entries, retyped.convert)
                    if not new.keyed:
                        home = TaskId(level, Slot(task.task.slot % counts[level]))
                        # Every task has the whole broadcast map. Lists of tasks that are gone are added to those that
                        # stay; of maps, one copy is enough.
                        if home == task.task or new.map_key is None:
                            writers[home].add(new, entries)
                    # Key groups are the same, so an entry stays in its task.
                    elif limit is None:
                        writers[task.task].add(new, entries)
                    else:
                        for slot, entry in _dealt_out(entries, new, counts[level], limit):
                            writers[TaskId(level, slot)].add(new, (entry,))
            # Each task's files are needed once. Without this, the disk would hold the whole snapshot.
            reader.drop(task)
            if limit is None:
                # At once, so that its buffers go. With other key groups, any task may still bring entries for any
                # writer.
                done.append(writers[task.task].finish())
            progress(task.size_bytes)
    tasks = done if limit is None else [writer.finish() for writer in writers.values()]
    return tuple(tasks), sum(writer.rows for writer in writers.values())


def _living(entries: Iterator[StateEntry], ttl_ms: int | None, at: CheckpointMetadata) -> Iterator[StateEntry]:
    """Yield entries that had not expired at the time of the snapshot, each by the clock of its stamp."""
    clocks = {False: at.clock_ms, True: at.watermark_ms}
    for entry in entries:
        now = None if ttl_ms is None or entry.stamp is None else clocks[entry.stamp.event_time]
        # A stamp of a clock that had not begun (no watermark yet) cannot have expired.
        if now is None or entry.stamp is None or ttl_ms is None or entry.stamp.time_ms + ttl_ms > now:
            yield entry


def _converted(entries: Iterator[StateEntry], convert: Callable[[Any], Any]) -> Iterator[StateEntry]:
    return (entry._replace(value=convert(entry.value)) for entry in entries)


def _slots(metadata: CheckpointMetadata, max_parallelism: int) -> dict[int, int]:
    """Return the number of tasks per level in the copy: as many as before, if there are enough key groups."""
    counts: dict[int, int] = {}
    for task in metadata.tasks:
        counts[task.task.level] = counts.get(task.task.level, 0) + 1
    return {level: min(count, max_parallelism) for level, count in counts.items()}


def _new_tasks(metadata: CheckpointMetadata, limit: int) -> Iterator[tuple[TaskId, tuple[int, int], TaskState]]:
    counts = _slots(metadata, limit)
    for old in metadata.tasks:
        slot, count = old.task.slot, counts[old.task.level]
        if slot < count:
            groups = old.key_groups if limit == metadata.max_parallelism else range_of_slot(slot, count, limit)
            yield old.task, groups, old


def _dealt_out(
    entries: Iterator[StateEntry], layout: StateLayout, slots: int, limit: int
) -> Iterator[tuple[Slot, StateEntry]]:
    for entry in entries:
        group = layout.key_group(entry.key, limit)
        yield slot_of(group, slots, limit), entry._replace(key_group=group)


def _position(
    snapshot: StoredSnapshot, position: SourcePosition, at: int, target: Storage, progress: Progress
) -> FileList:
    folder = f"sources/{at}-{encode_segment(position.uid)}"
    return copy_files(
        snapshot.storage, snapshot.root, position.files, target, folder, snapshot.metadata.checkpoint_id, progress
    )


def _waiting(snapshot: StoredSnapshot) -> int:
    if not snapshot.metadata.waiting_count or snapshot.metadata.kind is SnapshotKind.SAVEPOINT:
        return 0
    try:
        # Its record is in the folder of the checkpoint, next to the metadata.
        open_storage(snapshot.url, **snapshot.options).get(committed_record(METADATA))
    except ObjectMissing:
        return snapshot.metadata.waiting_count
    return 0
