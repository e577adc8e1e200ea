"""One attempt on any backend that also writes its changes to a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from tidegate.core.faults import reach
from tidegate.state.changelog.chain import begin_changes, changes_path
from tidegate.state.changelog.change_file import ChangeHeader, ChangeWriter
from tidegate.state.disk.local_root import boot_id
from tidegate.state.disk.private_directory import PrivateDirectory
from tidegate.state.failure import state_failure
from tidegate.state.frames import rows_of_a_frame
from tidegate.state.port import MeasuredStore, MemoryUsingStore, StateStore, TimerPlacingStore
from tidegate.state.version import Manifest, VersionId

_FRAME_KEYS = 1000


class ChangelogStore:
    """See `StateStore`. Reads are those of the wrapped store; writes go to the store, and then to the file."""

    def __init__(self, inner: StateStore, directory: Path, base: VersionId | None, target: VersionId) -> None:
        self._inner = inner
        self._directory = directory
        self._base = base
        self._target = target
        self._private: PrivateDirectory | None = None
        self._writer: ChangeWriter | None = None
        self._ended = False

    @property
    def timers_on_heap(self) -> bool:
        """Whether timers of the wrapped store are held in memory."""
        return isinstance(self._inner, TimerPlacingStore) and self._inner.timers_on_heap

    def get(self, key: bytes) -> bytes | None:
        return self._inner.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return self._inner.get_many(keys)

    def scan(self, start: bytes, end: bytes, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        return self._inner.scan(start, end, reverse=reverse)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        rows = iter(puts)
        while chunk := rows_of_a_frame(rows):
            # The store first: an entry that it refuses must not be in the log.
            self._inner.write(chunk)
            self._log(chunk, ())
        gone = iter(deletes)
        while keys := list(islice(gone, _FRAME_KEYS)):
            self._inner.write((), keys)
            self._log((), keys)

    def load(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self._inner.load(self._logged(entries))

    def delete_range(self, start: bytes, end: bytes) -> None:
        if start >= end:
            return
        self._inner.delete_range(start, end)
        try:
            self._open().delete_range(start, end)
        except Exception as error:
            raise self._failed(error) from error

    def seal(self, elements: Mapping[int, int] | None = None) -> Manifest:
        """Seal the version, with its changes beside it.

        1. Finish the change file and give it its name. A crash leaves changes of a version that does not exist, which
           nobody looks for; they are removed when the log is truncated.
        2. Seal the wrapped store.
        """
        if self._ended:
            return self._inner.seal(elements)  # It says why it cannot.
        try:
            # Also an attempt without changes leaves a file. Without it, the chain would end here.
            writer = self._writer or self._open(empty=True)
            assert self._private is not None
            writer.finish()
            # Before the version: a version that exists has its changes.
            os.rename(self._private.path / "log", changes_path(self._directory, self._target))
            self._private.discard()
        except Exception as error:
            raise self._failed(error) from error
        self._ended = True
        reach("changelog.1-written", version=self._target)
        return self._inner.seal(elements)

    def abandon(self) -> None:
        self._ended = True
        if self._writer is not None:
            self._writer.close()
        if self._private is not None:
            self._private.discard()
        self._inner.abandon()

    def metrics(self) -> Mapping[str, float]:
        """See `MeasuredStore`."""
        return self._inner.metrics() if isinstance(self._inner, MeasuredStore) else {}

    def memory(self) -> Mapping[str, float]:
        """See `MemoryUsingStore`."""
        return self._inner.memory() if isinstance(self._inner, MemoryUsingStore) else {}

    def _logged(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        rows = iter(entries)
        while chunk := rows_of_a_frame(rows):
            self._log(chunk, ())
            yield from chunk

    def _log(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes]) -> None:
        try:
            self._open().write(puts, deletes)
        except Exception as error:
            raise self._failed(error) from error

    def _open(self, *, empty: bool = False) -> ChangeWriter:
        if self._writer is None:
            self._private = begin_changes(self._directory)
            header = ChangeHeader(self._target, self._base, empty, boot_id())
            self._writer = ChangeWriter(self._private.path / "log", header)
        return self._writer

    def _failed(self, error: Exception) -> Exception:
        self.abandon()
        return state_failure("writing changes", self._directory, error)
