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
from tidegate.graph.model import Input
from tidegate.graph.states import TIMERS, StateSpec
from tidegate.schema.schema import Schema, as_schema

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray
    from pyarrow import RecordBatch

    from tidegate.state.keys.key_index import KeyIndex


class Function(ABC):  # noqa: B024 (each kind of function has its own abstract method)
    """Base of all functions. Both methods are called once for each copy of the function, in its task."""

    def open(self, ctx: RuntimeContext, /) -> None:  # noqa: B027
        """Create what cannot be pickled: connections, models, compiled patterns. `ctx` says where this copy runs. State is not
        available yet.
        """

    def close(self) -> None:  # noqa: B027
        """Release what `open` acquired. Also called after a failure."""


class CheckpointedFunction(ABC):
    """Mixin for a function whose own variables must survive: state of each task, not of each key.

    A function object lives for one epoch in one task. `initialize_state` is called before `open`: load the variables from
    the declared operator state. `snapshot_state` is called after the last row of the epoch: save them.

    Examples:
        >>> class Numbered(tg.MapFunction, tg.CheckpointedFunction):
        ...     last = tg.ListState(int, operator=True)
        ...
        ...     def initialize_state(self, ctx):
        ...         self.n = sum(self.last.get())
        ...
        ...     def snapshot_state(self, ctx):
        ...         self.last.update([self.n])
        ...
        ...     def map(self, order):
        ...         self.n += 1
        ...         return self.n, order.user
        >>> numbered = orders.map(Numbered(), schema="n bigint, user string", uid="numbered")
        >>> with tg.testing.harness(numbered) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "bob", 7.0, T0))
        ...     h.output()
        [Struct(n=1, user='ann'), Struct(n=2, user='bob')]
    """

    @abstractmethod
    def initialize_state(self, ctx: InitializationContext, /) -> None:
        """Load the variables. `ctx.is_restored()` says whether there is earlier state: of an earlier epoch, a checkpoint or a
        savepoint.
        """

    @abstractmethod
    def snapshot_state(self, ctx: SnapshotContext, /) -> None:
        """Save the variables in declared state; what is not saved is lost. `ctx` has the id and the time of the epoch."""


class CheckpointListener(ABC):
    """Mixin for a function that is notified of checkpoints, with the contract of Flink's `CheckpointListener`.

    Both methods are called after `open` and before the first row of an epoch, in every task, in the order of ids. There is no
    key, so keyed state and output are not available; operator state is. An error fails the epoch, as one in `open` does.

    A checkpoint has the id that `snapshot_state` got in the last epoch that the checkpoint contains. Delivery is best effort: a
    function may be notified of a checkpoint twice, or not at all. So keep what waits for a checkpoint in operator state, with
    the id of its epoch. When a checkpoint is complete, commit everything up to its id, in a way that may be repeated.
    """

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int, /) -> None:
        """All epochs up to `checkpoint_id` are in a checkpoint, which the job returns to after a failure.

        No checkpoint of a lower id will complete later. After a restart, the first epoch is notified of the checkpoint that the
        job has returned to.
        """

    def notify_checkpoint_aborted(self, checkpoint_id: int, /) -> None:  # noqa: B027
        """A checkpoint of the epoch `checkpoint_id` failed.

        Discard nothing: a later checkpoint contains the same work, perhaps with this id.
        """


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
        """Return the elements to keep.

        Args:
            checkpoint_id: The id of the epoch that ends, as in `SnapshotContext`.
            timestamp: The processing time of the epoch, in milliseconds since 1970-01-01 UTC.
        """

    @abstractmethod
    def restore_state(self, state: list[Element], /) -> None:
        """Load the elements of `state`, which were kept. Not called where there are none yet."""


class MapFunction(Function, Generic[In]):
    """One row in, one row out."""

    @abstractmethod
    def map(self, row: In, /) -> object:
        """Return the row to emit for `row`: a tuple in the order of the schema, a dict, or a row."""


class FilterFunction(Function, Generic[In]):
    """Keeps rows or drops them."""

    @abstractmethod
    def filter(self, row: In, /) -> bool:
        """Return whether to keep `row`."""


class FlatMapFunction(Function, Generic[In]):
    """One row in, any number of rows out."""

    @abstractmethod
    def flat_map(self, row: In, /) -> Iterable[object] | None:
        """Yield or return the rows to emit for `row`. None is no row."""


class KeyedProcessFunction(Function, Typed, Generic[In, K]):
    """Sees the rows of a keyed stream one by one, with state and timers of their key.

    State is declared on the class.

    Examples:
        >>> class Totals(tg.KeyedProcessFunction):
        ...     total = tg.ValueState(float, default=0.0)
        ...
        ...     def process_element(self, order, ctx):
        ...         self.total.update(self.total.value() + order.amount)
        ...         yield order.user, self.total.value()
        >>> with tg.testing.harness(Totals(), key="user", schema="user string, amount double") as h:
        ...     h.process(("ann", 5.0), ("ann", 7.0))
        ...     h.output()
        [('ann', 5.0), ('ann', 12.0)]
    """

    @abstractmethod
    def process_element(self, row: In, ctx: ProcessContext[K], /) -> Iterable[object] | None:
        """Handle one row; yield or return the rows to emit.

        Args:
            row: The row, a named tuple of the columns: `row.amount`.
            ctx: The key and the event time of the row, timers, and side outputs.
        """

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K], /) -> Iterable[object] | None:
        """Handle a timer of the current key; yield or return the rows to emit.

        Args:
            timestamp: The time that it was registered for, in milliseconds since 1970-01-01 UTC.
            ctx: The key, the kind of the timer, timers, and side outputs.
        """
        return None


class KeyedBatchFunction(Function):
    """Processes a keyed stream in Arrow batches, and reads and writes the state of all keys of a batch as arrays.

    State is shared with `KeyedProcessFunction`: each kind of function can read what the other wrote. Batch boundaries have no
    meaning, and a key's rows may be split over several batches.

    Examples:
        >>> class Counts(tg.KeyedBatchFunction):
        ...     n = tg.ValueState(int, default=0)
        ...
        ...     def process_batch(self, batch, keys, ctx):
        ...         n = self.n.values(keys) + keys.counts()
        ...         self.n.update_all(keys, n)
        ...         return {"user": keys.column("user"), "n": n}
        >>> columns, result = "user string, amount double", "user string, n bigint"
        >>> with tg.testing.harness(Counts(), key="user", schema=columns, output_schema=result) as h:
        ...     h.process(("ann", 5.0), ("ann", 7.0), ("bob", 1.0))
        ...     [tuple(row) for row in h.output()]
        [('ann', 2), ('bob', 1)]
    """

    @abstractmethod
    def process_batch(
        self, batch: RecordBatch, keys: KeyIndex, ctx: BatchContext, /
    ) -> Iterable[object] | Mapping[str, object] | None:
        """Process one batch; yield or return the output.

        The output is a dict of columns, an Arrow batch or table, or a pandas or polars frame.

        Args:
            batch: The rows, with all columns of the stream.
            keys: The distinct keys of the batch, and which row has which. `self.total.values(keys)` reads the state of these
                keys, `self.total.update_all(keys, array)` writes it.
            ctx: Event times of the rows, timers, and side outputs.
        """

    combined: str | Schema = ""
    """The schema of what `combine` returns. Required if `combine` is defined."""

    def combine(self, batch: RecordBatch, keys: KeyIndex, /) -> object:
        """Optional: merge rows of the same key before the shuffle. `process_batch` then receives the merged rows.

        Return one result with the columns that `combined` declares, including the key columns. It may be called for any subset
        of a key's rows, and has no state.

        Args:
            batch: The rows, with all columns of the stream.
            keys: The distinct keys of the batch, and which row has which.
        """
        raise NotImplementedError

    def on_timers(
        self, keys: KeyIndex, timestamps: NDArray[int64], ctx: BatchContext, /
    ) -> Iterable[object] | Mapping[str, object] | None:
        """Handle due timers; yield or return the output, as in `process_batch`. A key may have several timers in one call.

        Args:
            keys: The keys of the timers: `keys.index[i]` is the position of the key of timer i.
            timestamps: The times that the timers were registered for, in milliseconds since 1970-01-01 UTC.
            ctx: The kind of the timers, timers, and side outputs.
        """
        return None


class Combiner:
    """The `combine` of a function over batches, as an operator before the shuffle."""

    def __init__(self, function: KeyedBatchFunction, key: tuple[str, ...]) -> None:
        self.function = function
        self.key = key

    @staticmethod
    def is_wanted(function: object) -> TypeGuard[KeyedBatchFunction]:
        """Return whether the function's class defines `combine`."""
        return isinstance(function, KeyedBatchFunction) and type(function).combine is not KeyedBatchFunction.combine


def combined_schema(uid: str, function: KeyedBatchFunction, read: Input) -> Schema:
    """Return the columns that `combine` returns. Raises GraphError unless they have the key's columns as they are."""
    name = type(function).__name__
    if not function.combined:
        raise GraphError(
            f"{name} has a method combine, but does not say which columns it returns. Declare them on the class: "
            "combined = 'user string, n bigint'."
        )
    # The shuffle comes after `combine`, so its rows must still have the key, and with it the same hash.
    partial = as_schema(function.combined)
    for column in read.key:
        expected = read.schema.fields[read.schema.index(column)].type
        if column not in partial or partial.fields[partial.index(column)].type != expected:
            raise GraphError(
                f"process {uid!r}: the columns that {name}.combine returns ({partial}) must contain the key column "
                f"{column!r} as {expected.ddl()}."
            )
    return partial


class KeyedCoProcessFunction(Function, Typed, Generic[In, In2, K]):
    """Sees the rows of two keyed streams one by one, with state and timers of their key that both sides share."""

    @abstractmethod
    def process_element1(self, row: In, ctx: ProcessContext[K], /) -> Iterable[object] | None:
        """Handle a row of the first stream; yield or return the rows to emit.

        Args:
            row: The row, a named tuple of the columns: `row.amount`.
            ctx: The key and the event time of the row, timers, and side outputs.
        """

    @abstractmethod
    def process_element2(self, row: In2, ctx: ProcessContext[K], /) -> Iterable[object] | None:
        """Handle a row of the second stream; yield or return the rows to emit.

        Args:
            row: The row, a named tuple of the columns: `row.amount`.
            ctx: The key and the event time of the row, timers, and side outputs.
        """

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K], /) -> Iterable[object] | None:
        """Handle a timer of the current key; yield or return the rows to emit.

        Args:
            timestamp: The time that it was registered for, in milliseconds since 1970-01-01 UTC.
            ctx: The key, the kind of the timer, timers, and side outputs.
        """
        return None


class KeyedBroadcastProcessFunction(Function, Typed, Generic[In, In2, K]):
    """Sees the rows of a keyed stream, and those of a broadcast stream, each of which reaches every task.

    The broadcast side stores what it learns in a `BroadcastState`, which the keyed side may only read.
    """

    @abstractmethod
    def process_element(self, row: In, ctx: ProcessContext[K], /) -> Iterable[object] | None:
        """Handle a row of the keyed stream; yield or return the rows to emit. Broadcast state is read-only here.

        Args:
            row: The row, a named tuple of the columns: `row.amount`.
            ctx: The key and the event time of the row, timers, and side outputs.
        """

    @abstractmethod
    def process_broadcast_element(self, row: In2, ctx: BroadcastContext, /) -> Iterable[object] | None:
        """Handle a row of the broadcast stream; yield or return the rows to emit.

        Every task must reach the same broadcast state, in whatever order rows of several senders arrive.

        Args:
            row: The row, a named tuple of the columns of the broadcast stream.
            ctx: Times and side outputs. There is no key: `ctx.apply_to_keyed_state` reaches keyed state.
        """

    def on_timer(self, timestamp: int, ctx: OnTimerContext[K], /) -> Iterable[object] | None:
        """Handle a timer of the current key; yield or return the rows to emit.

        Args:
            timestamp: The time that it was registered for, in milliseconds since 1970-01-01 UTC.
            ctx: The key, the kind of the timer, timers, and side outputs.
        """
        return None


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
    # Timers are a state of their own. A function that inherits the empty `on_timer` gets none, and pays for none.
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
