"""What an operator keeps of the rows of a window: one combined value, or the rows themselves.

A `ContentsKind` is declared; `attach` returns the contents of one attempt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.graph.states import StateKind, StateSpec
from tidegate.operators.evictor import Evictor, TimestampedValue
from tidegate.operators.folds import Fold
from tidegate.schema.row_types import restorer, row_type
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates
    from tidegate.state.accessors.list_accessor import ListAccessor
    from tidegate.state.accessors.value_accessor import ValueAccessor

NAME = "window.contents"


class WindowContents(ABC):
    """The state of the window that the window scope points to."""

    @abstractmethod
    def add(self, row: Any, timestamp: int, side: int) -> None: ...

    def add_combined(self, combined: Any, timestamp: int, side: int) -> None:
        """Add what Spark SQL computed from several rows: (how many, a late row, parts, their span)."""
        raise NotImplementedError(f"{type(self).__name__} keeps single rows.")

    @abstractmethod
    def elements(self, window: Any) -> Sequence[Any]:
        """Return what the window function sees; nothing if the window is empty."""

    @abstractmethod
    def take(self) -> Any:
        """Remove everything from the state and return it: for `put` in another window."""

    @abstractmethod
    def put(self, taken: Any) -> None: ...

    @abstractmethod
    def clear(self) -> None: ...


class ContentsKind(ABC):
    """Which contents windows have."""

    @abstractmethod
    def spec(self) -> StateSpec: ...

    @abstractmethod
    def attach(self, states: KeyedStates) -> WindowContents: ...


@dataclass(frozen=True, slots=True)
class Folded(ContentsKind):
    """One value: the state stays small however many rows a window has."""

    fold: Fold

    def spec(self) -> StateSpec:
        return StateSpec(name=NAME, kind=StateKind.VALUE, value=self.fold.value_type, windowed=True)

    def attach(self, states: KeyedStates) -> FoldedContents:
        return FoldedContents(self.fold, states.value_state(NAME))


@dataclass(frozen=True, slots=True)
class Listed(ContentsKind):
    """All rows, in arrival order, with their times."""

    schema: Schema
    evictor: Evictor | None = None
    fold: Fold | None = None

    def spec(self) -> StateSpec:
        element: Any = tuple[int, row_type(self.schema)]  # type: ignore[misc]
        return StateSpec(name=NAME, kind=StateKind.LIST, value=element, windowed=True)

    def attach(self, states: KeyedStates) -> ListedContents:
        return ListedContents(self, states.list_state(NAME))


@dataclass(frozen=True, slots=True)
class Paired(ContentsKind):
    """All rows of two streams."""

    left: Schema
    right: Schema

    def spec(self) -> StateSpec:
        element: Any = tuple[row_type(self.left) | None, row_type(self.right) | None]  # type: ignore[misc]
        return StateSpec(name=NAME, kind=StateKind.LIST, value=element, windowed=True)

    def attach(self, states: KeyedStates) -> PairedContents:
        return PairedContents(self, states.list_state(NAME))


class FoldedContents(WindowContents):
    def __init__(self, fold: Fold, state: ValueAccessor) -> None:
        self.fold = fold
        self.state = state

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

    def clear(self) -> None:
        self.state.clear()


class _ContentsInList(WindowContents):
    """Contents in a list."""

    def __init__(self, state: ListAccessor) -> None:
        self.state = state

    def take(self) -> Any:
        taken = list(self.state.get())
        self.state.clear()
        return taken

    def put(self, taken: Any) -> None:
        self.state.add_all(taken)

    def clear(self) -> None:
        self.state.clear()


class ListedContents(_ContentsInList):
    def __init__(self, kind: Listed, state: ListAccessor) -> None:
        super().__init__(state)
        self._named = restorer(kind.schema)
        self._evictor = kind.evictor
        self._fold = kind.fold

    def add(self, row: Any, timestamp: int, side: int) -> None:
        self.state.add((timestamp, row))

    def elements(self, window: Any) -> Sequence[Any]:
        found: Sequence[Any] = [TimestampedValue(time, self._named(row)) for time, row in self.state.get()]
        if self._evictor is not None:
            # Flink calls `evict_after` once the function has run. Both get what `evict_before` left, so the order does not show.
            kept = self._evictor.evict_before(found, window)
            after = self._evictor.evict_after(kept, window)
            if len(after) != len(found):
                self.state.update((element.timestamp, element.value) for element in after)
            found = kept
        rows = [element.value for element in found]
        return [self._fold.of(rows)] if self._fold is not None and rows else rows


class PairedContents(_ContentsInList):
    """Elements are (side, row)."""

    def __init__(self, kind: Paired, state: ListAccessor) -> None:
        super().__init__(state)
        self._left = restorer(kind.left)
        self._right = restorer(kind.right)

    def add(self, row: Any, timestamp: int, side: int) -> None:
        self.state.add((row, None) if side == 0 else (None, row))

    def elements(self, window: Any) -> Sequence[Any]:
        left, right = self._left, self._right
        return [(0, left(one)) if one is not None else (1, right(other)) for one, other in self.state.get()]
