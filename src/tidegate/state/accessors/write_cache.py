"""Bounds what the states of an operator keep in memory during an attempt: values that were read, and changes not yet written.

What exceeds the bound is written early into the store of the attempt, which nobody else sees before it is sealed. The size is
looked at between batches, and not after each: counting takes time that grows with the cache, so the next look comes when
a quarter of the room that is left could be used up at the pace so far. The size of an entry is that of a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

MOST_SKIPPED = 32
"""Batches between two looks, at most: the pace may change."""
SAMPLE = 64
"""Keys of a state that are looked at to estimate the size of an entry."""
_RESAMPLED = 1.25
"""A state is sampled again when it has grown or shrunk by this factor."""


class CachingState(Protocol):
    """A state with entries in memory."""

    def cached(self) -> int:
        """The number of entries in memory."""
        ...

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        """Return the number of entries under at most `most` keys, and about how many bytes these take."""
        ...


class _Part:
    """One state, with the size of its entries when they were last sampled."""

    __slots__ = ("_bytes_each", "_sampled_at", "_state")

    def __init__(self, state: CachingState) -> None:
        self._state = state
        self._sampled_at = 0
        self._bytes_each = 0.0

    def entries(self) -> int:
        return self._state.cached()

    def size_bytes(self) -> int:
        count = self.entries()
        # Between two samples, the size is the number of entries times what one took.
        if not self._sampled_at / _RESAMPLED <= count <= self._sampled_at * _RESAMPLED:
            seen, size = self._state.sampled_bytes(SAMPLE)
            self._sampled_at = count
            self._bytes_each = size / max(1, seen)
        return int(count * self._bytes_each)


class WriteCache:
    """The memory of the states of one operator in one attempt, with a limit in bytes, or else in entries."""

    def __init__(self, states: Sequence[CachingState], limit_bytes: int | None) -> None:
        self._parts = [_Part(state) for state in states]
        self._limit_bytes = limit_bytes
        self._skipped = self._used = 0
        self._pace = 0.0
        self._skip = 0
        self.peak_bytes = 0
        """The largest size that was seen."""

    def size_bytes(self) -> int:
        """Estimate the size, as precisely as a sample of entries allows."""
        size = sum(part.size_bytes() for part in self._parts)
        self.peak_bytes = max(self.peak_bytes, size)
        return size

    def is_full(self, most_entries: int) -> bool:
        """Whether states should write their changes and drop what they hold. Called between batches of rows.

        `most_entries` is the limit if there is none in bytes.
        """
        if self._skipped < self._skip:
            self._skipped += 1
            return False
        limit = most_entries if self._limit_bytes is None else self._limit_bytes
        used = sum(part.entries() for part in self._parts) if self._limit_bytes is None else self.size_bytes()
        # The pace of earlier batches is forgotten slowly: what grew fast once may do so again.
        self._pace = max((used - self._used) / (self._skipped + 1), self._pace / 2)
        room = max(0, limit - used)
        self._used = used
        self._skipped = 0
        self._skip = min(MOST_SKIPPED, int(room / 4 / max(1.0, self._pace)))
        return used > limit

    def emptied(self) -> None:
        """Note that the states hold nothing any more."""
        self._used = 0
