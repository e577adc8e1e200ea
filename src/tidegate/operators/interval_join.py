"""Rows of two streams that have the same key and whose times are near."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import WrongValue
from tidegate.core.times import TimeDomain
from tidegate.graph.listening import NotifiesFunction, notified_by
from tidegate.graph.states import TIMERS, StateKind, StateSpec
from tidegate.operators.join_function import Join
from tidegate.operators.port import AttachedOperator, RowCall, StatefulOperator
from tidegate.schema.row_types import restorer, row_type
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    from tidegate.state.accessors.keyed_states import KeyedStates

_SIDES = ("left", "right")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalJoin(StatefulOperator, NotifiesFunction):
    """Keeps the rows of both sides by their times, each for as long as a partner may arrive.

    A row at time t of the left matches rows of the right at t + lower to t + upper, so it is needed until the watermark has
    passed t + upper; a row of the right until t - lower.
    """

    lower_ms: int
    upper_ms: int
    join: Join
    left: Schema
    right: Schema

    @property
    def notified(self) -> object:
        return notified_by(self.join)

    def states(self) -> tuple[StateSpec, ...]:
        buffers = (
            StateSpec(name=f"join.{side}", kind=StateKind.MAP, value=list[row_type(schema)], map_key=int)  # type: ignore[misc]
            for side, schema in zip(_SIDES, (self.left, self.right))
        )
        return (*buffers, TIMERS)

    def attach(self, states: KeyedStates) -> AttachedJoin:
        return AttachedJoin(self, states)


class AttachedJoin(AttachedOperator):
    """The rows of a task that may find a partner."""

    def __init__(self, operator: IntervalJoin, states: KeyedStates) -> None:
        self._join = operator.join
        # Seen from the right side, the interval is mirrored.
        self._bounds = (operator.lower_ms, operator.upper_ms), (-operator.upper_ms, -operator.lower_ms)
        self._named = restorer(operator.left), restorer(operator.right)
        self._scope = states.scope
        self._timers = states.required_timers()
        self._buffers = states.map_state("join.left"), states.map_state("join.right")

    def open(self, ctx: Any) -> None:
        self._join.open(ctx)

    def close(self) -> None:
        self._join.close()

    def row_calls(self, inputs: int) -> Sequence[RowCall]:
        return self._process_left, self._process_right

    def timer_call(self) -> RowCall:
        return self._on_timer

    def _process_left(self, row: Any, ctx: Any) -> list[Any] | None:
        return self._process(row, ctx, 0)

    def _process_right(self, row: Any, ctx: Any) -> list[Any] | None:
        return self._process(row, ctx, 1)

    def _process(self, row: Any, ctx: Any, side: int) -> list[Any] | None:
        time = ctx.row_time
        if time is None:
            raise WrongValue(f"The row {row!r} has no event time, which a join by time needs. Leave out such rows.")
        # As in Flink, a row at the watermark itself is not late for a join.
        if time < ctx.timer_service().watermark_ms:
            self.late_rows_dropped += 1
            return None
        own, other = self._buffers[side], self._buffers[1 - side]
        own.put(time, [*(own.get(time) or ()), row])
        lower, upper = self._bounds[side]
        join, named = self._join.pair, self._named[1 - side]
        out: list[Any] = []
        for at, rows in other.items():
            if at > time + upper:
                break  # Entries of a map come in the order of their keys, which are times here.
            if at >= time + lower:
                for partner in rows:
                    pair = (row, named(partner)) if side == 0 else (named(partner), row)
                    out.extend(join(*pair, ctx))
        # As in Flink, a row stays at least until its own time, even if all its partners are earlier.
        scope = self._scope
        self._timers.register(TimeDomain.EVENT_TIME, time + max(upper, 0), scope.key, scope.key_group, _SIDES[side])
        return out

    def _on_timer(self, timestamp: int, ctx: Any) -> None:
        side = 0 if ctx.namespace == "left" else 1
        # What `_process` added is taken off again: all rows of this time go, and each has had the same timer.
        self._buffers[side].remove(timestamp - max(self._bounds[side][1], 0))
