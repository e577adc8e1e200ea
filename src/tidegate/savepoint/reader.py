"""Reads the state in a snapshot, without Spark and without user code.

    with SnapshotReader(Snapshot.open("s3://bucket/ckpt/orders/chk-42")) as reader:
        for entry in reader.entries("totals", "total"):
            print(entry.key, entry.value)
        reader.get("totals", "total", "ann")

Only the files of the tasks needed are fetched: for one key, those of one task.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tidegate.checkpoint.files.file_lists import with_files
from tidegate.checkpoint.metadata import TaskState
from tidegate.checkpoint.task.version_fetch import begin_fetched, fetch_version
from tidegate.core.ids import AttemptId, EpochId, KeyGroup, TaskId, Term
from tidegate.savepoint.canonical_read import CanonicalTask
from tidegate.savepoint.entries import ByteEntry, Shape, StateEntry, StateLayout, UnreadableState
from tidegate.savepoint.snapshot import CANONICAL_BACKEND, StoredSnapshot
from tidegate.state.accessors.operator_states import read_elements
from tidegate.state.backends import built_in_backend
from tidegate.state.keys.entry_keys import Namespace, key_group_range, prefix_end
from tidegate.state.port import StateStore
from tidegate.state.version import VersionId

_NOWHERE = VersionId(EpochId(Term(0), 0), AttemptId(0))
"""A placeholder for the version that a store builds: a reader builds none."""
_ALL = object()


class SnapshotReader:
    """Fetches tasks on first access into a private directory, which is removed when the reader is closed.

    Used by one thread. Every file is verified by its checksum after the download.
    """

    def __init__(self, snapshot: StoredSnapshot, scratch: Path | None = None) -> None:
        self.snapshot = snapshot
        self._scratch = Path(tempfile.mkdtemp(prefix="tidegate-read-", dir=scratch))
        # A task is opened once, however many states and keys are read from it.
        self._open: dict[TaskId, StateStore | CanonicalTask] = {}

    def entries(self, uid: str, state: str, key_groups: tuple[int, int] | None = None) -> Iterator[StateEntry]:
        """Yield all entries of a state, ordered by key group and, within it, by key; or those of a range of key groups."""
        layout = self.snapshot.layout(uid, state)
        if not layout.keyed:
            yield from self._operator_state(layout)
            return
        for task in self.snapshot.tasks_of(uid):
            first, last = _overlap(task.key_groups, key_groups)
            if first <= last:
                yield from self._of_task(task, layout, first, last)

    def _operator_state(self, layout: StateLayout) -> Iterator[StateEntry]:
        """Yield the elements of all tasks, numbered consecutively; one copy of a broadcast map, since all are equal."""
        position = 0
        for task in self.snapshot.tasks_of(layout.uid):
            for entry in self.task_entries(task, layout):
                yield entry._replace(position=position)
                position += 1
            # Every task has a copy of a broadcast map. The first one that has entries is enough.
            if layout.map_key is not None and position:
                return

    def task_entries(self, task: TaskState, layout: StateLayout) -> Iterator[StateEntry]:
        """Yield all entries of a state in one task."""
        if not layout.keyed:
            return self._elements_of(task, layout)
        return self._of_task(task, layout, *task.key_groups)

    def get(self, uid: str, state: str, key: Any, namespace: Namespace = None, map_key: Any = _ALL) -> Any:
        """Return the state of one key: the value (None: nothing), a list, a dict, or pairs (clock, time) of timers.

        With `map_key`, return one value of a map. Fetches the files of one task. Raises InvalidKey for a key of another
        type.
        """
        layout = self.snapshot.layout(uid, state)
        if not layout.keyed:
            raise UnreadableState(f"{state!r} of {uid!r} is operator state and has no keys; read its entries instead.")
        group = layout.key_group(key, self.snapshot.metadata.max_parallelism)
        found = self._of_key(self.snapshot.task_with(uid, group), layout, group, key, namespace)
        if layout.shape is Shape.TIMERS:
            return [(entry.map_key, entry.value) for entry in found]
        if layout.map_keys is not None:
            if map_key is not _ALL:
                wanted = layout.map_keys.normalized(map_key)
                return next((entry.value for entry in found if _same(entry.map_key, wanted)), None)
            return {entry.map_key: entry.value for entry in found}
        if layout.is_list:
            return [entry.value for entry in found]
        return next((entry.value for entry in found), None)

    def of_key(self, uid: str, state: str, key: Any) -> Iterator[StateEntry]:
        """Yield all entries of one key, those of every window. Fetches the files of one task, and reads one key group."""
        layout = self.snapshot.layout(uid, state)
        group = layout.key_group(key, self.snapshot.metadata.max_parallelism)
        wanted = layout.keys.encode(key)
        entries = self._of_task(self.snapshot.task_with(uid, group), layout, group, group)
        return (entry for entry in entries if layout.keys.encode(entry.key) == wanted)

    def byte_entries(self, task: TaskState, key_groups: tuple[int, int]) -> Iterator[ByteEntry]:
        """Yield all stored entries of some key groups in a task of a checkpoint or native savepoint."""
        store = self._store(task)
        assert not isinstance(store, CanonicalTask), "tables are read by `canonical_read`"
        return store.scan(*key_group_range(*key_groups))

    def close(self) -> None:
        for store in self._open.values():
            store.abandon()
        self._open.clear()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def drop(self, task: TaskState) -> None:
        """Free the disk space of a task's files. They are fetched again on the next access."""
        store = self._open.pop(task.task, None)
        if store is not None:
            store.abandon()
        shutil.rmtree(self._scratch / str(task.task), ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _of_task(self, task: TaskState, layout: StateLayout, first: int, last: int) -> Iterator[StateEntry]:
        if not _has_files(task):
            return iter(())
        store = self._store(task)
        if isinstance(store, CanonicalTask):
            return store.entries(layout, (first, last))
        return layout.typed(entry for group in range(first, last + 1) for entry in store.scan(*layout.range_in(group)))

    def _elements_of(self, task: TaskState, layout: StateLayout) -> Iterator[StateEntry]:
        if not _has_files(task):
            return iter(())
        store = self._store(task)
        if isinstance(store, CanonicalTask):
            return store.entries(layout, (0, 0))
        return layout.typed_elements(read_elements(store, layout.id) or ())

    def _of_key(
        self, task: TaskState, layout: StateLayout, group: KeyGroup, key: Any, namespace: Namespace
    ) -> Iterator[StateEntry]:
        if not _has_files(task):
            return iter(())
        store = self._store(task)
        # Tables and timers cannot be looked up by key: rows of the key group are filtered.
        if isinstance(store, CanonicalTask) or layout.shape is Shape.TIMERS:
            wanted = layout.keys.encode(key)
            of_group = self._of_task(task, layout, group, group)
            return (e for e in of_group if e.namespace == namespace and layout.keys.encode(e.key) == wanted)
        start = layout.prefix(group, key, namespace)
        if layout.is_list or layout.map_keys is not None:
            return layout.typed(store.scan(start, prefix_end(start)))
        raw = store.get(start)
        return layout.typed(() if raw is None else [(start, raw)])

    def _store(self, task: TaskState) -> StateStore | CanonicalTask:
        store = self._open.get(task.task)
        if store is None:
            store = self._open[task.task] = self._fetched(task)
        return store

    def _fetched(self, task: TaskState) -> StateStore | CanonicalTask:
        snapshot = self.snapshot
        if task.backend == CANONICAL_BACKEND:
            return CanonicalTask(snapshot.storage, snapshot.root, task)
        task = with_files(snapshot.storage, snapshot.root, task)
        place = self._scratch / str(task.task)
        fetch_version(snapshot.storage, place, snapshot.root, task, task.key_groups)
        return begin_fetched(built_in_backend(task.backend), place, task, _NOWHERE, task.key_groups)


def _has_files(task: TaskState) -> bool:
    return bool(len(task.files) or task.inline)


def _overlap(held: tuple[int, int], wanted: tuple[int, int] | None) -> tuple[int, int]:
    return held if wanted is None else (max(held[0], wanted[0]), min(held[1], wanted[1]))


def _same(a: Any, b: Any) -> bool:
    # NaN as a map key is one key in state, and unequal to itself in Python.
    return bool(a == b or (a != a and b != b))
