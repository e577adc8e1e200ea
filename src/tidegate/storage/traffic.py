"""Requests to storage and the bytes they move, by kind."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Literal

CallKind = Literal["write", "read", "list", "delete"]


class Traffic:
    """Counts calls of one storage. A call that the client repeats counts once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._taken: dict[str, tuple[int, int]] = {}

    def add(self, kind: CallKind, size_bytes: int = 0, *, requests: int = 1) -> None:
        with self._lock:
            self._requests[kind] += requests
            self._bytes[kind] += size_bytes

    def total(self) -> dict[str, tuple[int, int]]:
        """Return requests and bytes by kind."""
        with self._lock:
            return {kind: (count, self._bytes[kind]) for kind, count in self._requests.items()}

    def take(self) -> dict[str, tuple[int, int]]:
        """Return what has come since the last call."""
        now, before = self.total(), self._taken
        self._taken = now
        since = {
            kind: (n - before.get(kind, (0, 0))[0], b - before.get(kind, (0, 0))[1]) for kind, (n, b) in now.items()
        }
        return {kind: each for kind, each in since.items() if each[0]}
