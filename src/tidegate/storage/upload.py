"""Resumable uploads: one local file to storage, one part at a time, continued by any process that finds the record."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tidegate.core.content_check import ContentCheck, check_of_file, require_same
from tidegate.core.errors import CorruptState
from tidegate.core.faults import reach
from tidegate.storage.handle import PART_BYTES, Checksum, FileHandle, checksum_of, checksum_of_file, parts_of
from tidegate.storage.port import Storage

# A name of ours with the hexadecimal digits of a UUID at its end.
_PRIVATE = re.compile(r".+\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """The progress of an upload. Stored next to the file, so that any process on this machine can continue it."""

    path: str
    size_bytes: int
    part_bytes: int
    parts_done: int = 0
    checksum: str | None = None
    """Of the whole file. Set once all parts are stored, and thus marks the upload as complete."""


class Upload:
    """Uploads one immutable file. Used by one thread. If several processes upload the same file, they only waste
    effort.

    1. The first process writes the stored name into the record, if there is none. All others adopt that name.
    2. `step` stores the next part. A crash leaves an object that the next process overwrites with the same bytes.
    3. `step` then records the part. Two processes may set the record back; then parts are merely stored again.
    4. After the last part, the checksum is recorded, unless the content is not what was `written`: then nothing refers to the
       parts. From then on, `handle` needs only the record.
    """

    def __init__(
        self,
        storage: Storage,
        source: Path,
        path: str,
        record: Path,
        part_bytes: int = PART_BYTES,
        *,
        written: str = "",
    ) -> None:
        """Start under the stored name `path`, which must be unique, or continue from `record`, which contains the name.
        `written`: the checksum of the file when it was written, if that is known (see `core.content_check`)."""
        self._storage = storage
        self._source = source
        self._record_file = record
        size = _size(source)
        self._record = _read(record) or _begin(record, UploadRecord(path, size, part_bytes))
        # Files of versions never change. One that does was damaged, or cut by `condemn`.
        if self._record.size_bytes != size:
            raise CorruptState(f"{source} has {size} bytes but had {self._record.size_bytes} when its upload began.")
        self._parts = list(parts_of(self._record.path, size, self._record.part_bytes))
        self._checksum = Checksum()
        self._written = written
        self._content = ContentCheck()
        self._checksummed_bytes = 0

    @property
    def handle(self) -> FileHandle | None:
        """The handle of the stored file, or None until it is complete."""
        done = self._record
        if done.checksum is None:
            return None
        return FileHandle(done.path, done.size_bytes, done.checksum, done.part_bytes)

    @property
    def parts_left(self) -> int:
        return 0 if self._record.checksum is not None else len(self._parts) - self._record.parts_done

    def step(self) -> FileHandle | None:
        """Store one more part and return the handle if it was the last. Can be called when complete."""
        if self._record.checksum is None:
            index = self._record.parts_done
            if index < len(self._parts):
                self._store_part(index)
            if self._record.parts_done == len(self._parts):
                self._advance(replace(self._record, checksum=self._whole_checksum()))
                reach("storage.upload.4-complete", path=self._record.path)
        return self.handle

    def run(self) -> FileHandle:
        """Store all remaining parts."""
        while (handle := self.step()) is None:
            pass
        return handle

    def _store_part(self, index: int) -> None:
        name, size = self._parts[index]
        start = index * self._record.part_bytes
        with self._source.open("rb") as file:
            file.seek(start)
            data = file.read(size)
        if len(data) != size:
            raise CorruptState(f"{self._source} ends in the middle of part {index} of its upload.")
        # Only while this process has read everything before. A process that continues another's upload reads the
        # file again at the end.
        if self._checksummed_bytes == start:
            self._checksum.update(data)
            if self._written:
                self._content.update(data)
            self._checksummed_bytes += size
        self._storage.put(name, data)
        reach("storage.upload.2-part-stored", path=name, index=index)
        self._advance(replace(self._record, parts_done=index + 1))
        reach("storage.upload.3-recorded", path=name, index=index)

    def _whole_checksum(self) -> str:
        """Checksum what this process read, if it read everything; otherwise read the same immutable file again. Raises
        `CorruptState` if that is not what was written."""
        is_read = self._checksummed_bytes == self._record.size_bytes
        if self._written:
            found = self._content.text() if is_read else check_of_file(self._source)
            require_same(self._source, found, self._written)
        return self._checksum.text() if is_read else checksum_of_file(self._source)

    def _advance(self, record: UploadRecord) -> None:
        replace_whole(self._record_file, msgspec.json.encode(record))
        self._record = record


def store(storage: Storage, path: str, data: bytes) -> FileHandle:
    """Store bytes from memory under a unique name, in parts as an `Upload` would. `fetch` reads them."""
    handle = FileHandle(path, len(data), checksum_of(data))
    at = 0
    for name, size in handle.parts():
        storage.put(name, data[at : at + size])
        at += size
    return handle


def _begin(file: Path, record: UploadRecord) -> UploadRecord:
    """Write the first record, or adopt the one that another process wrote first."""
    private = _write_private(file, msgspec.json.encode(record))
    try:
        os.link(private, file)
    except FileExistsError:
        # Another process was faster. Its name counts, so that both store parts under one.
        adopted = _read(file)
        if adopted is not None:
            return adopted
        # The record is there and cannot be read: a power failure tore it.
        os.replace(private, file)
    finally:
        private.unlink(missing_ok=True)
    return record


def _read(file: Path) -> UploadRecord | None:
    """Return None if there is no record, or if a power failure tore it: then the upload restarts under a new name."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(file.read_bytes(), type=UploadRecord)
    return None


def replace_whole(file: Path, data: bytes) -> None:
    """Write a small file atomically. On failure, such as a full disk, nothing is left that takes space."""
    os.replace(_write_private(file, data), file)


def remove_private(folder: Path) -> None:
    """Remove what killed processes left of such writes. No process may be writing to the folder."""
    for path in folder.iterdir():
        if _PRIVATE.fullmatch(path.name):
            path.unlink(missing_ok=True)


def _write_private(beside: Path, data: bytes) -> Path:
    private = beside.with_name(f"{beside.name}.{uuid.uuid4().hex}")
    try:
        private.write_bytes(data)
    except BaseException:
        private.unlink(missing_ok=True)
        raise
    return private


def _size(source: Path) -> int:
    try:
        return source.stat().st_size
    except FileNotFoundError as error:
        raise CorruptState(f"{source} is gone; its version cannot be uploaded.") from error
