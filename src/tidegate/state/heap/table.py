"""The entries of one version in memory, and the per-process cache of such tables."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from tidegate.state.heap.change_file import Changes
from tidegate.state.heap.key_order import KeyOrder
from tidegate.state.version import VersionId

_ENTRY_BYTES = 150
"""Python's overhead per entry: two objects, a slot of the dict, a reference in the key order."""


class HeapTable:
    """All entries of version `tip`. Attempts only read it; `apply` advances it to the next version."""

    def __init__(self, tip: VersionId | None, entries: dict[bytes, bytes]) -> None:
        self.tip = tip
        self.entries = entries
        self._order: KeyOrder | None = None
        self.size_bytes = sum(map(len, entries)) + sum(map(len, entries.values())) + _ENTRY_BYTES * len(entries)

    def key_chunks(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[bytes]]:
        """Yield the keys of a range, in order. The first call sorts all keys; state that is never scanned does not pay for it."""
        if self._order is None:
            self._order = KeyOrder(self.entries)
        return self._order.chunks(start, end, reverse)

    def apply(self, changes: Changes, tip: VersionId) -> None:
        """Advance to the version that results from `changes`."""
        entries, order = self.entries, self._order
        if order is None and None not in changes.values():
            # The usual epoch: no deletes, never scanned. One call, with the size estimated from the average entry.
            before = len(entries)
            entries.update(changes)  # type: ignore[arg-type]
            if changes and len(entries) > before:
                written = sum(map(len, changes)) + sum(map(len, changes.values()))  # type: ignore[arg-type]
                self.size_bytes += (len(entries) - before) * (_ENTRY_BYTES + written // len(changes))
            self.tip = tip
            return
        for key, value in changes.items():
            old = entries.get(key)
            if value is not None:
                entries[key] = value
                self.size_bytes += len(value) - len(old) if old is not None else len(value) + len(key) + _ENTRY_BYTES
                if old is None and order is not None:
                    order.add(key)
            elif old is not None:
                del entries[key]
                self.size_bytes -= len(old) + len(key) + _ENTRY_BYTES
                if order is not None:
                    order.remove(key)
        self.tip = tip


class TableCache:
    """Tables of this process by task directory. Only a hint: on a miss, the files are read.

    An attempt takes a table out and puts it back after it has sealed or given up, so no two attempts share one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: OrderedDict[Path, HeapTable] = OrderedDict()

    def take(self, directory: Path) -> HeapTable | None:
        with self._lock:
            return self._tables.pop(directory, None)

    def put(self, directory: Path, table: HeapTable, limit_bytes: int) -> None:
        """Keep `table`, and drop the least recently used ones while the total exceeds `limit_bytes`."""
        with self._lock:
            self._tables[directory] = table
            self._tables.move_to_end(directory)
            # The table that was put in last always stays: it is the most likely to be used next.
            while len(self._tables) > 1 and sum(each.size_bytes for each in self._tables.values()) > limit_bytes:
                self._tables.popitem(last=False)

    def forget(self) -> None:
        with self._lock:
            self._tables.clear()


CACHE = TableCache()
"""The cache of this process."""


def forget() -> None:
    """Drop all tables of this process, as if it had died. For tests."""
    CACHE.forget()
