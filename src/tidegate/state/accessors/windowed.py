"""Windowed state: the accessors of keyed state, in a scope whose key is (key, window).

The window is the namespace in an entry's key, so the windows of one key are contiguous, in the order of their starts.
"""

from __future__ import annotations

from typing import Any

from tidegate.state.accessors.list_accessor import ListAccessor
from tidegate.state.accessors.map_accessor import MapAccessor
from tidegate.state.accessors.rollback import GuardedList, GuardedMap, GuardedValue
from tidegate.state.accessors.value_accessor import ValueAccessor
from tidegate.state.keys.entry_keys import namespace_bytes, state_prefix


class _InWindow:
    __slots__ = ()

    def _prefix(self: Any, key: Any, key_group: int) -> bytes:
        head: bytes = state_prefix(key_group, self._id)
        return head + bytes(self._encode_key(key[0])) + namespace_bytes(key[1])


class WindowedValue(_InWindow, ValueAccessor):
    """`ValueState` of each window."""

    __slots__ = ()


class WindowedList(_InWindow, ListAccessor):
    """`ListState` of each window."""

    __slots__ = ()


class WindowedMap(_InWindow, MapAccessor):
    """`MapState` of each window."""

    __slots__ = ()


class GuardedWindowedValue(_InWindow, GuardedValue):
    """The same, with support for undoing one row."""

    __slots__ = ()


class GuardedWindowedList(_InWindow, GuardedList):
    __slots__ = ()


class GuardedWindowedMap(_InWindow, GuardedMap):
    __slots__ = ()
