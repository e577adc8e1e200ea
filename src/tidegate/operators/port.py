"""The port between a task and what runs behind a key: built-in operators and the functions of users.

An operator is declared in the driver, travels to tasks with the program, and has no state there yet. `StatefulOperator.attach`
gives it the state of one attempt, and returns an `AttachedOperator`, which is complete and lives as long as the attempt. A task
calls it in this order:

1. `attach_operator_states`, if the operator declares state of the task.
2. `row_calls`, `timer_call` and the other calls for what `capabilities` says, once. What they return is called for each row, so
   nothing lies between the task and a function.
3. `open`, then `bind`: up to here there is no key, and declared state of a function reports that.
4. The calls, for rows and then for timers; `check` after each batch.
5. `close`, also after a failure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import Flag, auto
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tidegate.graph.states import StateSpec

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates
    from tidegate.state.accessors.operator_states import OperatorStates
    from tidegate.state.accessors.timers import Timer

RowCall: TypeAlias = Callable[[Any, Any], Iterable[Any] | None]
"""Processes a row, or the time of a timer, with its context. Returns the rows to emit."""
BatchCall: TypeAlias = Callable[[Any, Any, Any], Any]
"""Processes a batch, or the times of timers, with the keys in it and a context."""
Taken: TypeAlias = tuple[list[Any], Sequence[int]]
"""The rows to emit, and the positions of the combined rows that must be processed one at a time."""


class CombinedRows(NamedTuple):
    """Rows that were combined before the shuffle (see `graph.combine`): one batch, as parallel columns."""

    keys: Sequence[Any]
    groups: Sequence[int]
    """Their key groups."""
    panes: Sequence[int | None]
    """Where each begins in event time, in milliseconds. None without windows, and for a row whose event time is null."""
    rows: Sequence[Any]
    """(number of rows, a late row or None, parts, span in milliseconds)."""
    watermark_ms: int


class Capability(Flag):
    """What an operator does many at a time. A task does the rest row by row and timer by timer."""

    NONE = 0
    TAKES_COMBINED = auto()
    """`take_combined` and `take_partial` process many combined rows at once."""
    HOLDS_COMBINED = auto()
    """It keeps combined rows until `finish_combined`, which comes after the last row and before the first timer."""
    FIRES_TOGETHER = auto()
    """`fire_together` fires many event-time timers at once: none depends on another, or on a context."""


class AttachedOperator(ABC):
    """An operator with the state of one attempt of a task. What it does not define does nothing, or is never asked for."""

    capabilities = Capability.NONE
    late_rows_dropped = 0
    """Rows that were too late, and that no side output wanted."""

    # -- life ----------------------------------------------------------------------------------------------------------

    def attach_operator_states(self, states: OperatorStates) -> None:  # noqa: B027
        """Take the state of the task. There is none unless the operator declares it."""

    def open(self, ctx: Any) -> None:  # noqa: B027
        """Create what cannot be pickled. There is no key yet."""

    def bind(self) -> None:  # noqa: B027
        """From now on there may be a key."""

    def check(self) -> None:  # noqa: B027
        """After a batch. Raises GraphError if a function has damaged what belongs to the task."""

    def close(self) -> None:  # noqa: B027
        """Release what `open` created. Also called after a failure."""

    # -- rows ----------------------------------------------------------------------------------------------------------

    @abstractmethod
    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        """Return what is called with the rows of each of so many keyed inputs."""

    def broadcast_call(self) -> RowCall:
        """Return what is called with the rows of the broadcast input."""
        raise NotImplementedError(f"{type(self).__name__} has no broadcast input.")

    def batch_call(self) -> BatchCall:
        """Return what is called with batches of rows, for an operator over batches."""
        raise NotImplementedError(f"{type(self).__name__} takes no batches.")

    # -- rows that were combined before the shuffle (see `graph.combine`) ------------------------------------------------

    def combined_call(self) -> RowCall:
        """Return what is called with one combined row: (number of rows, a late row or None, parts, span in milliseconds)."""
        raise NotImplementedError(f"{type(self).__name__} has no use for combined rows.")

    def take_combined(self, combined: CombinedRows) -> Taken:
        """Process combined rows at once. Each is all that its key and pane have in this epoch."""
        raise NotImplementedError(f"{type(self).__name__} takes combined rows one at a time.")

    def take_partial(self, combined: CombinedRows) -> Taken:
        """The same, while more may follow for the same keys and panes."""
        return self.take_combined(combined)

    def finish_combined(self) -> list[Any]:
        """Process the combined rows that were kept. Return the rows to emit."""
        return []

    # -- timers --------------------------------------------------------------------------------------------------------

    def timer_call(self) -> RowCall:
        """Return what is called with the time of each timer that is due. By default nothing happens: without the state `TIMERS`
        none is ever due."""
        return _no_timer

    def timers_call(self) -> BatchCall:
        """Return what is called with many timers, for an operator over batches."""
        raise NotImplementedError(f"{type(self).__name__} takes no batches.")

    def on_timer_failed(self, timestamp: int, ctx: Any) -> None:  # noqa: B027
        """A function raised on the timer and everything it did was rolled back: do what the timer must do nevertheless."""

    def fire_together(self, timers: Sequence[Timer]) -> list[Any]:
        """Fire timers that are due. Return the rows to emit."""
        raise NotImplementedError(f"{type(self).__name__} fires timers one at a time.")


class StatefulOperator(ABC):
    """A built-in operator, or one that runs functions of another API, as it is declared and sent to tasks."""

    @abstractmethod
    def states(self) -> tuple[StateSpec, ...]:
        """Return the states that it needs, timers included."""

    @abstractmethod
    def attach(self, states: KeyedStates) -> AttachedOperator:
        """Return the operator for one attempt of a task."""


def _no_timer(timestamp: int, ctx: Any) -> None:
    return None
