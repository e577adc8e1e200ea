"""An operator before it is added to the graph: what joins, windows and aggregates pass to the keyed stream that runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.graph.combine import Combine
from tidegate.graph.model import Input
from tidegate.graph.on_error import FAIL, OnError
from tidegate.graph.states import StateSpec
from tidegate.schema.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedOperator:
    """A function with keyed state and its output, not yet with a uid or a position in the graph."""

    function: object
    states: tuple[StateSpec, ...]
    schema: Schema
    """The schema of the rows that it emits."""
    side_outputs: Mapping[str, str | Schema] | None = None
    second: Input | None = None
    """The other keyed stream, if the function processes rows of two streams."""
    broadcast: Input | None = None
    on_error: OnError = FAIL
    batches: bool = False
    """Whether the function takes whole batches."""
    combine: Combine | None = None
    """How Spark SQL can combine rows before they are shuffled, if it can."""
