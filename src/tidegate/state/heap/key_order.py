"""Keys in byte order, as a list of short sorted lists: an insertion moves hundreds of references, not millions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

# An insertion moves some hundred references, and a million keys have about two thousand lists to choose from.
_CHUNK = 512


class KeyOrder:
    """A sorted set of keys. Built in O(n log n); an insertion or removal touches one short list."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        ordered = sorted(keys)
        self._chunks = [ordered[at : at + _CHUNK] for at in range(0, len(ordered), _CHUNK)]
        self._firsts = [chunk[0] for chunk in self._chunks]

    def add(self, key: bytes) -> None:
        """Insert a key that is not in the set."""
        if not self._chunks:
            self._chunks.append([key])
            self._firsts.append(key)
            return
        at = max(bisect_right(self._firsts, key) - 1, 0)
        chunk = self._chunks[at]
        insort(chunk, key)
        self._firsts[at] = chunk[0]
        if len(chunk) > 2 * _CHUNK:
            self._chunks[at : at + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]
            self._firsts.insert(at + 1, chunk[_CHUNK])

    def remove(self, key: bytes) -> None:
        """Remove a key that is in the set."""
        at = bisect_right(self._firsts, key) - 1
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._firsts[at] = chunk[0]
        else:
            del self._chunks[at]
            del self._firsts[at]

    def chunks(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[list[bytes]]:
        """Yield keys with start <= key < end in order, in lists that the caller may keep. The set must not change meanwhile.

        With `reverse`, both the lists and the keys in them are in descending order.
        """
        if reverse:
            for at in range(bisect_left(self._firsts, end) - 1, -1, -1):
                chunk = self._chunks[at]
                part = chunk[bisect_left(chunk, start) : bisect_left(chunk, end)]
                if part:
                    yield part[::-1]
                if self._firsts[at] < start:
                    return
            return
        for at in range(max(bisect_right(self._firsts, start) - 1, 0), len(self._chunks)):
            if self._firsts[at] >= end:
                return
            chunk = self._chunks[at]
            part = chunk[bisect_left(chunk, start) : bisect_left(chunk, end)]
            if part:
                yield part
