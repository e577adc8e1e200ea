"""State as a function class declares it, and as its methods use it.

    class Totals(KeyedProcessFunction):
        total = ValueState(float, default=0.0)        # on the class: the declaration
        def process_element(self, order, ctx):
            self.total.update(order.amount)           # on the instance: the state of the current key

A declaration is known without running anything. While a job runs, the runtime sets an accessor under the same name on its
own copy of the function, which then shadows the declaration; that is why declarations have no `__set__`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from tidegate.api.rows import Stored
from tidegate.api.state_access import (
    AppendAccess,
    BroadcastAccess,
    ListAccess,
    MapAccess,
    SortedMapAccess,
    ValueAccess,
)
from tidegate.core.durations import Duration
from tidegate.core.errors import GraphError, StateUnbound, UnsupportedType, WrongValue
from tidegate.core.types import codec_of, schema_of, show_type
from tidegate.graph.renamed import check_earlier_names, earlier_names
from tidegate.graph.states import Distribution, StateKind, StateSpec
from tidegate.graph.ttl import StateTtlConfig

if TYPE_CHECKING:
    from tidegate.api.aggregates import Accumulating, ReduceFunction

Ttl = StateTtlConfig | Duration | None
"""How long entries live: a config, or just the time, such as `"1 h"`. None: without limit."""

Earlier = str | Sequence[str] | None
"""The name that a state had before; of several, the latest first."""

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")
In = TypeVar("In")
Out = TypeVar("Out")


class Declaration:
    """A state declared on a function class. The attribute's name is the permanent name of the state.

    To rename it, declare the old name: `sum = ValueState(int, renamed_from="total")`. The state then takes over what a snapshot
    holds under the old name. The declaration may stay; after several renames it takes a tuple, the latest name first.
    """

    _kind: StateKind
    _name: str | None = None
    _windowed = False

    def __init__(
        self,
        value: object,
        *,
        map_key: object = None,
        default: object = None,
        ttl: Ttl = None,
        function: object = None,
        distribution: Distribution = Distribution.KEYED,
        renamed_from: Earlier = None,
    ) -> None:
        shown = f"{type(self).__name__}({', '.join(show_type(t) for t in (map_key, value) if t is not None)})"
        try:
            schema_of(value)
            if map_key is not None:
                _check_map_key(map_key)
            if default is not None:
                codec_of(value).encode(default)
        except UnsupportedType as error:
            raise UnsupportedType(f"{shown} does not say how its values are stored. {error}") from None
        except WrongValue as error:
            raise WrongValue(f"{shown} cannot have this default. {error}") from None
        self._value = value
        self._map_key = map_key
        self._default = default
        self._ttl = StateTtlConfig.of(ttl)
        self._function = function
        self._distribution = distribution
        self._renamed_from = earlier_names(renamed_from)

    def per_window(self) -> Self:
        """Return the same state for each window of a key, on a `ProcessWindowFunction`: `fired =
        ValueState(int, default=0).per_window()`.

        It is cleared with its window.
        """
        if self._distribution is not Distribution.KEYED:
            raise GraphError("Operator state belongs to a task and knows no windows. Leave out per_window().")
        other = copy(self)
        other._windowed = True
        return other

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def spec(self, name: str) -> StateSpec:
        """Return the declaration as data, under the name of the attribute that holds it."""
        return StateSpec(
            name=name,
            kind=self._kind,
            value=self._value,
            map_key=self._map_key,
            default=self._default,
            windowed=self._windowed,
            ttl=self._ttl,
            distribution=self._distribution,
            function=self._function,
            renamed_from=self._renamed_from,
        )

    def _unbound(self, owner: type | None) -> StateUnbound:
        where = "" if owner is None else f" of {owner.__name__}"
        return StateUnbound(
            f"State {self._name!r}{where} was used where there is no key: every key has its own state. Use it in "
            "process_element or on_timer, not in __init__ or open, nor when a checkpoint is notified. To try a function without "
            "a job, use tidegate.testing.harness."
        )

    def __repr__(self) -> str:
        return f"<{self.spec(self._name or '?')}>"


class ValueState(Declaration, Generic[T]):
    """One value per key: `total = ValueState(float, default=0.0)`.

    Args:
        type: The type of the value: a Python type such as `float`, `tuple[str, int]` or a dataclass.
        default: What it reads as until it is written. By default, None.
        ttl: How long an entry lives: `"1 h"`, a timedelta, or a `StateTtlConfig`. By default, without limit.
        renamed_from: The name that the state had before; after several renames a tuple, the latest name first.

    Examples:
        >>> class Last(tg.KeyedProcessFunction):
        ...     amount = tg.ValueState(float)
        ...
        ...     def process_element(self, order, ctx):
        ...         yield order.user, self.amount.value()
        ...         self.amount.update(order.amount)
        >>> with tg.testing.harness(Last(), key="user", schema="user string, amount double") as h:
        ...     h.process(("ann", 5.0), ("ann", 7.0))
        ...     h.output()
        [('ann', None), ('ann', 5.0)]
    """

    _kind = StateKind.VALUE

    @overload
    def __init__(
        self: ValueState[U], type: type[U], default: U, *, ttl: Ttl = None, renamed_from: Earlier = None
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[U | None],
        type: type[U],
        default: None = None,
        *,
        ttl: Ttl = None,
        renamed_from: Earlier = None,
    ) -> None: ...
    @overload
    def __init__(
        self: ValueState[Stored], type: object, default: object = None, *, ttl: Ttl = None, renamed_from: Earlier = None
    ) -> None: ...
    def __init__(self, type: object, default: object = None, *, ttl: Ttl = None, renamed_from: Earlier = None) -> None:
        super().__init__(type, default=default, ttl=ttl, renamed_from=renamed_from)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> ValueAccess[T]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | ValueAccess[T]:
        if instance is None:
            return self
        raise self._unbound(owner)


class ListState(Declaration, Generic[T]):
    """A list per key: `last = ListState(float)`. Adding does not read the existing elements.

    Args:
        type: The type of the elements: a Python type such as `float`, `tuple[str, int]` or a dataclass.
        ttl: How long an entry lives: `"1 h"`, a timedelta, or a `StateTtlConfig`. By default, without limit.
        operator: A list per task instead, for functions with or without keys. Its elements are distributed evenly when the
            parallelism changes.
        union: Like `operator`, but when the job is restored, every task gets all elements of all tasks.
        renamed_from: The name that the state had before; after several renames a tuple, the latest name first.

    Examples:
        >>> class Amounts(tg.KeyedProcessFunction):
        ...     amounts = tg.ListState(float, ttl="1 day")
        ...
        ...     def process_element(self, order, ctx):
        ...         self.amounts.add(order.amount)
        ...         yield order.user, sum(self.amounts.get())
        >>> with tg.testing.harness(Amounts(), key="user", schema="user string, amount double") as h:
        ...     h.process(("ann", 5.0), ("ann", 7.0))
        ...     h.output()
        [('ann', 5.0), ('ann', 12.0)]
    """

    _kind = StateKind.LIST

    @overload
    def __init__(
        self: ListState[U],
        type: type[U],
        *,
        ttl: Ttl = None,
        operator: bool = False,
        union: bool = False,
        renamed_from: Earlier = None,
    ) -> None: ...
    @overload
    def __init__(
        self: ListState[Stored],
        type: object,
        *,
        ttl: Ttl = None,
        operator: bool = False,
        union: bool = False,
        renamed_from: Earlier = None,
    ) -> None: ...
    def __init__(
        self,
        type: object,
        *,
        ttl: Ttl = None,
        operator: bool = False,
        union: bool = False,
        renamed_from: Earlier = None,
    ) -> None:
        if ttl is not None and (operator or union):
            raise GraphError("Operator state has no time to live, as in Flink. Leave out ttl, or operator=True.")
        keyed = not (operator or union)
        spread = Distribution.KEYED if keyed else Distribution.UNION if union else Distribution.SPLIT
        super().__init__(type, ttl=ttl, distribution=spread, renamed_from=renamed_from)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> ListAccess[T]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | ListAccess[T]:
        if instance is None:
            return self
        raise self._unbound(owner)


class MapState(Declaration, Generic[K, V]):
    """A map per key: `seen = MapState(str, int)`. Entries are stored separately: the cost depends on the entries touched.

    Args:
        key: The type of the keys within the map.
        value: The type of the values: a Python type, or a dataclass.
        ttl: How long an entry lives: `"1 h"`, a timedelta, or a `StateTtlConfig`. By default, without limit.
        renamed_from: The name that the state had before; after several renames a tuple, the latest name first.

    Examples:
        >>> class Pages(tg.KeyedProcessFunction):
        ...     seen = tg.MapState(str, int)
        ...
        ...     def process_element(self, click, ctx):
        ...         self.seen.put(click.page, (self.seen.get(click.page) or 0) + 1)
        ...         yield click.user, click.page, self.seen.get(click.page)
        >>> with tg.testing.harness(Pages(), key="user", schema="user string, page string") as h:
        ...     h.process(("ann", "home"), ("ann", "home"))
        ...     h.output()
        [('ann', 'home', 1), ('ann', 'home', 2)]
    """

    _kind = StateKind.MAP

    @overload
    def __init__(
        self: MapState[T, U], key: type[T], value: type[U], *, ttl: Ttl = None, renamed_from: Earlier = None
    ) -> None: ...
    @overload
    def __init__(
        self: MapState[Stored, Stored], key: object, value: object, *, ttl: Ttl = None, renamed_from: Earlier = None
    ) -> None: ...
    def __init__(self, key: object, value: object, *, ttl: Ttl = None, renamed_from: Earlier = None) -> None:
        super().__init__(value, map_key=key, ttl=ttl, renamed_from=renamed_from)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> MapAccess[K, V]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | MapAccess[K, V]:
        if instance is None:
            return self
        raise self._unbound(owner)


class SortedMapState(Declaration, Generic[K, V]):
    """A map per key, ordered by its keys: `prices = SortedMapState(datetime, float)`. A range is read without the rest.

    Args:
        key: The type of the keys within the map.
        value: The type of the values: a Python type, or a dataclass.
        ttl: How long an entry lives: `"1 h"`, a timedelta, or a `StateTtlConfig`. By default, without limit.
        renamed_from: The name that the state had before; after several renames a tuple, the latest name first.

    Examples:
        >>> class Best(tg.KeyedProcessFunction):
        ...     bids = tg.SortedMapState(float, str)
        ...
        ...     def process_element(self, bid, ctx):
        ...         self.bids.put(bid.price, bid.user)
        ...         yield bid.item, self.bids.last_key()
        >>> with tg.testing.harness(Best(), key="item", schema="item string, user string, price double") as h:
        ...     h.process(("lamp", "ann", 5.0), ("lamp", "bob", 4.0))
        ...     h.output()
        [('lamp', 5.0), ('lamp', 5.0)]
    """

    _kind = StateKind.SORTED_MAP

    @overload
    def __init__(
        self: SortedMapState[T, U], key: type[T], value: type[U], *, ttl: Ttl = None, renamed_from: Earlier = None
    ) -> None: ...
    @overload
    def __init__(
        self: SortedMapState[Stored, Stored],
        key: object,
        value: object,
        *,
        ttl: Ttl = None,
        renamed_from: Earlier = None,
    ) -> None: ...
    def __init__(self, key: object, value: object, *, ttl: Ttl = None, renamed_from: Earlier = None) -> None:
        super().__init__(value, map_key=key, ttl=ttl, renamed_from=renamed_from)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> SortedMapAccess[K, V]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | SortedMapAccess[K, V]:
        if instance is None:
            return self
        raise self._unbound(owner)


class ReducingState(Declaration, Generic[T]):
    """Reduces added values to one value of the same type: `highest = ReducingState(float, max)`.

    Args:
        type: The type of the value: a Python type such as `float`, `tuple[str, int]` or a dataclass.
        reduce: A callable of two values, or a `ReduceFunction`. It may change and return its first argument. Added and
            returned objects of mutable types are copied.
        ttl: How long an entry lives: `"1 h"`, a timedelta, or a `StateTtlConfig`. By default, without limit.
        renamed_from: The name that the state had before; after several renames a tuple, the latest name first.

    Examples:
        >>> class Highest(tg.KeyedProcessFunction):
        ...     highest = tg.ReducingState(float, max)
        ...
        ...     def process_element(self, order, ctx):
        ...         self.highest.add(order.amount)
        ...         yield order.user, self.highest.get()
        >>> with tg.testing.harness(Highest(), key="user", schema="user string, amount double") as h:
        ...     h.process(("ann", 5.0), ("ann", 2.0))
        ...     h.output()
        [('ann', 5.0), ('ann', 5.0)]
    """

    _kind = StateKind.REDUCING

    @overload
    def __init__(
        self: ReducingState[U],
        type: type[U],
        reduce: Callable[[U, U], U] | ReduceFunction[U],
        *,
        ttl: Ttl = None,
        renamed_from: Earlier = None,
    ) -> None: ...
    @overload
    def __init__(
        self: ReducingState[Stored],
        type: object,
        reduce: Callable[[Stored, Stored], Stored] | ReduceFunction,
        *,
        ttl: Ttl = None,
        renamed_from: Earlier = None,
    ) -> None: ...
    def __init__(self, type: object, reduce: object, *, ttl: Ttl = None, renamed_from: Earlier = None) -> None:
        call = getattr(reduce, "reduce", reduce)
        if not callable(call):
            raise GraphError(f"ReducingState takes a function of two values; got {reduce!r}. For example: max.")
        super().__init__(type, ttl=ttl, function=call, renamed_from=renamed_from)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> AppendAccess[T, T]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | AppendAccess[T, T]:
        if instance is None:
            return self
        raise self._unbound(owner)


class AggregatingState(Declaration, Generic[In, Out]):
    """Aggregates added values through an accumulator: `mean = AggregatingState(tuple[float, int], Mean())`.

    Args:
        accumulator: The type of the accumulator, the only thing stored.
        function: An object with PyFlink's `create_accumulator()`, `add(value, accumulator)` and `get_result(accumulator)`,
            such as an `AggregateFunction`. `add` may change and return the accumulator; values and results do not share
            mutable objects with it.
        ttl: How long an entry lives: `"1 h"`, a timedelta, or a `StateTtlConfig`. By default, without limit.
        renamed_from: The name that the state had before; after several renames a tuple, the latest name first.

    Examples:
        >>> class Mean(tg.AggregateFunction):
        ...     def create_accumulator(self):
        ...         return 0.0, 0
        ...
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        ...
        ...     def merge(self, a, b):
        ...         return a[0] + b[0], a[1] + b[1]
        >>> class Means(tg.KeyedProcessFunction):
        ...     mean = tg.AggregatingState(tuple[float, int], Mean())
        ...
        ...     def process_element(self, order, ctx):
        ...         self.mean.add(order.amount)
        ...         yield order.user, self.mean.get()
        >>> with tg.testing.harness(Means(), key="user", schema="user string, amount double") as h:
        ...     h.process(("ann", 5.0), ("ann", 7.0))
        ...     h.output()
        [('ann', 5.0), ('ann', 6.0)]
    """

    _kind = StateKind.AGGREGATING

    @overload
    def __init__(
        self: AggregatingState[T, U],
        accumulator: type[V],
        function: Accumulating[T, V, U],
        *,
        ttl: Ttl = None,
        renamed_from: Earlier = None,
    ) -> None: ...
    @overload
    def __init__(
        self: AggregatingState[T, U],
        accumulator: object,
        function: Accumulating[T, Stored, U],
        *,
        ttl: Ttl = None,
        renamed_from: Earlier = None,
    ) -> None: ...
    def __init__(self, accumulator: object, function: object, *, ttl: Ttl = None, renamed_from: Earlier = None) -> None:
        missing = [
            name
            for name in ("create_accumulator", "add", "get_result")
            if isinstance(function, type) or not callable(getattr(function, name, None))
        ]
        if missing:
            raise GraphError(
                f"AggregatingState takes an instance of an aggregate function; {function!r} has no {', '.join(missing)}. "
                "Derive a class from AggregateFunction and pass an instance."
            )
        super().__init__(accumulator, ttl=ttl, function=function, renamed_from=renamed_from)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> AppendAccess[In, Out]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | AppendAccess[In, Out]:
        if instance is None:
            return self
        raise self._unbound(owner)


class BroadcastState(Declaration, Generic[K, V]):
    """A map that every task has a copy of, on a `KeyedBroadcastProcessFunction`: `rules = BroadcastState(str, Rule)`.

    Values are copied when they are put, but not when they are read: do not change what you read.

    Args:
        key: The type of the keys of the map.
        value: The type of the values: a Python type, or a dataclass.
        renamed_from: The name that the state had before; after several renames a tuple, the latest name first.
    """

    _kind = StateKind.MAP

    @overload
    def __init__(self: BroadcastState[T, U], key: type[T], value: type[U], *, renamed_from: Earlier = None) -> None: ...
    @overload
    def __init__(
        self: BroadcastState[Stored, Stored], key: object, value: object, *, renamed_from: Earlier = None
    ) -> None: ...
    def __init__(self, key: object, value: object, *, renamed_from: Earlier = None) -> None:
        super().__init__(value, map_key=key, distribution=Distribution.BROADCAST, renamed_from=renamed_from)

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> BroadcastAccess[K, V]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | BroadcastAccess[K, V]:
        if instance is None:
            return self
        raise self._unbound(owner)


def declared_states(function: object) -> tuple[StateSpec, ...]:
    """The states of a function object, those of its base classes first. An attribute that hides a state removes it."""
    # From the most basic class up, so that a derived class overrides what it inherits, as attributes do.
    found: dict[str, StateSpec] = {}
    for cls in reversed(type(function).__mro__):
        for name, attribute in vars(cls).items():
            if isinstance(attribute, Declaration):
                found[name] = attribute.spec(name)
            else:
                found.pop(name, None)
    check_earlier_names("state", {name: spec.renamed_from for name, spec in found.items()})
    # A function of another API asks for its states at run time, so it says itself which they are.
    asked = getattr(function, "asked_states", None)
    return tuple(found.values()) if asked is None else asked()


def _check_map_key(map_key: Any) -> None:
    # What can be the key of a dict in a value can be the key of a map state.
    schema_of(dict[map_key, int])
