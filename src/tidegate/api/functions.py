"""User functions, with PyFlink's names. For map, filter and flat_map, a plain callable works as well.

A function object is pickled when the job starts, and every task works on its own copy. Anything that must outlive a task
belongs in declared state; attributes set while rows are processed are lost without notice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeGuard

from tidegate.api.context import (
    BatchContext,
    BroadcastContext,
    InitializationContext,
    OnTimerContext,
    ProcessContext,
    RuntimeContext,
    SnapshotContext,
)
from tidegate.api.mistakes import BATCH_CALLS, ROW_CALLS, check_function
from tidegate.api.ported_function import PortedFunction
from tidegate.api.rows import Element, In, In2, K, Typed
from tidegate.api.states import ListState, declared_states
from tidegate.core.errors import GraphError
from tidegate.graph.schema import Schema
from tidegate.graph.states import TIMERS, StateSpec

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray
    from pyarrow import RecordBatch

    from tidegate.state.key_index import KeyIndex


class Function(ABC):  # noqa: B024 (each kind of function has its own abstract method)
    """Base of all functions. Both methods are called once for each copy of the function, in its task."""

    def open(self, ctx: RuntimeContext, /) -> None:  # noqa: B027
        """Create what cannot be pickled: connections, models, compiled patterns. State is not available yet."""

    def close(self) -> None:  # noqa: B027
        """Release what `open` acquired. Also called after a failure."""


class CheckpointedFunction(ABC):
    """Mixin for a function whose own variables must survive: state of each task, not of each key.

    A function object lives for one epoch in one task. `initialize_state` is called before `open`: load the variables from
    the declared operator state. `snapshot_state` is called after the last row of the epoch: save them.
    """

    @abstractmethod
    def initialize_state(self, ctx: InitializationContext, /) -> None:
        """`ctx.is_restored()` says whether there is earlier state: from an earlier epoch, a checkpoint or a savepoint."""

    @abstractmethod
    def snapshot_state(self, ctx: SnapshotContext, /) -> None:
        """Anything that is not saved to declared state here is lost."""


class CheckpointListener(ABC):
    """Mixin for a function that is told what became of checkpoints, with the contract of Flink's `CheckpointListener`.

    Both methods are called after `open` and before the first row of an epoch, in every task, in the order of ids. There is no
    key, so keyed state and output are not available; operator state is. An error fails the epoch, as one in `open` does.

    A checkpoint has the id that `snapshot_state` got in the last epoch that the checkpoint contains. Delivery is best effort: a
    function may be told of a checkpoint twice, or not at all. So keep what waits for a checkpoint in operator state, with the id
    of its epoch. When a checkpoint is complete, commit everything up to its id, in a way that may be repeated.
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:
        """All epochs up to this one are in a checkpoint, which the job returns to after a failure. No checkpoint of a lower id
        will complete later. After a restart, the first epoch is told of the checkpoint that the job has returned to.
        """

    def notify_checkpoint_aborted(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """A checkpoint of this epoch failed. Discard nothing: a later checkpoint contains the same work, perhaps with this id."""


class ListCheckpointed(ABC, Generic[Element]):
    """The shorter form of `CheckpointedFunction`, with one list: `class Offsets(MapFunction, ListCheckpointed, element=int)`.

    The list is distributed evenly when the parallelism changes.
    """

    def __init_subclass__(cls, element: object = None, **others: object) -> None:
        super().__init_subclass__(**others)
        if element is not None:
            cls._default_ = ListState(element, operator=True)  # type: ignore[attr-defined]
            cls._default_.__set_name__(cls, "_default_")  # type: ignore[attr-defined]
        # Without it, nothing is refused yet: a class that is sent to a task is created again there without its keywords.

    @abstractmethod
    def snapshot_state(self, checkpoint_id: int, timestamp: int, /) -> list[Element]:
        """The elements to keep. The id is that of the epoch, as in `SnapshotContext`, the time its processing time in
        milliseconds."""

    @abstractmethod
    def restore_state(self, state: list[Element], /) -> None:
        """Elements that were kept; not called where there are none yet."""


class MapFunction(Function, Generic[In]):
    """One row in, one row out."""

    @abstractmethod
    def map(self, row: In, /) -> object:
        """The row to emit: a tuple in the order of the schema, a dict, or a row."""


class FilterFunction(Function, Generic[In]):
    """Keeps rows or drops them."""

    @abstractmethod
    def filter(self, row: In, /) -> bool:
        """Whether to keep the row."""


class FlatMapFunction(Function, Generic[In]):
    """One row in, any number of rows out."""

    @abstractmethod
    def flat_map(self, row: In, /) -> Iterable[object] | None:
        """The rows to emit, mostly by `yield`. None is no row."""


class KeyedProcessFunction(Function, Typed, Generic[In, K]):
    """Sees the rows of a keyed stream one by one, with state and timers of their key.

    State is declared on the class: `total = ValueState(float, default=0.0)`.
    """

    @abstractmethod
    def process_element(self, row: In, ctx: ProcessContext[K], /) -> Iterable[object] | None:
        """Handle one row; yield or return the rows to emit. `ctx.output(tag, row)` emits to a side output."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K], /) -> Iterable[object] | None:
        """A timer of the current key has come; `timestamp` is the time it was registered for, in milliseconds."""
        return None


class KeyedBatchFunction(Function):
    """Processes a keyed stream in Arrow batches, and reads and writes the state of all keys of a batch as arrays.

    State is shared with `KeyedProcessFunction`: each kind of function can read what the other wrote. Batch boundaries have no
    meaning, and a key's rows may be split over several batches.
    """

    @abstractmethod
    def process_batch(
        self, batch: RecordBatch, keys: KeyIndex, ctx: BatchContext, /
    ) -> Iterable[object] | Mapping[str, object] | None:
        """Process one batch; yield or return the output: a dict of columns, an Arrow batch or table, or a pandas or polars
        frame. `self.total.values(keys)` reads the state of the keys, `self.total.update_all(keys, array)` writes it.
        """

    combined: str | Schema = ""
    """The schema of what `combine` returns. Required if `combine` is defined."""

    def combine(self, batch: RecordBatch, keys: KeyIndex, /) -> object:
        """Optional: merge rows of the same key before the shuffle. Return one result with the columns that `combined` declares,
        including the key columns; `process_batch` then receives these rows. It may be called for any subset of a key's rows, and
        has no state.
        """
        raise NotImplementedError

    def on_timers(
        self, keys: KeyIndex, timestamps: NDArray[int64], ctx: BatchContext, /
    ) -> Iterable[object] | Mapping[str, object] | None:
        """Handle due timers. `timestamps[i]` is the time of timer i in milliseconds, and `keys.index[i]` the position of its key;
        a key may have several timers in one call.
        """
        return None


class KeyedCoProcessFunction(Function, Typed, Generic[In, In2, K]):
    """Sees the rows of two keyed streams one by one, with state and timers of their key that both sides share."""

    @abstractmethod
    def process_element1(self, row: In, ctx: ProcessContext[K], /) -> Iterable[object] | None:
        """Handle a row of the first stream, as `KeyedProcessFunction.process_element` does."""

    @abstractmethod
    def process_element2(self, row: In2, ctx: ProcessContext[K], /) -> Iterable[object] | None:
        """Handle a row of the second stream."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K], /) -> Iterable[object] | None:
        """A timer of the current key has come."""
        return None


class KeyedBroadcastProcessFunction(Function, Typed, Generic[In, In2, K]):
    """Sees the rows of a keyed stream, and those of a broadcast stream, each of which reaches every task.

    The broadcast side stores what it learns in a `BroadcastState`, which the keyed side may only read.
    """

    @abstractmethod
    def process_element(self, row: In, ctx: ProcessContext[K], /) -> Iterable[object] | None:
        """Handle a row of the keyed stream. Broadcast state is read-only here."""

    @abstractmethod
    def process_broadcast_element(self, row: In2, ctx: BroadcastContext, /) -> Iterable[object] | None:
        """Handle a row of the broadcast stream. There is no key: keyed state is reached by `ctx.apply_to_keyed_state`.

        Every task must reach the same broadcast state, in whatever order rows of several senders arrive.
        """

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K], /) -> Iterable[object] | None:
        """A timer of the current key has come."""
        return None


class Combiner:
    """The `combine` of a function over batches, as an operator before the shuffle."""

    def __init__(self, function: KeyedBatchFunction, key: tuple[str, ...]) -> None:
        self.function, self.key = function, key

    @staticmethod
    def is_wanted(function: object) -> TypeGuard[KeyedBatchFunction]:
        return isinstance(function, KeyedBatchFunction) and type(function).combine is not KeyedBatchFunction.combine


_SILENT = {
    KeyedProcessFunction.on_timer,
    KeyedCoProcessFunction.on_timer,
    KeyedBroadcastProcessFunction.on_timer,
    KeyedBatchFunction.on_timers,
}


def operator_states_of(function: object) -> tuple[StateSpec, ...]:
    """What a function declares, timers apart. Raises GraphError for a `ListCheckpointed` without a type."""
    if isinstance(function, ListCheckpointed) and not hasattr(type(function), "_default_"):
        name = type(function).__name__
        raise GraphError(f"{name} does not say what its list is made of. Say it: class {name}(…, element=int).")
    states = declared_states(function)
    for state in states:
        if state.windowed:
            raise GraphError(
                f"State {state.name!r} of {type(function).__name__} is declared per window, which only a ProcessWindowFunction "
                "has. Leave out per_window()."
            )
    called_with = BATCH_CALLS if isinstance(function, KeyedBatchFunction) else ROW_CALLS
    check_function(function, [state.name for state in states], called_with)
    return states


def states_of(function: object) -> tuple[StateSpec, ...]:
    """All state of a keyed function: what it declares, and its timers where it says what they do."""
    method = "on_timers" if isinstance(function, KeyedBatchFunction) else "on_timer"
    own = getattr(type(function), method, None)
    return (*operator_states_of(function), *((TIMERS,) if own is not None and own not in _SILENT else ()))


def runnable(function: object, broadcast: Sequence[object] = ()) -> tuple[object, tuple[StateSpec, ...]]:
    """What the runtime calls for a keyed function, and its states. `broadcast` are the descriptors of `stream.broadcast`."""
    if isinstance(function, PortedFunction):
        ported = function.ported(broadcast)
        return ported, ported.states()
    if broadcast:
        raise GraphError(
            f"{type(function).__name__} declares its broadcast state on the class, as rules = BroadcastState(str, Rule). Leave "
            "out the descriptors: rules.broadcast(). They are for functions of tidegate.flink."
        )
    return function, states_of(function)
