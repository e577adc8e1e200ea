"""Open files of one attempt: at most one for each partition of the table, closed when large or when memory is short."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[Any, ...]
"""The values of a partition of the table."""

F = TypeVar("F", covariant=True)
G = TypeVar("G")

MAX_OPEN_FILES = 64
OPEN_BYTES_PER_FILE_BYTES = 2
"""All open files together hold at most this many times the target size of one, since rows wait in memory for their row group."""


class OpenFile(Protocol[F]):
    """One Parquet file being written."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> F:
        """Finish the file, make it durable, and return what the committer must know about it."""
        ...

    def remove(self) -> None:
        """Remove the file, open or closed. May raise."""
        ...


class RollingFiles(Generic[G]):
    """`open_file(partition, number)` creates a file; numbers count the files of the attempt. Sizes are measured in memory."""

    def __init__(self, open_file: Callable[[Key, int], OpenFile[G]], target_bytes: int) -> None:
        self._open_file = open_file
        self._target_bytes = target_bytes
        self._open: dict[Key, OpenFile[G]] = {}
        self._bytes: dict[Key, int] = {}
        self._made: list[OpenFile[G]] = []
        self._closed: list[G] = []

    def write(self, partition: Key, batch: pa.RecordBatch) -> None:
        if partition not in self._open:
            file = self._open_file(partition, len(self._made))
            self._made.append(file)
            self._open[partition] = file
            self._bytes[partition] = 0
        self._open[partition].write(batch)
        self._bytes[partition] += batch.nbytes
        if self._bytes[partition] >= self._target_bytes:
            self._close(partition)
        limit = self._target_bytes * OPEN_BYTES_PER_FILE_BYTES
        while len(self._open) > MAX_OPEN_FILES or sum(self._bytes.values()) > limit:
            # The largest: that frees most memory and leaves the fewest small files.
            self._close(max(self._bytes, key=self._bytes.__getitem__))

    def close(self) -> list[G]:
        """Finish all files and return those of this attempt, in the order in which they were finished."""
        for partition in list(self._open):
            self._close(partition)
        return self._closed

    def remove(self) -> None:
        """Remove all files of this attempt, as far as possible."""
        for file in self._made:
            with suppress(Exception):
                file.remove()

    def _close(self, partition: Key) -> None:
        del self._bytes[partition]
        self._closed.append(self._open.pop(partition).close())
