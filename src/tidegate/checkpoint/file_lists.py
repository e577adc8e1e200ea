"""Loads the file lists that tasks have stored in objects of their own. The one place that does."""

from __future__ import annotations

from dataclasses import replace

import msgspec

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
    try:
        data = storage.get(name_below(root, files.path))
    except ObjectMissing:
        raise MetadataDamaged(f"the file list {files.path} is missing") from None
    return list_in(files, data)


def loaded_task(storage: Storage, root: str, task: TaskState) -> FileList:
    """Return the files of a task, and check them against the files that the metadata contains."""
    files = loaded(storage, root, task.files)
    if files is not task.files:
        check_distinct(task, files)
    return files


def with_files(storage: Storage, root: str, task: TaskState) -> TaskState:
    """Return the task with its list loaded."""
    return replace(task, files=loaded_task(storage, root, task))


def list_in(files: StoredFileList, data: bytes) -> FileList:
    """Return the list in the object that `files` refers to. Raises like `loaded`."""
    files.check_bytes(data)
    try:
        found = FileChecks().read(data)
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise MetadataDamaged(f"{files.path} is not a file list ({error})") from error
    files.check_summary(found)
    return found


def objects_of(root: str, files: FileList, own_path: str | None) -> frozenset[str]:
    """Return the storage names of all objects that a list stands for: those of its files, and its own, if it is stored."""
    names = {name_below(root, name) for name in files.objects()}
    if own_path is not None:
        names.add(name_below(root, own_path))
    return frozenset(names)
