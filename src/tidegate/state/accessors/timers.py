"""Timers as keyed state: ordered by time within each key group, so that due timers are a range.

    entry key = key group (2) · state id (2) · domain (1) · time (8, sign bit flipped) · key · namespace
    value     = nothing

Timers are stored in their key groups like all keyed state, so snapshots, restores and rescaling need not know about
them. One (domain, time, key, namespace) is one entry: registering it twice has no further effect.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import heappop, heappush, merge
from itertools import islice
from typing import Any, NamedTuple

from tidegate.core.times import MAX_WATERMARK, TimeDomain
from tidegate.state.accessors.object_size import object_bytes, spread
from tidegate.state.keys.entry_keys import KeyCodec, Namespace, namespace_bytes, prefix_end, read_namespace
from tidegate.state.keys.ordered import damaged
from tidegate.state.port import StateStore

_head = struct.Struct(">HHB")
_time = struct.Struct(">Q")
_SIGN = 1 << 63
_KEY_AT = _head.size + _time.size
_OVERHEAD = 100
"""Bytes that a cached timer takes in a dictionary."""

_Name = tuple[int, Any, Namespace]
"""A timer of one domain: time, key, namespace."""


class Timer(NamedTuple):
    """A timer that is due."""

    time_ms: int
    key: Any
    key_group: int
    namespace: Namespace


class TimerState:
    """The timers of one operator in one attempt. Registrations and deletions stay in memory until `flush`."""

    def __init__(self, store: StateStore, state_id: int, keys: KeyCodec, key_groups: tuple[int, int]) -> None:
        self._store = store
        self._id = state_id
        self._keys = keys
        self._groups = range(key_groups[0], key_groups[1] + 1)
        self._added: tuple[dict[_Name, int], dict[_Name, int]] = ({}, {})
        self._removed: tuple[dict[_Name, int], dict[_Name, int]] = ({}, {})
        self._reached: list[int | None] = [None, None]
        """While timers of a domain fire: the time up to which they fire. Timers registered up to that time fire in the
        same pass."""
        self._fresh: tuple[dict[_Name, int], dict[_Name, int]] = ({}, {})
        self._queues: tuple[list[tuple[int, int, _Name]], list[tuple[int, int, _Name]]] = ([], [])
        self._count = 0
        self.armed: set[Any] = set()
        """Lets an operator remember what it has timers for, as long as memory allows. Registering again is harmless."""
        self._now: list[_Name | None] = [None, None]
        """The timer that is firing."""
        self._cancelled: tuple[set[_Name], set[_Name]] = (set(), set())
        """Timers deleted while timers fire, to be skipped by the pass. Their entries are removed with those of the
        fired timers."""

    def register(self, domain: TimeDomain, time_ms: int, key: Any, key_group: int, namespace: Namespace = None) -> None:
        name = (time_ms, key, namespace)
        reached = self._reached[domain]
        if reached is not None and time_ms <= reached:
            # Deleted and registered again within one pass: it fires.
            self._cancelled[domain].discard(name)
            if name not in self._fresh[domain]:
                self._fresh[domain][name] = key_group
                self._count += 1
                # The count keeps the order of registration among timers of one time, and spares comparing keys.
                heappush(self._queues[domain], (time_ms, self._count, name))
            return
        added = self._added[domain]
        if name not in added:
            added[name] = key_group
            # Nearly always empty.
            if self._removed[domain]:
                self._removed[domain].pop(name, None)

    def register_many(self, domain: TimeDomain, names: Sequence[_Name], groups: Sequence[int]) -> None:
        """Register many timers, given as (time, key, namespace). Not while timers of the domain fire."""
        assert self._reached[domain] is None
        self._added[domain].update(zip(names, groups))
        removed = self._removed[domain]
        for name in names if removed else ():
            removed.pop(name, None)

    def delete(self, domain: TimeDomain, time_ms: int, key: Any, key_group: int, namespace: Namespace = None) -> None:
        """Delete a timer. Does nothing if it was never registered or has fired."""
        name = (time_ms, key, namespace)
        reached, now = self._reached[domain], self._now[domain]
        if reached is None or time_ms > reached:
            self._added[domain].pop(name, None)
            # Also if it was added in this attempt: the store may have it from an earlier one.
            self._removed[domain][name] = key_group
            return
        self._fresh[domain].pop(name, None)
        # Timers before the firing one have fired already.
        if now is None or (time_ms >= now[0] and name != now):
            self._cancelled[domain].add(name)

    def due(self, domain: TimeDomain, until_ms: int) -> Iterator[Timer]:
        """Yield timers up to and including a time, in time order, removing each as it is yielded.

        A timer that the caller registers for a time already reached fires in the same pass; one that it deletes does
        not. Only due entries are read, a few ahead in each key group.
        """
        self.flush()
        self._reached[domain] = until_ms
        fresh, cancelled, queue = self._fresh[domain], self._cancelled[domain], self._queues[domain]
        now = self._now
        touched: list[int] = []
        # A range of each key group, read a few entries ahead. Merged by time, because bytes begin with the time.
        stored = merge(*(self._scan(domain, group, until_ms, touched) for group in self._groups))
        head = next(stored, None)
        while head is not None or queue:
            if queue and (head is None or queue[0][0] < self._time_of(head[0])):
                name = heappop(queue)[2]
                group = fresh.pop(name, None)
                if group is not None:
                    now[domain] = name
                    yield Timer(name[0], name[1], group, name[2])
                continue
            assert head is not None
            timer = self._decoded(*head)
            name = (timer.time_ms, timer.key, timer.namespace)
            # Registered again while it waited in the store: one timer, which fires once.
            fresh.pop(name, None)
            if name not in cancelled:
                now[domain] = name
                yield timer
            head = next(stored, None)
        self._reached[domain] = now[domain] = None
        cancelled.clear()
        for group in touched:
            # One range for each group that had any, after the pass: deleting one by one would cost a write for each
            # timer.
            start, end = self._range(domain, group, until_ms)
            self._store.delete_range(start, end)

    def earliest(self, domain: TimeDomain) -> int | None:
        """Return the time of the next timer, or None."""
        self.flush()
        first: bytes | None = None
        for group in self._groups:
            for raw, _ in self._store.scan(*self._range(domain, group, MAX_WATERMARK)):
                time = raw[_head.size : _KEY_AT]
                if first is None or time < first:
                    first = time
                break
        return None if first is None else int(_time.unpack(first)[0]) - _SIGN

    def count(self, most: int) -> int:
        """Return the number of timers, but no more than `most`: all that are counted are read."""
        self.flush()
        found = 0
        for domain in TimeDomain:
            for group in self._groups:
                ahead = self._store.scan(*self._range(domain, group, MAX_WATERMARK))
                found += sum(1 for _ in islice(ahead, most - found))
                if found >= most:
                    return most
        return found

    def flush(self) -> None:
        for domain in TimeDomain:
            added, removed = self._added[domain], self._removed[domain]
            if added or removed:
                raw = self._raw
                self._store.write(
                    [(raw(domain, name, group), b"") for name, group in added.items()],
                    [raw(domain, name, group) for name, group in removed.items()],
                )
                added.clear()
                removed.clear()

    def cached(self) -> int:
        added, removed = self._added, self._removed
        return len(added[0]) + len(added[1]) + len(removed[0]) + len(removed[1]) + len(self.armed)

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        """Return a number of cached timers, at most `most` of each kind, and about how many bytes they take."""
        changed = [*self._added, *self._removed]
        seen: list[Any] = [name for names in changed for name in spread(names, len(names), most)]
        seen += spread(self.armed, len(self.armed), most)
        return len(seen), sum(object_bytes(name) + _OVERHEAD for name in seen)

    def forget(self) -> None:
        self.armed.clear()

    def drop_cached(self) -> None:
        """Drop everything that is cached, written or not. The attempt is over."""
        self.forget()
        for names in (*self._added, *self._removed, *self._fresh, *self._queues, *self._cancelled):
            names.clear()

    def _raw(self, domain: int, name: _Name, group: int) -> bytes:
        time_ms, key, namespace = name
        head = _head.pack(group, self._id, domain) + _time.pack(time_ms + _SIGN)
        return head + self._keys.encode(key) + namespace_bytes(namespace)

    def _range(self, domain: int, group: int, until_ms: int) -> tuple[bytes, bytes]:
        head = _head.pack(group, self._id, domain)
        return head, prefix_end(head) if until_ms >= MAX_WATERMARK else head + _time.pack(until_ms + 1 + _SIGN)

    def _scan(self, domain: int, group: int, until_ms: int, touched: list[int]) -> Iterator[tuple[bytes, int]]:
        met = False
        for raw, _ in self._store.scan(*self._range(domain, group, until_ms)):
            if not met:
                met = True
                touched.append(group)
            yield raw[_head.size :], group

    @staticmethod
    def _time_of(tail: bytes) -> int:
        return int(_time.unpack_from(tail)[0]) - _SIGN

    def _decoded(self, tail: bytes, group: int) -> Timer:
        key, at = self._keys.decode(tail, _time.size)
        return Timer(int(_time.unpack_from(tail)[0]) - _SIGN, key, group, _namespace(tail[at:]))


@lru_cache(maxsize=1024)
def _namespace(raw: bytes) -> Namespace:
    """Decode a namespace. Cached, since many timers share few windows."""
    return read_namespace(raw)[0]


def timer_key(
    key_group: int, state_id: int, domain: TimeDomain, time_ms: int, key: bytes, namespace: Namespace
) -> bytes:
    """Return the entry key of a timer, for readers and writers of snapshots."""
    return _head.pack(key_group, state_id, domain) + _time.pack(time_ms + _SIGN) + key + namespace_bytes(namespace)


def read_timer(entry: bytes, keys: KeyCodec) -> tuple[TimeDomain, Timer]:
    """Inverse of `timer_key`. Raises CorruptState."""
    try:
        group, _, domain = _head.unpack_from(entry)
        (time,) = _time.unpack_from(entry, _head.size)
        clock = TimeDomain(domain)
    except (struct.error, ValueError):
        raise damaged(entry, 0) from None
    key, at = keys.decode(entry, _KEY_AT)
    namespace, _ = read_namespace(entry, at)
    return clock, Timer(time - _SIGN, key, group, namespace)
