"""Entries with a time to live: a stamp before the stored value, and when an entry expires by which clock.

    stamped value = C1 · clock (1: 00 processing time, 01 event time) · time of the last renewal in ms (8, signed) · value

A stored value is MessagePack, and no MessagePack starts with C1: every entry shows whether it has a stamp, so a time to
live can be added to a state, and removed, with its old entries in place. An entry without a stamp, or with a stamp of
the other clock, is alive and gets a stamp at the next access.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from tidegate.core.times import MIN_WATERMARK
from tidegate.graph.ttl import StateTtlConfig, StateVisibility, TtlTimeCharacteristic, UpdateType
from tidegate.state.keys.entry_keys import prefix_end, state_prefix
from tidegate.state.port import StateStore

_stamp = struct.Struct(">BBq")
_MARK = 0xC1
_SIZE = _stamp.size
# Above the key groups, next to operator state (decision 0008).
_CURSOR = 0x8002
_GROUPS_AT_ONCE = 64
"""Maximum number of key groups visited by one sweep: an empty one costs a seek, too."""


class StateClock:
    """The clock of state: fixed while rows are processed, advanced only between them (`KeyedStates.set_time`)."""

    __slots__ = ("now_ms", "watermark_ms")

    def __init__(self, now_ms: int = 0, watermark_ms: int = MIN_WATERMARK) -> None:
        self.now_ms = now_ms
        self.watermark_ms = watermark_ms


class Stamp(NamedTuple):
    """When an entry was last renewed, and by which clock."""

    event_time: bool
    time_ms: int

    def before(self, value: bytes) -> bytes:
        """Return the stored form of a value with this stamp."""
        return _stamp.pack(_MARK, self.event_time, self.time_ms) + value


def stamp_of(raw: bytes) -> Stamp | None:
    """Return the stamp of a stored value, or None."""
    if raw[:1] != b"\xc1":
        return None
    _, code, time_ms = _stamp.unpack_from(raw)
    return Stamp(bool(code), time_ms)


def unstamped(raw: bytes) -> bytes:
    """Return the stored value without its stamp."""
    return raw[_SIZE:] if raw[:1] == b"\xc1" else raw


class Expiry:
    """The time to live of one state, by one clock."""

    __slots__ = ("_clock", "_code", "_event", "renew_on_read", "return_expired", "ttl_ms")

    def __init__(self, config: StateTtlConfig, clock: StateClock) -> None:
        self._clock = clock
        self._event = config.time_characteristic is TtlTimeCharacteristic.EventTime
        self._code = int(self._event)
        self.ttl_ms = config.ttl_ms
        self.renew_on_read = config.update_type is UpdateType.OnReadAndWrite
        self.return_expired = config.state_visibility is StateVisibility.ReturnExpiredIfNotCleanedUp

    @property
    def time_ms(self) -> int | None:
        """None while there is no watermark: then nothing expires, and nothing is stamped."""
        if not self._event:
            return self._clock.now_ms
        watermark = self._clock.watermark_ms
        return None if watermark == MIN_WATERMARK else watermark

    def stamped(self, value: bytes) -> bytes:
        """Return the stored form of a value written now."""
        now = self.time_ms
        return value if now is None else _stamp.pack(_MARK, self._code, now) + value

    def stamping(self, encode: Callable[[object], bytes]) -> Callable[[object], bytes]:
        return lambda value: self.stamped(encode(value))

    def expired(self, raw: bytes) -> bool:
        born = self._born(raw)
        now = self.time_ms
        return born is not None and now is not None and born + self.ttl_ms <= now

    def to_be_renewed(self, raw: bytes) -> bool:
        """Whether a live entry that was read must be written with a new stamp."""
        born, now = self._born(raw), self.time_ms
        return now is not None and (born is None or (self.renew_on_read and born < now))

    def unborn(self, raw: bytes) -> bool:
        return self._born(raw) is None

    def _born(self, raw: bytes) -> int | None:
        # The cheapest test comes first: most values have no stamp.
        if raw[:1] != b"\xc1":
            return None
        _, code, born = _stamp.unpack_from(raw)
        # A stamp of the other clock says nothing about this one.
        return int(born) if code == self._code else None


def living(entries: Iterable[tuple[bytes, bytes]], expiries: Mapping[int, Expiry]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries of a full snapshot without expired ones. `expiries` are by state id."""
    by_id = {id.to_bytes(2, "big"): expiry for id, expiry in expiries.items()}
    for key, raw in entries:
        expiry = by_id.get(key[2:4])
        if expiry is None or not expiry.expired(raw):
            yield key, raw


def sweep(store: StateStore, state_id: int, groups: tuple[int, int], expiry: Expiry, budget: int) -> int:
    """Check the next `budget` entries of a state, remove expired ones, stamp unstamped ones. Return the number removed.

    The position where it stopped is stored in the version itself, outside the key groups, so that the next epoch
    continues there, whichever process runs it. A crash loses the whole attempt, including the position.
    """
    if expiry.time_ms is None:
        return 0
    first, last = groups
    cursor_key = state_prefix(_CURSOR, state_id)
    start = store.get(cursor_key) or b""
    group = int.from_bytes(start[:2], "big") if start else first
    # After a restore, the place may be of another task's key groups.
    if not first <= group <= last:
        start, group = b"", first
    puts: list[tuple[bytes, bytes]] = []
    dead: list[bytes] = []
    place = b""
    # No more than one round: a small state is not searched twice in one epoch.
    for _ in range(min(_GROUPS_AT_ONCE, last - first + 1)):
        prefix = state_prefix(group, state_id)
        for key, raw in store.scan(max(start, prefix), prefix_end(prefix)):
            if budget == 0:
                place = key
                break
            budget -= 1
            if expiry.expired(raw):
                dead.append(key)
            elif expiry.unborn(raw):
                # Its time begins now: it was written before the state had a time to live.
                puts.append((key, expiry.stamped(unstamped(raw))))
        if place:
            break
        start, group = b"", group + 1 if group < last else first
    if not place:
        place = state_prefix(group, state_id)
    store.write([*puts, (cursor_key, place)], dead)
    return len(dead)
