"""The size of Python objects in memory, estimated from a sample of what they contain."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sized
from itertools import islice
from typing import Any, TypeVar

_SAMPLE = 16
"""Elements of a container that are looked at."""
# Deeper objects, and cycles, count by their shell only.
_DEPTH = 6
_PLAIN = (str, bytes, int, float, type(None))

T = TypeVar("T")


def spread(items: Iterable[T], count: int, most: int) -> Iterable[T]:
    """Return at most `most` of `count` items, evenly spread."""
    return islice(items, 0, None, -(-count // most) or 1)


def places_of(sample: Sized, *tables: Sized) -> int:
    """Return the share that a sample has of the places in some tables. Most of their entries belong to the first."""
    return sum(map(sys.getsizeof, tables)) * len(sample) // max(1, len(tables[0]), len(sample))


def object_bytes(value: Any, depth: int = _DEPTH) -> int:
    """Return about how many bytes an object and everything in it take. Objects that are shared count each time."""
    size = sys.getsizeof(value)
    if isinstance(value, _PLAIN) or not depth:
        return size
    if isinstance(value, Mapping):
        return size + _scaled(value.items(), len(value), depth)
    if isinstance(value, Sized) and isinstance(value, Iterable):
        return size + _scaled(value, len(value), depth)
    return size + sum(object_bytes(each, depth - 1) for each in _fields(value))


def _scaled(items: Iterable[Any], count: int, depth: int) -> int:
    if not count:
        return 0
    seen = list(spread(items, count, _SAMPLE))
    # Of a mapping, both the key and the value.
    parts = seen if not isinstance(items, type({}.items())) else [part for item in seen for part in item]
    return sum(object_bytes(each, depth - 1) for each in parts) * count // len(seen)


def _fields(value: Any) -> list[Any]:
    held = getattr(value, "__dict__", None)
    if held is not None:
        return [held]
    names: Any = getattr(value, "__struct_fields__", None) or getattr(type(value), "__slots__", ())
    return [getattr(value, name, None) for name in ((names,) if isinstance(names, str) else names)]
