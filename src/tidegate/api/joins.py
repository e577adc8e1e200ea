"""Built-in operators: interval join, window join, deduplication."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeAlias

from tidegate.api.context import ProcessContext
from tidegate.api.functions import Function, KeyedProcessFunction
from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.rows import In, In2, K, Row, Typed
from tidegate.api.states import ValueState
from tidegate.api.window_contents import PairedContents
from tidegate.api.window_function import EmitPairs
from tidegate.api.window_operator import WindowOperator
from tidegate.api.windowing import check_has_event_time
from tidegate.api.windows import WindowAssigner
from tidegate.core.durations import Duration, argument_ms
from tidegate.core.errors import GraphError, WrongValue
from tidegate.core.times import TimeDomain
from tidegate.graph.listening import pass_hooks_on
from tidegate.graph.model import Input
from tidegate.graph.row_types import restorer, row_type
from tidegate.graph.schema import Schema
from tidegate.graph.states import TIMERS, StateKind, StateSpec


class ProcessJoinFunction(Function, Typed, Generic[In, In2, K]):
    """Makes rows of pairs of rows."""

    @abstractmethod
    def process_element(self, left: In, right: In2, ctx: ProcessContext[K] | None, /) -> Iterable[object] | None:
        """Two rows meet: yield or return rows to emit. `ctx` is None in a window join."""


JoinFunction: TypeAlias = ProcessJoinFunction | Callable[[Row, Row], object]


class IntervalJoin:
    """Keeps the rows of both sides by their times, each for as long as a partner may arrive.

    A row at time t of the left matches rows of the right at t + lower to t + upper, so it is needed until the watermark has
    passed t + upper; a row of the right until t - lower.
    """

    def __init__(self, lower_ms: int, upper_ms: int, function: JoinFunction, left: Schema, right: Schema) -> None:
        """Rows of one key whose event times are near."""
        self._bounds = (lower_ms, upper_ms), (-upper_ms, -lower_ms)
        self._function = function
        self._schemas = left, right
        if isinstance(function, Function):
            pass_hooks_on(function, self)

    def states(self) -> tuple[StateSpec, ...]:
        buffers = (
            StateSpec(name=f"join.{side}", kind=StateKind.MAP, value=list[row_type(schema)], map_key=int)  # type: ignore[misc]
            for side, schema in zip(("left", "right"), self._schemas)
        )
        return (*buffers, TIMERS)

    def attach_states(self, states: Any) -> None:
        self._scope, self._timers = states.scope, states.timers
        self._buffers = states.accessors["join.left"], states.accessors["join.right"]

    def open(self, ctx: Any) -> None:
        self.late_rows_dropped = 0
        self._named = [restorer(schema) for schema in self._schemas]
        if isinstance(self._function, Function):
            self._function.open(ctx)

    def close(self) -> None:
        if isinstance(self._function, Function):
            self._function.close()

    def process_element1(self, row: Any, ctx: Any) -> list[Any] | None:
        return self._process(row, ctx, 0)

    def process_element2(self, row: Any, ctx: Any) -> list[Any] | None:
        return self._process(row, ctx, 1)

    def _process(self, row: Any, ctx: Any, side: int) -> list[Any] | None:
        time = ctx.row_time
        if time is None:
            raise WrongValue(f"The row {row!r} has no event time, which a join by time needs. Leave out such rows.")
        if time < ctx.timer_service().watermark_ms:
            self.late_rows_dropped += 1
            return None
        own, other = self._buffers[side], self._buffers[1 - side]
        own.put(time, [*(own.get(time) or ()), row])
        lower, upper = self._bounds[side]
        named = self._named[1 - side]
        out: list[Any] = []
        for at, rows in other.items():
            if at > time + upper:
                break
            if at >= time + lower:
                for partner in rows:
                    pair = (row, named(partner)) if side == 0 else (named(partner), row)
                    out.extend(joined(self._function, *pair, ctx))
        scope = self._scope
        self._timers.register(
            TimeDomain.EVENT_TIME, time + max(upper, 0), scope.key, scope.key_group, ("left", "right")[side]
        )
        return out

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        side = 0 if ctx.namespace == "left" else 1
        self._buffers[side].remove(timestamp - max(self._bounds[side][1], 0))


class Deduplicate(KeyedProcessFunction):
    """Keeps the first row of each key."""

    seen = ValueState(bool, default=False)

    def __init__(self, ttl_ms: int | None = None) -> None:
        self.ttl_ms = ttl_ms

    def process_element(self, row: Any, ctx: Any) -> Iterable[Any]:
        if self.seen.value():
            return
        self.seen.update(True)
        if self.ttl_ms is not None:
            service = ctx.timer_service()
            service.register_processing_time_timer(service.current_processing_time() + self.ttl_ms)
        yield row

    def on_timer(self, timestamp: int, ctx: Any) -> None:
        self.seen.clear()


class _Joined:
    """A join function as a callable of two rows, for windows."""

    def __init__(self, function: JoinFunction) -> None:
        self._function = function

    def __call__(self, left: Any, right: Any) -> Iterable[Any]:
        return joined(self._function, left, right, None)


def joined(function: JoinFunction, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
    if isinstance(function, ProcessJoinFunction):
        return function.process_element(left, right, ctx) or ()
    row = function(left, right)
    return () if row is None else (row,)


def interval_join(
    left: Input, right: Input, lower: Duration, upper: Duration, function: JoinFunction, schema: Schema
) -> KeyedOperator:
    """Check the arguments of `KeyedStream.interval_join` and create its operator."""
    _check(left, right, function, "interval_join")
    lower_ms, upper_ms = _signed_ms("lower", lower), _signed_ms("upper", upper)
    if lower_ms > upper_ms:
        raise GraphError(f"The interval from {lower!r} to {upper!r} is empty. lower must not be more than upper.")
    operator = IntervalJoin(
        lower_ms=lower_ms, upper_ms=upper_ms, function=function, left=left.schema, right=right.schema
    )
    return KeyedOperator(function=operator, states=operator.states(), schema=schema, second=right)


def window_join(
    left: Input, right: Input, assigner: WindowAssigner, function: JoinFunction, schema: Schema
) -> KeyedOperator:
    """Check the arguments of `KeyedStream.window_join` and make its operator."""
    _check(left, right, function, "window_join", event_time=assigner.is_event_time)
    contents = PairedContents(left.schema, right.schema)
    operator = WindowOperator(assigner, assigner.get_default_trigger(), contents, EmitPairs(_Joined(function)))
    return KeyedOperator(function=operator, states=operator.states(), schema=schema, second=right)


def _check(left: Input, right: Input, function: JoinFunction, what: str, event_time: bool = True) -> None:
    if event_time:
        check_has_event_time(left, what)
        check_has_event_time(right, what)
    if not isinstance(function, ProcessJoinFunction) and not callable(function):
        raise GraphError(f"{what} takes a ProcessJoinFunction or a callable of two rows; got {function!r}.")


def _signed_ms(name: str, duration: Duration) -> int:
    """Parse an argument that may be negative: `"-5 s"`."""
    if isinstance(duration, str) and duration.strip().startswith("-") and duration.strip()[-1].isalpha():
        return -argument_ms(name, duration.strip()[1:])
    return argument_ms(name, duration)
