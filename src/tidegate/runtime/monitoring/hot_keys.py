"""The hot keys of a job: what its tasks found, merged over tasks and over the last epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import nlargest
from operator import itemgetter

from tidegate.runtime.exchange.messages import TaskAck

_FADE = 0.8
"""What the rows of an epoch still count in the next one."""
_KEPT = 32
_SHOWN = 5


class HotKeyTable:
    """For each keyed operator, the keys with the most rows. A key belongs to one task, so its rows need no merging."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, float]] = {}
        self._totals: dict[str, float] = {}

    def add(self, operators: Mapping[str, tuple[int, int]], acks: Iterable[TaskAck]) -> None:
        """Add an epoch. `operators` are its rows in and out, by operator."""
        found: dict[str, dict[str, float]] = {}
        for ack in acks:
            for hot in ack.metrics.hot_keys:
                found.setdefault(hot.operator, {})[hot.key] = hot.rows
        for operator in found.keys() | self._rows.keys():
            rows_in = operators.get(operator, (0, 0))[0]
            # Without rows nothing fades: a key stays hot while its operator rests.
            if rows_in:
                self._merge(operator, found.get(operator, {}), rows_in)

    def _merge(self, operator: str, found: Mapping[str, float], rows_in: int) -> None:
        rows = {key: before * _FADE for key, before in self._rows.get(operator, {}).items()}
        for key, count in found.items():
            rows[key] = rows.get(key, 0.0) + count
        kept = nlargest(_KEPT, rows.items(), key=itemgetter(1))
        self._totals[operator] = self._totals.get(operator, 0.0) * _FADE + rows_in
        self._rows = {**self._rows, operator: dict(kept)}

    def shares(self) -> dict[str, list[tuple[str, float]]]:
        """Return the hottest keys of each operator, with their share of its rows, from 0 to 1."""
        shares: dict[str, list[tuple[str, float]]] = {}
        for operator, rows in self._rows.items():
            total = self._totals[operator]
            shares[operator] = [(key, min(1.0, count / total)) for key, count in list(rows.items())[:_SHOWN]]
        return shares
