"""Declared state: name, kind, types and distribution over tasks. Known without running anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.core.types import TypeSchema, schema_of, show_type
from tidegate.graph.ttl import StateTtlConfig


class StateKind(StrEnum):
    """The shape of a state. The names are stored in snapshots and never change."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    SORTED_MAP = "sorted_map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"
    """The timers of an operator; see `tidegate.state.accessors.timers`."""


class Distribution(StrEnum):
    """How a state is distributed over tasks, and redistributed when the parallelism changes. Stored in snapshots, too."""

    KEYED = "keyed"
    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


CLASS_NAMES = {
    StateKind.VALUE: "ValueState",
    StateKind.LIST: "ListState",
    StateKind.MAP: "MapState",
    StateKind.SORTED_MAP: "SortedMapState",
    StateKind.REDUCING: "ReducingState",
    StateKind.AGGREGATING: "AggregatingState",
}
"""What a user writes to declare keyed state of a kind."""
_OPERATOR_SHOWN = {
    Distribution.SPLIT: "operator ListState",
    Distribution.UNION: "operator UnionListState",
    Distribution.BROADCAST: "BroadcastState",
}
_MAPS = (StateKind.MAP, StateKind.SORTED_MAP)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec:
    """One declared state of one operator. `value` and `map_key` are Python types.

    `default` is what an unwritten value state reads as. It is one object for all keys: a caller that passes it to a
    function copies it first if it is mutable. `function` combines added elements: a reduce function, or an aggregate
    function as described by `tidegate.AggregateFunction`; the type of an aggregating state is that of its accumulator.
    """

    name: str
    kind: StateKind
    value: Any
    map_key: Any = None
    default: Any = None
    windowed: bool = False
    """Whether there is one for each key and window instead of one for each key."""
    ttl: StateTtlConfig | None = None
    distribution: Distribution = Distribution.KEYED
    function: Any = field(default=None, compare=False)
    renamed_from: tuple[str, ...] = ()
    """Earlier names, the latest first. The state takes over what a snapshot holds under the first of them that it has."""
    named: TypeSchema | None = field(default=None, compare=False)
    """What snapshots say about the value instead of its own type: the same bytes, and names for the elements of a tuple."""

    @property
    def keyed(self) -> bool:
        return self.distribution is Distribution.KEYED

    def describe(self) -> dict[str, Any]:
        """Return the part of the declaration stored in snapshots: kind and types, as JSON values. Equal for equal state
        layouts."""
        described: dict[str, Any] = {"kind": str(self.kind), "value": self.named or schema_of(self.value)}
        if self.kind in _MAPS:
            described["map_key"] = schema_of(self.map_key)
        if self.windowed:
            described["namespace"] = {"type": "window"}
        return described

    def __str__(self) -> str:
        if self.kind is StateKind.TIMERS:
            return "timers"
        inside = ", ".join(show_type(t) for t in (self.map_key, self.value) if t is not None)
        default = "" if self.default is None else f" = {self.default!r}"
        ttl = "" if self.ttl is None else f", lives {self.ttl}"
        shown = _OPERATOR_SHOWN.get(self.distribution, CLASS_NAMES[self.kind])
        return f"{shown}[{inside}]{default}{' per window' if self.windowed else ''}{ttl}"


TIMERS = StateSpec(name="on_timer", kind=StateKind.TIMERS, value=int)
"""The timers of an operator whose function has `on_timer`. A state cannot have the name of a method."""
