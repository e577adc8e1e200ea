"""A Spark `StatefulProcessor` as the function of an operator: the object itself, its time mode, and the state it declares.

A function of `applyInPandasWithState` is one, too: its `GroupState` is a value state, and its timeout a timer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegate.core.times import TimeDomain
from tidegate.graph.states import TIMERS, StateKind, StateSpec
from tidegate.graph.ttl import StateTtlConfig
from tidegate.schema.row_types import named_fields, row_type
from tidegate.schema.schema import Schema

TIMERS_OF_KEY = StateSpec(name="timers_of_key", kind=StateKind.MAP, value=bool, map_key=int)
"""The timers of each key, for `listTimers`: the timers themselves are ordered by time."""
RESERVED = frozenset({TIMERS.name, TIMERS_OF_KEY.name})
"""Names that a state of a processor cannot have."""


GROUP_STATE = "groupState"
"""The value state of a function of `applyInPandasWithState`. Spark's state store has a column of this name."""


class TimeMode(StrEnum):
    """Spark's time modes: the clock of timers, and whether state may have a time to live."""

    NONE = "None"
    PROCESSING_TIME = "ProcessingTime"
    EVENT_TIME = "EventTime"

    @property
    def domain(self) -> TimeDomain:
        """The clock of timers. There are none in mode None."""
        return TimeDomain.EVENT_TIME if self is TimeMode.EVENT_TIME else TimeDomain.PROCESSING_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorState:
    """One state variable, as `getValueState`, `getListState` or `getMapState` declares it in `init`."""

    name: str
    kind: StateKind
    schema: Schema
    map_key: Schema | None = None
    ttl_ms: int | None = None

    def spec(self) -> StateSpec:
        """A value is a tuple of the fields, which snapshots name; so is the key of a map's entry, without names."""
        return StateSpec(
            name=self.name,
            kind=self.kind,
            value=row_type(self.schema),
            map_key=None if self.map_key is None else row_type(self.map_key),
            ttl=None if self.ttl_ms is None else StateTtlConfig(f"{self.ttl_ms} ms"),
            named=named_fields(self.schema, self.name),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulProcessing:
    processor: Any
    """A `StatefulProcessor`, or a function of `applyInPandasWithState`."""
    time_mode: TimeMode
    pandas: bool
    """Whether the processor takes and returns pandas frames. Otherwise, rows."""
    states: Mapping[str, ProcessorState]
    grouped: bool = False
    """Whether it is a function of `applyInPandasWithState`."""
    purged: tuple[str, ...] = ()
    """States that `init` deletes with `deleteIfExists`."""
    row: type[tuple[Any, ...]] | None = field(default=None, compare=False)
    """The class of input rows: `pyspark.sql.Row`. Carried along because tasks do not import PySpark themselves."""

    def specs(self) -> tuple[StateSpec, ...]:
        timers = () if self.time_mode is TimeMode.NONE else (TIMERS, TIMERS_OF_KEY)
        return (*(state.spec() for state in self.states.values()), *timers)
