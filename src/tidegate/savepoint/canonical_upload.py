"""Writes the version of one task as tables for a canonical savepoint, in the worker that has the version.

Assigned, repeated and acknowledged with the epochs, like the upload of a version's files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import FileList, TaskState
from tidegate.checkpoint.task.version_upload import Stopped, UploadOrder, UploadRun, VersionUpload
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, TaskId, Term
from tidegate.savepoint.canonical_write import CanonicalWriter
from tidegate.savepoint.entries import ByteEntry
from tidegate.state.disk.version_directory import version_path
from tidegate.state.keys.entry_keys import key_group_range
from tidegate.state.port import StateBackend
from tidegate.state.version import Manifest, VersionId
from tidegate.storage import Storage

_LOOK_EVERY = 1024
"""Entries between two checks of whether the savepoint is still wanted."""


class CanonicalUpload(VersionUpload):
    """One task's tables.

    1. The version is linked to a neighboring directory and opened there, so that reading it does not evict what the
       process keeps in memory for the task.
    2. Its entries are written as tables. Their names are derived from the version: a repeat after a crash replaces
       them, so a reader of `*.parquet` never sees a row twice.
    3. The directory is removed. A crash leaves it until the record of the upload is removed.

    No progress is reported meanwhile: an epoch that has nothing else to do should wait for the end.
    """

    def __init__(
        self,
        storage: Storage,
        layout: JobLayout,
        directory: Path,
        task: TaskId,
        term: Term,
        order: UploadOrder,
        backend: StateBackend,
    ) -> None:
        super().__init__(storage, layout, directory, task, term, order)
        self._backend = backend

    def _store(self, manifest: Manifest, run: UploadRun) -> tuple[TaskState, tuple[str, ...]]:
        order, version = self._order, manifest.version
        assert order.folder is not None
        assert order.tables is not None
        place = self._folder / "tables"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(version_path(self._directory, version), version_path(place, version), copy_function=os.link)
        reach("tables.1-linked", of=self._task, checkpoint=order.checkpoint_id)
        mark = f"{version.epoch.term}-{version.epoch.number}-{version.attempt}"
        writer = CanonicalWriter(
            storage=self._storage,
            root=order.folder,
            task=self._task,
            key_groups=manifest.key_groups,
            version=version,
            savepoint_id=order.checkpoint_id,
            mark=mark,
        )
        # A store is opened to build the next version. This one is never sealed, so its name is never used.
        target = VersionId(EpochId(version.epoch.term, version.epoch.number + 1), run.attempt)
        store = self._backend.begin(place, version, target, manifest.key_groups)
        try:
            entries = store.scan(*key_group_range(*manifest.key_groups))
            writer.add_bytes(order.tables, _watched(entries, run.is_wanted))
            writer.add_operator_state(order.tables, store)
        finally:
            store.abandon()
        state = writer.finish()
        reach("tables.2-written", of=self._task, checkpoint=order.checkpoint_id)
        shutil.rmtree(place, ignore_errors=True)
        assert isinstance(state.files, FileList)
        return state, tuple(f"{order.folder}/{name}" for name in state.files.objects())


def _watched(entries: Iterator[ByteEntry], is_wanted: Callable[[], bool]) -> Iterator[ByteEntry]:
    for number, entry in enumerate(entries):
        if number % _LOOK_EVERY == 0 and not is_wanted():
            raise Stopped
        yield entry
