"""State as a function class declares it, and as its methods use it.

    class Totals(KeyedProcessFunction):
        total = ValueState(float, default=0.0)        # on the class: the declaration
        def process_element(self, order, ctx):
            self.total.update(order.amount)           # on the instance: the state of the current key

A declaration is known without running anything. While a job runs, the runtime sets an accessor under the same name on
its own copy of the function, which then stands before the declaration; that is why declarations have no `__set__`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from tidegate.core.errors import StateUnbound, UnsupportedType, WrongValue
from tidegate.core.types import codec_of, schema_of, show_type
from tidegate.graph.states import StateKind, StateSpec

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")


class ValueAccess(Protocol[T]):
    """One value for the current key."""

    def value(self) -> T:
        """The value; the declared default where none was written or it was cleared."""
        ...

    def update(self, value: T) -> None: ...
    def clear(self) -> None: ...


class ListAccess(Protocol[T]):
    """A list for the current key."""

    def get(self) -> Iterable[T]: ...
    def add(self, value: T) -> None: ...
    def add_all(self, values: Iterable[T]) -> None: ...

    def update(self, values: Iterable[T]) -> None:
        """Replace the whole list."""
        ...

    def clear(self) -> None: ...
    def __iter__(self) -> Iterator[T]: ...


class MapAccess(Protocol[K, V]):
    """A map for the current key. Entries are read and written one by one; the map is never held as a whole."""

    def get(self, key: K) -> V | None: ...
    def put(self, key: K, value: V) -> None: ...
    def put_all(self, entries: Mapping[K, V]) -> None: ...
    def remove(self, key: K) -> None: ...
    def contains(self, key: K) -> bool: ...
    def items(self) -> Iterable[tuple[K, V]]: ...
    def keys(self) -> Iterable[K]: ...
    def values(self) -> Iterable[V]: ...
    def is_empty(self) -> bool: ...
    def clear(self) -> None: ...
    def __contains__(self, key: object) -> bool: ...
    def __iter__(self) -> Iterator[K]: ...
    def __getitem__(self, key: K) -> V: ...
    def __setitem__(self, key: K, value: V) -> None: ...
    def __delitem__(self, key: K) -> None: ...


class Declaration:
    """A state declared on a function class. The attribute's name is the name of the state, for ever."""

    _kind: StateKind
    _name: str | None = None

    def __init__(self, value: Any, *, map_key: Any = None, default: Any = None) -> None:
        shown = f"{type(self).__name__}({', '.join(show_type(t) for t in (map_key, value) if t is not None)})"
        try:
            schema_of(value)
            if self._kind is StateKind.MAP:
                _check_map_key(map_key)
            if default is not None:
                codec_of(value).encode(default)
        except UnsupportedType as error:
            raise UnsupportedType(f"{shown} cannot be declared. {error}") from None
        except WrongValue as error:
            raise WrongValue(f"{shown} cannot have this default. {error}") from None
        self._value, self._map_key, self._default = value, map_key, default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def spec(self, name: str) -> StateSpec:
        """The declaration as data, under the name of the attribute that holds it."""
        return StateSpec(name, self._kind, self._value, self._map_key, self._default)

    def _unbound(self, owner: type | None) -> StateUnbound:
        where = "" if owner is None else f" of {owner.__name__}"
        return StateUnbound(
            f"State {self._name!r}{where} was used outside a running job. There is state only while a row or a timer "
            "is processed, and for its key: use it in process_element or on_timer, not in __init__. To try a function "
            "by hand, use tidegate.testing.harness."
        )

    def __repr__(self) -> str:
        return f"<{self.spec(self._name or '?')}>"


class ValueState(Declaration, Generic[T]):
    """One value per key: `total = ValueState(float, default=0.0)`. Without a default it reads as None until written."""

    _kind = StateKind.VALUE

    @overload
    def __init__(self: ValueState[U], type: type[U], default: U) -> None: ...
    @overload
    def __init__(self: ValueState[U | None], type: type[U], default: None = None) -> None: ...
    @overload
    def __init__(self: ValueState[Any], type: Any, default: Any = None) -> None: ...
    def __init__(self, type: Any, default: Any = None) -> None:
        super().__init__(type, default=default)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> ValueAccess[T]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | ValueAccess[T]:
        if instance is None:
            return self
        raise self._unbound(owner)


class ListState(Declaration, Generic[T]):
    """A list per key: `last = ListState(float)`. Adding does not read what is there."""

    _kind = StateKind.LIST

    @overload
    def __init__(self: ListState[U], type: type[U]) -> None: ...
    @overload
    def __init__(self: ListState[Any], type: Any) -> None: ...
    def __init__(self, type: Any) -> None:
        super().__init__(type)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> ListAccess[T]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | ListAccess[T]:
        if instance is None:
            return self
        raise self._unbound(owner)


class MapState(Declaration, Generic[K, V]):
    """A map per key: `seen = MapState(str, int)`. Entries are stored apart: a large map costs what is touched."""

    _kind = StateKind.MAP

    @overload
    def __init__(self: MapState[T, U], key: type[T], value: type[U]) -> None: ...
    @overload
    def __init__(self: MapState[Any, Any], key: Any, value: Any) -> None: ...
    def __init__(self, key: Any, value: Any) -> None:
        super().__init__(value, map_key=key)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> MapAccess[K, V]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | MapAccess[K, V]:
        if instance is None:
            return self
        raise self._unbound(owner)


def declared_states(function: Any) -> tuple[StateSpec, ...]:
    """The states of a function object, those of its base classes first. An attribute that hides a state removes it."""
    found: dict[str, StateSpec] = {}
    for cls in reversed(type(function).__mro__):
        for name, attribute in vars(cls).items():
            if isinstance(attribute, Declaration):
                found[name] = attribute.spec(name)
            else:
                found.pop(name, None)
    return tuple(found.values())


def _check_map_key(map_key: Any) -> None:
    schema_of(dict[map_key, int])
