"""Which keys have the most rows: a sketch of bounded size, fed with a sample of each batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

_SAMPLE = 256
"""Rows of a batch that are looked at. All of a smaller one."""
_KEPT = 64
"""Keys that a sketch remembers after it has forgotten rare ones."""
_MOST = 4 * _KEPT
_SHOWN_CHARS = 80
_WORTH_TELLING = 0.01
"""The share of its operator's rows from which a key is reported."""
_random = np.random.default_rng()


class KeySketch:
    """The most frequent keys of one operator in one attempt, after Misra and Gries: when there are too many, all lose as many
    rows as the first one to be forgotten has. So a key may count too few rows, never one that is seldom too many.

    The rows of a batch are picked at random, not at intervals: keys often come in rounds.
    """

    def __init__(self) -> None:
        self._rows: dict[Any, float] = {}
        self.seen = 0

    def add(self, keys: Sequence[Any], weights: Sequence[int] | None = None) -> None:
        """Add the rows of a batch by their keys. `weights`: how many rows each of them stands for."""
        count = len(keys)
        if count == 0:
            return
        picked: Sequence[int] | None = None
        if count > _SAMPLE:
            picked = _random.integers(0, count, _SAMPLE).tolist()
            keys = itemgetter(*picked)(keys)
        if weights is None:
            self.seen += count
            found: Counter[Any] = Counter(keys)
        else:
            self.seen += sum(weights)
            found = Counter()
            for key, weight in zip(keys, weights if picked is None else itemgetter(*picked)(weights)):
                found[key] += weight
        self._count(found, count / len(keys))

    def add_indexed(self, keys: Sequence[Any], index: npt.NDArray[np.int64]) -> None:
        """Add the rows of a batch, given the distinct keys and the position of each row's key among them."""
        count = len(index)
        if count > _SAMPLE:
            index = index[_random.integers(0, count, _SAMPLE)]
        self.seen += count
        self._count(Counter(keys[place] for place in index.tolist()), count / len(index))

    def _count(self, found: Counter[Any], each: float) -> None:
        rows, full = self._rows, len(self._rows) > _KEPT
        for key, hits in found.items():
            before = rows.get(key)
            if before is not None:
                rows[key] = before + hits * each
            elif hits > 1 or not full:  # Most keys of a sample come once: they are not worth being forgotten again.
                rows[key] = hits * each
        if len(rows) > _MOST:
            self._forget()

    def _forget(self) -> None:
        ordered = self._most_common(_KEPT + 1)
        # Misra and Gries: what is taken from the forgotten ones is taken from all, so no rest is too high.
        least = ordered[-1][1]
        self._rows = {key: rows - least for key, rows in ordered[:-1] if rows > least}

    def _most_common(self, count: int) -> list[tuple[Any, float]]:
        return nlargest(count, self._rows.items(), key=itemgetter(1))

    def top(self, count: int) -> list[tuple[str, int]]:
        """Return the keys with the most rows, as text, with their estimated rows."""
        found = self._most_common(count)
        return [(key_text(key), round(rows)) for key, rows in found if rows >= _WORTH_TELLING * self.seen]


def key_text(key: Any) -> str:
    """Return a key for people, shortened."""
    text = ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
