"""Timers in memory, stored as the same entries: `state.backend.rocksdb.timer-service.factory: heap`.

The first access in an attempt reads all timers of the operator into a heap; from then on, registering and firing happen
in memory, and only the net changes are written at the end of the epoch. A timer that is registered and fires within one
epoch is never written. This suits small numbers of timers: all of them must fit into the memory of the Python worker,
and every attempt reads them. The stored format is the same, so the choice can change at any start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any

from tidegate.core.times import MAX_WATERMARK, TimeDomain
from tidegate.state.accessors.timers import Timer, TimerState, _Name
from tidegate.state.keys.entry_keys import Namespace


class HeapTimers(TimerState):
    """The timers of one operator in one attempt, all of them in memory."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._all: list[dict[_Name, int] | None] = [None, None]
        """Pending timers with their key groups, by domain. None: not read yet."""
        self._heaps: tuple[list[tuple[int, int, _Name]], list[tuple[int, int, _Name]]] = ([], [])
        """Ordered by time. Deleted timers stay in it and are skipped."""

    def register(self, domain: TimeDomain, time_ms: int, key: Any, key_group: int, namespace: Namespace = None) -> None:
        held, name = self._held(domain), (time_ms, key, namespace)
        if name in held:
            return
        held[name] = key_group
        if self._removed[domain].pop(name, None) is None:
            self._added[domain][name] = key_group
        # Tells timers of one time apart, so that the heap never compares keys, which may have no order.
        self._count += 1
        heappush(self._heaps[domain], (time_ms, self._count, name))

    def register_many(self, domain: TimeDomain, names: Sequence[_Name], groups: Sequence[int]) -> None:
        for (time_ms, key, namespace), group in zip(names, groups):
            self.register(domain, time_ms, key, group, namespace)

    def delete(self, domain: TimeDomain, time_ms: int, key: Any, key_group: int, namespace: Namespace = None) -> None:
        name = (time_ms, key, namespace)
        if self._held(domain).pop(name, None) is not None:
            self._gone(domain, name, key_group)

    def due(self, domain: TimeDomain, until_ms: int) -> Iterator[Timer]:
        held, heap = self._held(domain), self._heaps[domain]
        while heap and heap[0][0] <= until_ms:
            name = heappop(heap)[2]
            group = held.pop(name, None)
            if group is not None:
                self._gone(domain, name, group)
                yield Timer(name[0], name[1], group, name[2])

    def earliest(self, domain: TimeDomain) -> int | None:
        held, heap = self._held(domain), self._heaps[domain]
        while heap and heap[0][2] not in held:
            heappop(heap)
        return heap[0][0] if heap else None

    def count(self, most: int) -> int:
        return min(most, sum(len(self._held(domain)) for domain in TimeDomain))

    def drop_cached(self) -> None:
        super().drop_cached()
        self._all = [None, None]
        for heap in self._heaps:
            heap.clear()

    def _gone(self, domain: TimeDomain, name: _Name, group: int) -> None:
        if self._added[domain].pop(name, None) is None:
            self._removed[domain][name] = group

    def _held(self, domain: TimeDomain) -> dict[_Name, int]:
        held = self._all[domain]
        if held is None:
            held = self._all[domain] = {}
            heap = self._heaps[domain]
            # By group and then as a heap: the store has an order for each key group only.
            for group in self._groups:
                for tail, _ in self._scan(domain, group, MAX_WATERMARK, []):
                    timer = self._decoded(tail, group)
                    name = (timer.time_ms, timer.key, timer.namespace)
                    held[name] = group
                    self._count += 1
                    heap.append((timer.time_ms, self._count, name))
            heapify(heap)
        return held
