"""Storage that measures what is read through it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tidegate.storage.port import Storage
from tidegate.storage.routed import RoutedStorage


class MeteredStorage(RoutedStorage):
    """Passes everything on. Several threads may read at once; time in which at least one does counts once."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        # Four downloads at a time that take a second each are one second, not four.
        self._readers = 0
        self._since = 0.0
        self.read_seconds = 0.0

    def _route(self, path: str) -> tuple[Storage, str]:
        return self.home, path  # It may route by itself.

    def get(self, path: str) -> bytes:
        with self._reading():
            return super().get(path)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        with self._reading():
            return super().get_range(path, start, length)

    @property
    def read_bytes(self) -> int:
        return self.traffic.total().get("read", (0, 0))[1]

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock:
            if self._readers == 0:
                self._since = time.monotonic()
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    self.read_seconds += time.monotonic() - self._since
