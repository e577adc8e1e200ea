"""State as it is declared: name, kind and types. Known without running anything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidegate.core.types import schema_of, show_type


class StateKind(StrEnum):
    """The shape of a state. The names are stored in snapshots and never change."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    TIMERS = "timers"
    """The timers of an operator; see `tidegate.state.timers`."""


_SHOWN = {StateKind.VALUE: "ValueState", StateKind.LIST: "ListState", StateKind.MAP: "MapState"}


@dataclass(frozen=True, slots=True)
class StateSpec:
    """One declared state of one operator. `value` and `map_key` are Python types.

    `default` is what a value state reads as where nothing was written. It is one object for all keys: whoever hands it
    to a function copies it first if it can be changed.
    """

    name: str
    kind: StateKind
    value: Any
    map_key: Any = None
    default: Any = None
    windowed: bool = False
    """Whether there is one for each key and window, and not one for each key."""

    def describe(self) -> dict[str, Any]:
        """What a snapshot keeps of the declaration: kind and types, JSON-able. Equal for equal layouts of state."""
        described: dict[str, Any] = {"kind": str(self.kind), "value": schema_of(self.value)}
        if self.kind is StateKind.MAP:
            described["map_key"] = schema_of(self.map_key)
        if self.windowed:
            described["namespace"] = {"type": "window"}
        return described

    def __str__(self) -> str:
        if self.kind is StateKind.TIMERS:
            return "timers"
        inside = ", ".join(show_type(t) for t in (self.map_key, self.value) if t is not None)
        default = "" if self.default is None else f" = {self.default!r}"
        return f"{_SHOWN[self.kind]}[{inside}]{default}{' per window' if self.windowed else ''}"


TIMERS = StateSpec("on_timer", StateKind.TIMERS, int)
"""The timers of an operator whose function has `on_timer`. No state can be declared under a name that a method has."""
