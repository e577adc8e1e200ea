"""State of each key and window: the accessors of keyed state, in a scope whose key is (key, window).

The window is the namespace in an entry's key, so that the windows of one key lie together, in the order of their starts.
"""

from __future__ import annotations

from typing import Any

from tidegate.state.access import ListAccessor, MapAccessor, ValueAccessor
from tidegate.state.keys import namespace_bytes, state_prefix


class WindowedValue(ValueAccessor):
    """`ValueState` of each window."""

    __slots__ = ()

    def _prefix(self, key: Any, key_group: int) -> bytes:
        return state_prefix(key_group, self._id) + self._encode_key(key[0]) + namespace_bytes(key[1])


class WindowedList(ListAccessor):
    """`ListState` of each window."""

    __slots__ = ()

    def _prefix(self, key: Any, key_group: int) -> bytes:
        return state_prefix(key_group, self._id) + self._encode_key(key[0]) + namespace_bytes(key[1])


class WindowedMap(MapAccessor):
    """`MapState` of each window."""

    __slots__ = ()

    def _prefix(self, key: Any, key_group: int) -> bytes:
        return state_prefix(key_group, self._id) + self._encode_key(key[0]) + namespace_bytes(key[1])
