"""What a job declares of joins and deduplication. The operators are in `operators`."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, TypeAlias

from tidegate.api.context import ProcessContext
from tidegate.api.functions import Function
from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.rows import In, In2, K, Row, Typed
from tidegate.api.states import declared_states
from tidegate.api.windowing import check_has_event_time, fires_at_end
from tidegate.core.durations import Duration, argument_ms
from tidegate.core.errors import GraphError
from tidegate.graph.model import Input
from tidegate.operators.deduplicate import Deduplicate
from tidegate.operators.interval_join import IntervalJoin
from tidegate.operators.join_function import Join, JoinByCall, JoinByFunction, PairsOfWindow
from tidegate.operators.window_assigner import WindowAssigner
from tidegate.operators.window_contents import Paired
from tidegate.operators.window_operator import WindowOperator
from tidegate.schema.schema import Schema


class ProcessJoinFunction(Function, Typed, Generic[In, In2, K]):
    """Makes rows of pairs of rows.

    Examples:
        >>> class Difference(tg.ProcessJoinFunction):
        ...     def process_element(self, order, payment, ctx):
        ...         yield order.id, order.amount - payment.paid
        >>> paid = orders.key_by("id").interval_join(
        ...     "open", payments.key_by("order"), lower="0 s", upper="1 h", function=Difference(),
        ...     schema="id bigint, open double",
        ... )
        >>> with tg.testing.harness(paid) as h:
        ...     h.process1((1, "ann", 5.0, T0))
        ...     h.process2((1, 3.0, T0 + timedelta(minutes=5)))
        ...     h.output()
        [Struct(id=1, open=2.0)]
    """

    @abstractmethod
    def process_element(self, left: In, right: In2, ctx: ProcessContext[K] | None, /) -> Iterable[object] | None:
        """Yield or return the rows to emit for a pair.

        Args:
            left: The row of the stream that is joined.
            right: The row of the other stream.
            ctx: The key, the time of the pair, which is the later of the two rows' times, and side outputs. None in a window
                join.
        """


JoinFunction: TypeAlias = ProcessJoinFunction | Callable[[Row, Row], object]


def interval_join(
    left: Input, right: Input, lower: Duration, upper: Duration, function: JoinFunction, schema: Schema
) -> KeyedOperator:
    """Check the arguments of `KeyedStream.interval_join` and create its operator."""
    _check(left, right, function, "interval_join")
    lower_ms = _signed_ms("lower", lower)
    upper_ms = _signed_ms("upper", upper)
    if lower_ms > upper_ms:
        raise GraphError(f"The interval from {lower!r} to {upper!r} is empty. lower must not be more than upper.")
    operator = IntervalJoin(
        lower_ms=lower_ms,
        upper_ms=upper_ms,
        join=_join(function),
        left=left.schema,
        right=right.schema,
    )
    return KeyedOperator(function=operator, states=operator.states(), schema=schema, second=right)


def window_join(
    left: Input, right: Input, assigner: WindowAssigner, function: JoinFunction, schema: Schema
) -> KeyedOperator:
    """Check the arguments of `KeyedStream.window_join` and create its operator."""
    _check(left, right, function, "window_join", event_time=assigner.is_event_time)
    # A join of windows is a window operator that keeps the rows of both sides, and whose function makes the pairs, as in Flink.
    trigger = assigner.get_default_trigger()
    pairs = PairsOfWindow(_join(function))
    operator = WindowOperator(
        assigner=assigner,
        trigger=trigger,
        contents=Paired(left.schema, right.schema),
        emit=pairs.process,
        function=pairs,
        trigger_states=declared_states(trigger.with_state()),
        fires_at_end=fires_at_end(trigger),
    )
    return KeyedOperator(function=operator, states=operator.states(), schema=schema, second=right)


def deduplicate(rows: Input, ttl: Duration | None, uid: str) -> KeyedOperator:
    """Check the arguments of `KeyedStream.deduplicate` and create its operator."""
    operator = Deduplicate(None if ttl is None else argument_ms("ttl", ttl, of=f"deduplicate {uid!r}"))
    return KeyedOperator(function=operator, states=operator.states(), schema=rows.schema)


def _join(function: JoinFunction) -> Join:
    if isinstance(function, ProcessJoinFunction):
        return JoinByFunction(function)
    return JoinByCall(function, function if isinstance(function, Function) else None)


def _check(left: Input, right: Input, function: JoinFunction, what: str, event_time: bool = True) -> None:
    if event_time:
        check_has_event_time(left, what)
        check_has_event_time(right, what)
    if not isinstance(function, ProcessJoinFunction) and not callable(function):
        raise GraphError(f"{what} takes a ProcessJoinFunction or a callable of two rows; got {function!r}.")


_NEGATIVE = re.compile(r"-[0-9]+(\.[0-9]+)?")


def _signed_ms(name: str, duration: Duration) -> int:
    """Parse an argument that may be negative: `"-5 s"`."""
    # Durations are not negative anywhere else, so their parser does not know the sign.
    if isinstance(duration, str) and duration.strip().startswith("-") and duration.strip()[-1].isalpha():
        return -argument_ms(name, duration.strip()[1:])
    if isinstance(duration, str | int | float) and _NEGATIVE.fullmatch(number := str(duration).strip()):
        # `argument_ms` would suggest nothing, since most durations cannot be negative.
        raise GraphError(f"{name}={duration!r} has no unit. Write '{number} s' or '{number} ms'.")
    return argument_ms(name, duration)
