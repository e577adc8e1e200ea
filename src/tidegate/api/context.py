"""The contexts of functions, with PyFlink's names. Protocols, implemented by the runtime and the test harness."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from tidegate.api.rows import K_co, Key, Stored
from tidegate.api.state_access import BroadcastAccess, ListAccess
from tidegate.core.times import TimeDomain

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

    from tidegate.state.keys.key_index import KeyIndex


class RuntimeContext(Protocol):
    """Passed to `open`: describes where this copy of the function runs."""

    def get_task_name(self) -> str:
        """Return the name of the operator: its uid, if it has one."""
        ...

    def get_index_of_this_subtask(self) -> int:
        """Return the number of this task, from 0."""
        ...

    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the job."""
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Measure a block of the function, for functions whose calls have no context: `with self.ctx.span("parse"):`.

        Args:
            name: The name under which times are added up. Use few: those beyond a hundred are added up under one.
        """
        ...


class TimerService(Protocol):
    """Timers of the current key. A timer registered twice for one time fires once.

    Times are datetimes, or milliseconds since 1970-01-01 UTC; returned times are in milliseconds.

    Examples:
        >>> class Silence(tg.KeyedProcessFunction):
        ...     def process_element(self, order, ctx):
        ...         ctx.timer_service().register_event_time_timer(order.ts + timedelta(hours=1))
        ...
        ...     def on_timer(self, timestamp, ctx):
        ...         yield ctx.get_current_key(), 0.0
        >>> silent = orders.key_by("user").process("silent", Silence(), schema="user string, total double")
        >>> with tg.testing.harness(silent) as h:
        ...     h.process((1, "ann", 5.0, T0))
        ...     h.advance_watermark(T0 + timedelta(hours=1))
        ...     h.output()
        [Struct(user='ann', total=0.0)]
    """

    def current_processing_time(self) -> int:
        """Return the clock of the epoch, in milliseconds since 1970-01-01 UTC."""
        ...

    def current_watermark(self) -> int:
        """Return how far event time has progressed, in milliseconds since 1970-01-01 UTC."""
        ...

    def register_event_time_timer(self, timestamp: int | datetime) -> None:
        """Call `on_timer` for this key when the watermark reaches `timestamp`."""
        ...

    def register_processing_time_timer(self, timestamp: int | datetime) -> None:
        """Call `on_timer` for this key when the clock reaches `timestamp`."""
        ...

    def delete_event_time_timer(self, timestamp: int | datetime) -> None:
        """Delete the event-time timer of this key for `timestamp`, if there is one."""
        ...

    def delete_processing_time_timer(self, timestamp: int | datetime) -> None:
        """Delete the processing-time timer of this key for `timestamp`, if there is one."""
        ...


class ProcessContext(Protocol[K_co]):
    """Passed to `process_element` with each row."""

    def get_current_key(self) -> K_co:
        """Return the key of the row: the value of the key column, or a tuple if there are several."""
        ...

    def timestamp(self) -> int | None:
        """Return the event time of the row in milliseconds, if its source declares one."""
        ...

    def timer_service(self) -> TimerService:
        """Return the timers of the current key."""
        ...

    def output(self, tag: str, row: object) -> None:
        """Send a row to a side output.

        Args:
            tag: The tag, which the operator declares: `process(…, side_outputs={"late": "user string"})`.
            row: A tuple in the order of the declared columns, a dict, or a row.
        """
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Measure a block of the function: `with ctx.span("parse"):`.

        Args:
            name: The name under which times are added up, by operator, for metrics and traces. Use few: those beyond a hundred
                are added up under one.
        """
        ...


class OnTimerContext(ProcessContext[K_co], Protocol[K_co]):
    """Passed to `on_timer`. The current key is the one that registered the timer."""

    def time_domain(self) -> TimeDomain:
        """Return whether event time or processing time reached the timer."""
        ...


class BatchTimerService(Protocol):
    """Timers of many keys at once.

    `timestamps` is one time for all keys (milliseconds since 1970-01-01 UTC, or a datetime), or an array with one time per
    distinct key: integers, numpy datetime64 or Arrow timestamps, without nulls.
    """

    def current_processing_time(self) -> int:
        """Return the clock of the epoch, in milliseconds since 1970-01-01 UTC."""
        ...

    def current_watermark(self) -> int:
        """Return how far event time has progressed, in milliseconds since 1970-01-01 UTC."""
        ...

    def register_event_time_timers(self, keys: KeyIndex, timestamps: object) -> None:
        """Call `on_timers` for `keys` when the watermark reaches their `timestamps`."""
        ...

    def register_processing_time_timers(self, keys: KeyIndex, timestamps: object) -> None:
        """Call `on_timers` for `keys` when the clock reaches their `timestamps`."""
        ...

    def delete_event_time_timers(self, keys: KeyIndex, timestamps: object) -> None:
        """Delete the event-time timers of `keys` for their `timestamps`."""
        ...

    def delete_processing_time_timers(self, keys: KeyIndex, timestamps: object) -> None:
        """Delete the processing-time timers of `keys` for their `timestamps`."""
        ...


class BatchContext(Protocol):
    """Passed to `process_batch` and `on_timers`."""

    def timestamps(self) -> NDArray[int64] | None:
        """Return the event time of each row in milliseconds since 1970-01-01 UTC. None if the stream has no event-time column,
        and in `on_timers`. Raises WrongValue if an event time is null.
        """
        ...

    def timer_service(self) -> BatchTimerService:
        """Return the timers of the keys of this task."""
        ...

    def time_domain(self) -> TimeDomain:
        """Return, in `on_timers`, whether the timers are event-time or processing-time timers."""
        ...

    def output(self, tag: str, columns: object) -> None:
        """Send rows to a side output.

        Args:
            tag: The tag, which the operator declares: `process(…, side_outputs={"late": "user string"})`.
            columns: A dict of columns, an Arrow batch or table, or a pandas or polars frame.
        """
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Measure a block of the function: `with ctx.span("features"):`.

        Args:
            name: The name under which times are added up. Use few: those beyond a hundred are added up under one.
        """
        ...


class OperatorStateStore(Protocol):
    """Operator state by name, as in Flink's Java API. It contains what the class declares."""

    def get_list_state(self, name: str) -> ListAccess[Stored]:
        """Return the list declared as `name`, which is distributed evenly when the parallelism changes."""
        ...

    def get_union_list_state(self, name: str) -> ListAccess[Stored]:
        """Return the list declared as `name`, which every task gets in full when the job is restored."""
        ...

    def get_broadcast_state(self, name: str) -> BroadcastAccess[Stored, Stored]:
        """Return the map declared as `name`, which is the same in every task."""
        ...


class InitializationContext(Protocol):
    """Passed to `initialize_state`."""

    def is_restored(self) -> bool:
        """Return whether this task has earlier operator state: of an earlier epoch, a checkpoint or a savepoint."""
        ...

    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the operator state that the class declares, by name."""
        ...


class SnapshotContext(Protocol):
    """Passed to `snapshot_state`."""

    def get_checkpoint_id(self) -> int:
        """Return the id of the epoch that ends. It is greater than that of every earlier epoch of the job, also across restarts.

        Every checkpoint belongs to an epoch, but not every epoch gets one. `CheckpointListener` is notified of checkpoints by
        these ids, which are not those in the names of checkpoints.
        """
        ...

    def get_checkpoint_timestamp(self) -> int:
        """Return the processing time of the epoch, in milliseconds."""
        ...


class BroadcastContext(Protocol):
    """Passed to `process_broadcast_element`. There is no current key."""

    def apply_to_keyed_state(self, state: str, function: Callable[[Key, Stored], None]) -> None:
        """Call a function for every key of this task that has something in a state.

        Args:
            state: The name of a keyed state that the class declares.
            function: A callable that takes the key and its state: `lambda key, seen: seen.clear()`.
        """
        ...

    def timestamp(self) -> int | None:
        """Return the event time of the broadcast row in milliseconds, if its source declares one."""
        ...

    def current_processing_time(self) -> int:
        """Return the clock of the epoch, in milliseconds since 1970-01-01 UTC."""
        ...

    def current_watermark(self) -> int:
        """Return how far event time has progressed, in milliseconds since 1970-01-01 UTC."""
        ...

    def output(self, tag: str, row: object) -> None:
        """Send a row to a side output. Every task does: the row is emitted once for each task.

        Args:
            tag: The tag, which the operator declares: `process(…, side_outputs={"rules": "name string"})`.
            row: A tuple in the order of the declared columns, a dict, or a row.
        """
        ...

    def span(self, name: str) -> AbstractContextManager[None]:
        """Measure a block of the function: `with ctx.span("parse"):`.

        Args:
            name: The name under which times are added up. Use few: those beyond a hundred are added up under one.
        """
        ...
