"""What an operator keeps of the rows of a window: one combined value, or the rows themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate.api.aggregates import Fold
from tidegate.api.evictors import Evictor, TimestampedValue
from tidegate.graph.row_types import restorer, row_type
from tidegate.graph.schema import Schema
from tidegate.graph.states import StateKind, StateSpec

NAME = "window.contents"


class WindowContents:
    """The state of the window that the window scope points to."""

    specs: tuple[StateSpec, ...]

    def attach(self, accessors: dict[str, Any]) -> None:
        self.state = accessors[NAME]

    def open(self) -> None: ...

    def add(self, row: Any, timestamp: int, side: int) -> None:
        raise NotImplementedError

    def add_combined(self, combined: Any, timestamp: int, side: int) -> None:
        """Add what Spark SQL computed from several rows: (how many, a late row, parts, their span)."""
        raise NotImplementedError

    def elements(self, window: Any) -> Sequence[Any]:
        """Return what the window function sees; nothing if the window is empty."""
        raise NotImplementedError

    def take(self) -> Any:
        """Remove everything from the state and return it: for `put` in another window."""
        raise NotImplementedError

    def put(self, taken: Any) -> None:
        raise NotImplementedError

    def clear(self) -> None:
        self.state.clear()


class FoldedContents(WindowContents):
    """One value: the state stays small however many rows a window has."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.specs = (StateSpec(name=NAME, kind=StateKind.VALUE, value=fold.value_type, windowed=True),)

    def open(self) -> None:
        self.fold.open()

    def add(self, row: Any, timestamp: int, side: int) -> None:
        state = self.state
        value = state.value()
        state.update(self.fold.first(row) if value is None else self.fold.add(value, row))

    def add_combined(self, combined: Any, timestamp: int, side: int) -> None:
        state, fold = self.state, self.fold
        value, more = state.value(), fold.of_parts(combined[2])
        state.update(more if value is None else fold.merge(value, more))

    def elements(self, window: Any) -> Sequence[Any]:
        value = self.state.value()
        return () if value is None else (self.fold.result(value),)

    def take_results(self, names: Sequence[Any], groups: Sequence[int]) -> list[Any]:
        """Remove the results of many windows from the state at once and return them. `names` are (key,
        window); None if one is empty.
        """
        result = self.fold.result
        return [None if v is None else result(v) for v in self.state.take_many(names, groups)]

    def take(self) -> Any:
        value = self.state.value()
        self.state.clear()
        return value

    def put(self, taken: Any) -> None:
        if taken is not None:
            value = self.state.value()
            self.state.update(taken if value is None else self.fold.merge(value, taken))


class ListedContents(WindowContents):
    """All rows, in arrival order, with their times."""

    def __init__(self, schema: Schema, evictor: Evictor | None = None, fold: Fold | None = None) -> None:
        self._schema, self._evictor, self._fold = schema, evictor, fold
        self.specs = (StateSpec(name=NAME, kind=StateKind.LIST, value=tuple[int, row_type(schema)], windowed=True),)  # type: ignore[misc]

    def open(self) -> None:
        self._named = restorer(self._schema)
        if self._fold is not None:
            self._fold.open()

    def add(self, row: Any, timestamp: int, side: int) -> None:
        self.state.add((timestamp, row))

    def elements(self, window: Any) -> Sequence[Any]:
        found: Sequence[Any] = [TimestampedValue(time, self._named(row)) for time, row in self.state.get()]
        if self._evictor is not None:
            kept = self._evictor.evict_before(found, window)
            after = self._evictor.evict_after(kept, window)
            if len(after) != len(found):
                self.state.update((element.timestamp, element.value) for element in after)
            found = kept
        rows = [element.value for element in found]
        return [self._fold.of(rows)] if self._fold is not None and rows else rows

    def take(self) -> Any:
        taken = list(self.state.get())
        self.state.clear()
        return taken

    def put(self, taken: Any) -> None:
        self.state.add_all(taken)


class PairedContents(WindowContents):
    """All rows of two streams: elements are (side, row)."""

    def __init__(self, left: Schema, right: Schema) -> None:
        self._schemas = (left, right)
        value: Any = tuple[row_type(left) | None, row_type(right) | None]  # type: ignore[misc]
        self.specs = (StateSpec(name=NAME, kind=StateKind.LIST, value=value, windowed=True),)

    def open(self) -> None:
        self._named = [restorer(schema) for schema in self._schemas]

    def add(self, row: Any, timestamp: int, side: int) -> None:
        self.state.add((row, None) if side == 0 else (None, row))

    def elements(self, window: Any) -> Sequence[Any]:
        left, right = self._named
        return [(0, left(one)) if one is not None else (1, right(other)) for one, other in self.state.get()]

    def take(self) -> Any:
        taken = list(self.state.get())
        self.state.clear()
        return taken

    def put(self, taken: Any) -> None:
        self.state.add_all(taken)
