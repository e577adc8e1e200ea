"""Loads the file lists that tasks have stored in objects of their own. The one place that does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tidegate.checkpoint.files.list_delta import decode_delta
from tidegate.checkpoint.metadata import AnyFileList, FileList, MetadataDamaged, StoredFileList, TaskState
from tidegate.checkpoint.metadata.validation import FileChecks, check_distinct
from tidegate.storage import ObjectMissing, Storage
from tidegate.storage.routed import name_below


def loaded(storage: Storage, root: str, files: AnyFileList) -> FileList:
    """Return the list, from storage if it is there. Its path, and those in it, are relative to `root`.

    Raises `MetadataDamaged` if the object is missing or changed, and `UntrustedSnapshot` for content that tidegate never
    writes.
    """
    if isinstance(files, FileList):
        return files
    return list_in(files, [_object(storage, root, path) for path in files.paths])


def _object(storage: Storage, root: str, path: str) -> bytes:
    try:
        return storage.get(name_below(root, path))
    except ObjectMissing:
        raise MetadataDamaged(f"the file list {path} is missing") from None


def loaded_task(storage: Storage, root: str, task: TaskState) -> FileList:
    """Return the files of a task, and check them against the files that the metadata contains."""
    files = loaded(storage, root, task.files)
    if files is not task.files:
        check_distinct(task, files)
    return files


def with_files(storage: Storage, root: str, task: TaskState) -> TaskState:
    """Return the task with its list loaded."""
    return replace(task, files=loaded_task(storage, root, task))


def list_in(files: StoredFileList, data: Sequence[bytes]) -> FileList:
    """Return the list in the objects that `files` refers to, in the order of its `paths`. Raises like `loaded`."""
    # `paths` has the object of the reference first, then its base, if it has one.
    own, *base = data
    if files.base is not None:
        listed = decode_delta(files, own).apply(base[0])
    else:
        files.check_bytes(own)
        try:
            listed = FileChecks().read(own)
        except (msgspec.MsgspecError, ValueError, OverflowError) as error:
            raise MetadataDamaged(f"{files.path} is not a file list ({error})") from error
    # The driver counted with this summary without loading the list. A list that says something else was not written by
    # us.
    files.check_summary(listed)
    return listed


def objects_of(root: str, listed: FileList, files: AnyFileList) -> frozenset[str]:
    """Return the storage names of all objects that `listed` stands for: those of its files, and its own, if `files` refers to
    objects in storage. The base of a list is one of them: it stays as long as a list needs it."""
    names = {name_below(root, name) for name in listed.objects()}
    if isinstance(files, StoredFileList):
        names.update(name_below(root, path) for path in files.paths)
    return frozenset(names)
