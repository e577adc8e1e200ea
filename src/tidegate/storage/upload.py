"""Resumable uploads: one local file to storage, one part at a time, continued by whoever finds the record."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tidegate.core.errors import CorruptState
from tidegate.core.faults import reach
from tidegate.storage.handle import PART_BYTES, Checksum, FileHandle, checksum_of, checksum_of_file, parts_of
from tidegate.storage.port import Storage

_PRIVATE = re.compile(r".+\.[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class UploadRecord:
    """How far an upload has come. Kept beside the file, for any process of this machine to go on from."""

    path: str
    size_bytes: int
    part_bytes: int
    parts_done: int = 0
    checksum: str | None = None
    """Of the whole file; known once all parts are stored, which is what it stands for."""


class Upload:
    """Moves one immutable file. Used by one thread; several processes may work at the same file, and only waste effort.

    1. The first to begin writes its stored name into the record, if there is none. All others adopt that.
    2. `step` stores the next part. A crash leaves an object that the next one writes again, with the same bytes.
    3. `step` then records it. Two processes may set the record back; parts are stored again then, nothing worse.
    4. After the last part the checksum is recorded, and from then on `handle` is answered from the record alone.
    """

    def __init__(self, storage: Storage, source: Path, path: str, record: Path, part_bytes: int = PART_BYTES) -> None:
        """Begin under the stored name `path`, which is nobody else's, or go on from `record`, which has the name."""
        self._storage = storage
        self._source = source
        self._record_file = record
        size = _size(source)
        self._record = _read(record) or _begin(record, UploadRecord(path, size, part_bytes))
        if self._record.size_bytes != size:
            raise CorruptState(f"{source} has {size} bytes but had {self._record.size_bytes} when its upload began.")
        self._parts = list(parts_of(self._record.path, size, self._record.part_bytes))
        self._checksum = Checksum()
        self._checksummed_bytes = 0

    @property
    def handle(self) -> FileHandle | None:
        """The stored file, once it is complete."""
        done = self._record
        return None if done.checksum is None else FileHandle(done.path, done.size_bytes, done.checksum, done.part_bytes)

    @property
    def parts_left(self) -> int:
        return 0 if self._record.checksum is not None else len(self._parts) - self._record.parts_done

    def step(self) -> FileHandle | None:
        """Store one more part; the handle, if that was the last. May be called when complete."""
        if self._record.checksum is None:
            index = self._record.parts_done
            if index < len(self._parts):
                self._store_part(index)
            if self._record.parts_done == len(self._parts):
                self._advance(replace(self._record, checksum=self._whole_checksum()))
                reach("storage.upload.4-complete", path=self._record.path)
        return self.handle

    def run(self) -> FileHandle:
        """All that is left."""
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
        if self._checksummed_bytes == start:
            self._checksum.update(data)
            self._checksummed_bytes += size
        self._storage.put(name, data)
        reach("storage.upload.2-part-stored", path=name, index=index)
        self._advance(replace(self._record, parts_done=index + 1))
        reach("storage.upload.3-recorded", path=name, index=index)

    def _whole_checksum(self) -> str:
        """Of what this process read, if it read all; another's parts are read again, from the same immutable file."""
        if self._checksummed_bytes == self._record.size_bytes:
            return self._checksum.text()
        return checksum_of_file(self._source)

    def _advance(self, record: UploadRecord) -> None:
        replace_whole(self._record_file, msgspec.json.encode(record))
        self._record = record


def store(storage: Storage, path: str, data: bytes) -> FileHandle:
    """Keep bytes that are in memory under a name that is nobody else's, in parts as an `Upload` would. `fetch` reads them."""
    handle = FileHandle(path, len(data), checksum_of(data))
    at = 0
    for name, size in handle.parts():
        storage.put(name, data[at : at + size])
        at += size
    return handle


def _begin(file: Path, record: UploadRecord) -> UploadRecord:
    """Write the first record, or adopt the one of whoever was faster."""
    private = _write_private(file, msgspec.json.encode(record))
    try:
        os.link(private, file)
    except FileExistsError:
        adopted = _read(file)
        if adopted is not None:
            return adopted
        os.replace(private, file)
    finally:
        private.unlink(missing_ok=True)
    return record


def _read(file: Path) -> UploadRecord | None:
    """None without a record, or with one that a power failure tore: then the upload begins anew under a new name."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(file.read_bytes(), type=UploadRecord)
    return None


def replace_whole(file: Path, data: bytes) -> None:
    """Write a small file in one step. When it fails, on a full disk say, nothing is left that takes space."""
    os.replace(_write_private(file, data), file)


def remove_private(folder: Path) -> None:
    """Remove what killed processes left of such writes. Nobody may be writing in the folder."""
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
