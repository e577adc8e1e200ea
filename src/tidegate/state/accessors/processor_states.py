"""The state objects of a Spark `StatefulProcessor`, with the methods of Spark's: values go in and come out as tuples.

They are closures over an accessor, as its own methods are: this is per-record code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tidegate.core.errors import WrongValue
from tidegate.graph.stateful_processing import ProcessorState
from tidegate.graph.states import StateKind
from tidegate.schema.datatype import DataType
from tidegate.schema.row_types import restorer
from tidegate.schema.schema import Schema

Convert = Callable[[Any], Any]

# A row of only these is stored as it is, after one look at each class.
_PLAIN = frozenset({int, float, str, bool, bytes, type(None), Decimal, date})
"""Classes that are stored as they are."""


class ProcessorValue:
    """Spark's `ValueState`."""

    __slots__ = ("clear", "exists", "get", "update")

    def __init__(self, accessor: Any, state: ProcessorState) -> None:
        read, write = accessor.value, accessor.update
        inward, outward = to_stored(state.name, state.schema), _outward(state.schema)

        def exists() -> bool:
            return read() is not None

        def get() -> Any:
            value = read()
            return value if value is None or outward is None else outward(value)

        def update(newValue: Any) -> None:
            write(inward(newValue))

        self.exists = exists
        self.get = get
        self.update = update
        self.clear = accessor.clear


class ProcessorList:
    """Spark's `ListState`."""

    __slots__ = ("_accessor", "_inward", "_outward", "clear")

    def __init__(self, accessor: Any, state: ProcessorState) -> None:
        self._accessor = accessor
        self.clear = accessor.clear
        self._inward = to_stored(state.name, state.schema)
        self._outward = _outward(state.schema)

    def exists(self) -> bool:
        # Elements are tuples, never None.
        return next(self._accessor.get(), None) is not None

    def get(self) -> Iterator[Any]:
        found: Iterator[Any] = self._accessor.get()
        return found if self._outward is None else map(self._outward, found)

    def put(self, newState: Iterable[Any]) -> None:
        self._accessor.update(list(map(self._inward, newState)))

    def appendValue(self, newState: Any) -> None:
        self._accessor.add(self._inward(newState))

    def appendList(self, newState: Iterable[Any]) -> None:
        self._accessor.add_all(list(map(self._inward, newState)))


class ProcessorMap:
    """Spark's `MapState`."""

    __slots__ = ("_accessor", "_inward", "_key_inward", "_key_outward", "_outward", "clear")

    def __init__(self, accessor: Any, state: ProcessorState) -> None:
        assert state.map_key is not None
        self._accessor = accessor
        self.clear = accessor.clear
        self._inward = to_stored(state.name, state.schema)
        self._outward = _outward(state.schema)
        self._key_inward = to_stored(state.name, state.map_key)
        self._key_outward = _outward(state.map_key)

    def exists(self) -> bool:
        return not self._accessor.is_empty()

    def getValue(self, key: Any) -> Any:
        value = self._accessor.get(self._key_inward(key))
        return value if value is None or self._outward is None else self._outward(value)

    def containsKey(self, key: Any) -> bool:
        return bool(self._accessor.contains(self._key_inward(key)))

    def updateValue(self, key: Any, value: Any) -> None:
        self._accessor.put(self._key_inward(key), self._inward(value))

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        key, value = self._key_outward or _same, self._outward or _same
        return ((key(k), value(v)) for k, v in self._accessor.items())

    def keys(self) -> Iterator[Any]:
        found: Iterator[Any] = self._accessor.keys()
        return found if self._key_outward is None else map(self._key_outward, found)

    def values(self) -> Iterator[Any]:
        found: Iterator[Any] = self._accessor.values()
        return found if self._outward is None else map(self._outward, found)

    def removeKey(self, key: Any) -> None:
        self._accessor.remove(self._key_inward(key))


ProcessorObject = ProcessorValue | ProcessorList | ProcessorMap


def state_object(accessor: Any, state: ProcessorState) -> ProcessorObject:
    """Return what `getValueState`, `getListState` or `getMapState` returns for a declared state."""
    match state.kind:
        case StateKind.VALUE:
            return ProcessorValue(accessor, state)
        case StateKind.LIST:
            return ProcessorList(accessor, state)
    return ProcessorMap(accessor, state)


def _same(value: Any) -> Any:
    return value


def to_stored(name: str, schema: Schema) -> Convert:
    """Return what converts a tuple of the user to what is stored. Raises WrongValue unless it has a value for each field."""
    types, width = [field.type for field in schema], len(schema)
    moments = any(_has_moments(type) for type in types)

    def convert(given: Any) -> tuple[Any, ...]:
        if not isinstance(given, tuple | list) or len(given) != width:
            raise WrongValue(
                f"State {name!r} has {width} {'field' if width == 1 else 'fields'} ({schema}) and takes a tuple with a value for "
                f"each; got {given!r:.200}."
            )
        if not moments:
            for value in given:
                if value.__class__ not in _PLAIN:
                    break
            else:
                return given if given.__class__ is tuple else tuple(given)
        return tuple(stored_value(value, type) for value, type in zip(given, types))

    return convert


def _has_moments(type: DataType) -> bool:
    inside = [part for part in (type.element, type.key, type.value) if part is not None]
    return type.kind == "timestamp" or any(map(_has_moments, [*inside, *(field.type for field in type.fields or ())]))


def stored_value(value: Any, type: DataType) -> Any:
    """Convert what Spark converts: numpy and pandas values to Python's, times to instants, rows in rows to tuples."""
    if value is None:
        return None
    if hasattr(value, "tolist"):
        value = value.tolist()
    elif hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    match type.kind:
        case "timestamp" if isinstance(value, datetime):
            # A naive time means the local zone of the Python worker, as in Spark.
            return value.astimezone(UTC)
        case "binary":
            return bytes(value)
        case "array" if isinstance(value, list | tuple) and type.element is not None:
            return [stored_value(item, type.element) for item in value]
        case "map" if isinstance(value, dict) and type.key is not None and type.value is not None:
            return {stored_value(key, type.key): stored_value(item, type.value) for key, item in value.items()}
        case "struct" if type.fields is not None:
            parts = [value.get(field.name) for field in type.fields] if isinstance(value, dict) else value
            return tuple(stored_value(part, field.type) for part, field in zip(parts, type.fields, strict=True))
    return value


def _outward(schema: Schema) -> Convert | None:
    """Return what converts a stored tuple to that of the user: without a time zone, in local time, as Spark does. None: it is
    the same."""
    places = [place for place, field in enumerate(schema) if field.type.kind == "timestamp"]
    named = restorer(schema) if any(has_structs(field.type) for field in schema) else None
    if not places and named is None:
        return None

    def convert(stored: Any) -> tuple[Any, ...]:
        values = list(stored if named is None else named(stored))
        for place in places:
            if values[place] is not None:
                values[place] = values[place].astimezone().replace(tzinfo=None)
        return tuple(values)

    return convert


def has_structs(type: DataType) -> bool:
    return type.kind == "struct" or any(part is not None and has_structs(part) for part in (type.element, type.value))
