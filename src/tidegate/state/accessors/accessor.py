"""State accessors, such as `self.total` in `self.total.value()`: typed views of a store for the key being processed.

Reads go through an in-memory cache of the attempt, and writes stay in it until `flush`, so a key that is accessed a
thousand times in an epoch costs one read and one write of the backend. This is per-record code: it trades some beauty
for speed (a method call and one dict operation per access; `benchmarks keyed-count` compares it with a plain dict).

Bytes of an entry: `prefix(key group, state id, key)` · nothing (value) | user key (map) | segment (list). A list is
stored in segments, one or more per epoch that added to it, named by (term, epoch, part): appending never reads, and
segments sort in insertion order because epochs only grow. With a time to live, every stored value starts with a stamp
(see `ttl`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.core.errors import StateError
from tidegate.core.types import Codec
from tidegate.state.accessors.object_size import object_bytes, places_of, spread
from tidegate.state.accessors.ttl import Expiry, unstamped
from tidegate.state.keys.entry_keys import VOID_NAMESPACE, KeyCodec
from tidegate.state.keys.key_scope import KeyScope
from tidegate.state.port import StateStore

if TYPE_CHECKING:
    pass

IMMUTABLE = (int, float, str, bytes, bool, tuple, frozenset, type(None))
_HEAD = struct.Struct(">HH")
FLUSHED_AT_ONCE = 1000
"""Encoded entries that a flush holds in memory."""
ABSENT = object()
"""Marks an entry in a cache that is known not to exist."""


class Accessor(Protocol):
    """One state of one operator during one attempt: what the runtime does with states of all kinds."""

    @property
    def expiry(self) -> Expiry | None:
        """When entries expire. None: never."""

    @property
    def written(self) -> int:
        """Entries written to the store so far."""

    def stored(self) -> Any:
        """Return what a snapshot would hold for the current key. None: nothing."""

    def clear(self) -> None:
        """Remove everything that is stored for the current key."""

    def pending(self) -> tuple[Iterable[Any], Mapping[Any, int]]:
        """Return the keys to be deleted from the store, and the keys with unwritten values, with their key groups."""

    def encodings(self) -> Iterator[tuple[Any, Callable[[], object]]]:
        """Yield each key with changes, and what encodes these."""

    def flush(self) -> None:
        """Write all changes to the store. Raises WrongValue."""

    def forget(self) -> None:
        """Drop cached entries. Call `flush` first."""

    def cached(self) -> int:
        """The number of entries in memory."""

    def sampled_bytes(self, most: int) -> tuple[int, int]:
        """Return the number of entries under at most `most` keys, and about how many bytes these take."""

    def drop_cached(self) -> None:
        """Drop everything that is cached, written or not. The attempt is over."""


class KeyedAccessor:
    """Shared by all keyed accessors: the current key (scope), the store, and the prefix of entry keys."""

    __slots__ = (
        "_copied",
        "_decode",
        "_encode",
        "_encode_key",
        "_encode_user_key",
        "_id",
        "_scope",
        "_store",
        "expiry",
        "written",
    )
    _live: dict[Any, Any]

    def __init__(
        self,
        scope: KeyScope,
        store: StateStore,
        state_id: int,
        keys: KeyCodec,
        codec: Codec,
        expiry: Expiry | None,
        copied: Callable[[Any], Any] | None = None,
    ) -> None:
        self._scope = scope
        self._store = store
        self._id = state_id
        self._encode_key = keys.encode
        self._encode_user_key = keys.encode
        """For the keys of entries, which only maps have; they have a codec of their own for them."""
        self._decode = codec.decode
        self._encode = codec.encode if expiry is None else expiry.stamping(codec.encode)
        self._copied = copied
        """Copies values on the way in and out, if they are mutable."""
        self.expiry = expiry
        self.written = 0
        """Entries written to the store so far."""

    def _read(self, raw: bytes) -> Any:
        """Decode a stored value, with or without a stamp. Without a declared time to live, few values have one."""
        if self.expiry is None:
            try:
                return self._decode(raw)
            except StateError:
                pass
        return self._decode(unstamped(raw))

    def _prefix(self, key: Any, key_group: int) -> bytes:
        return _HEAD.pack(key_group, self._id) + self._encode_key(key) + VOID_NAMESPACE

    def forget(self) -> None:
        """See `Accessor`."""
        self._live.clear()

    def drop_cached(self) -> None:
        """See `Accessor`."""
        self.forget()
        self._forget_changes()

    def _forget_changes(self) -> None:
        """Drop what is not written."""
        raise NotImplementedError

    def key_bytes(self, *user_key: Any) -> int:
        """The size of the current key as it is stored, with key group and state id, and of the key of a map's entry."""
        head = len(self._prefix(self._scope.key, self._scope.key_group))
        return head + sum(len(self._encode_user_key(each)) for each in user_key)

    def value_bytes(self, value: Any) -> int | None:
        """The size that a value has when it is stored. None: it is absent. Raises WrongValue if it cannot be stored."""
        return None if value is None else len(self._encode(value))


def cleared_sample(cleared: Mapping[Any, int], most: int) -> list[Any]:
    """A sample of the keys that were cleared: at least one, if there is one."""
    return list(spread(cleared, len(cleared), max(1, most)))


def bytes_of_keys(gone: list[Any], cleared: Mapping[Any, int]) -> int:
    return sum(map(object_bytes, gone)) + places_of(gone, cleared)
