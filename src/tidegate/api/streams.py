"""Streams: rows of one schema between sources and sinks. A method declares an operator and runs nothing.

The kinds of streams are in one module because they lead to each other: `key_by` turns a stream into a keyed stream,
`window` turns that into a windowed one, and `aggregate` turns a windowed one into a stream again. The operators themselves
are in `joins`, `running` and `windowing`, and what they add to the graph in `declared_nodes`; both know nothing about streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, overload

from tidegate.api.declared_nodes import (
    add_async_transform,
    add_combiner,
    add_process,
    add_sink,
    add_transform,
    check_methods,
    kept_event_time,
)
from tidegate.api.functions import (
    Combiner,
    FilterFunction,
    FlatMapFunction,
    KeyedBatchFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    runnable,
)
from tidegate.api.graph_builder import GraphBuilder
from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.mistakes import called_like, check_instance
from tidegate.api.ported_function import PortedFunction
from tidegate.api.rows import Row, Stored
from tidegate.core.durations import Duration
from tidegate.core.errors import GraphError
from tidegate.core.ids import Uid
from tidegate.graph.async_calls import AsyncCalls
from tidegate.graph.model import Input, Node, StreamRef
from tidegate.graph.on_error import ErrorAction, OnError
from tidegate.graph.validate import check_event_time, check_key, check_same_keys, check_union
from tidegate.schema.schema import Schema, as_schema

if TYPE_CHECKING:
    from tidegate.api.aggregates import AggregateFunction, ReduceFunction
    from tidegate.api.async_function import AsyncFunction
    from tidegate.api.evictors import Evictor
    from tidegate.api.joins import ProcessJoinFunction
    from tidegate.api.triggers import Trigger
    from tidegate.api.window_function import WindowFunction
    from tidegate.api.windowing import Windowing
    from tidegate.api.windows import WindowAssigner
    from tidegate.connectors.sink import Sink
    from tidegate.graph.retry import RetryStrategy
    from tidegate.operators.column_aggregates import Aggregate


class Stream:
    """Rows of one schema. A row is a named tuple of its columns."""

    def __init__(
        self, job: GraphBuilder, streams: tuple[StreamRef, ...], schema: Schema, event_time: str | None = None
    ) -> None:
        self._job = job
        self._streams = streams
        self.schema = schema
        self.event_time = event_time
        """The event-time column, if there is one. Operators whose rows also have it keep it."""

    def map(
        self,
        fn: MapFunction | Callable[[Row], object],
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Map each row to one row.

        Args:
            fn: A `MapFunction`, or a callable that takes a row. It returns a tuple in the order of the schema, a dict, or a row.
            schema: The columns of the rows that it returns, as in `"user string, total double"`. By default, those of this
                stream.
            name: What `explain` and metrics call the operator. By default, the name of the function.
            uid: The permanent identity of the operator's state. Only a function with operator state needs it.

        Examples:
            >>> doubled = orders.map(lambda order: (order.user, 2 * order.amount), schema="user string, doubled double")
            >>> with tg.testing.harness(doubled) as h:
            ...     h.process((1, "ann", 5.0, T0))
            ...     h.output()
            [Struct(user='ann', doubled=10.0)]
        """
        return self._transform("map", fn, schema, name, uid)

    def filter(
        self, fn: FilterFunction | Callable[[Row], object], *, name: str | None = None, uid: str | None = None
    ) -> Stream:
        """Keep the rows for which the function is true.

        Args:
            fn: A `FilterFunction`, or a callable that takes a row.
            name: What `explain` and metrics call the operator. By default, the name of the function.
            uid: The permanent identity of the operator's state. Only a function with operator state needs it.

        Examples:
            >>> large = orders.filter(lambda order: order.amount > 100)
            >>> with tg.testing.harness(large) as h:
            ...     h.process((1, "ann", 5.0, T0), (2, "bob", 250.0, T0))
            ...     [order.user for order in h.output()]
            ['bob']
        """
        return self._transform("filter", fn, None, name, uid)

    def flat_map(
        self,
        fn: FlatMapFunction | Callable[[Row], Iterable[object] | None],
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Map each row to any number of rows.

        Args:
            fn: A `FlatMapFunction`, or a callable that takes a row. It yields or returns the rows; None is no row.
            schema: The columns of the rows that it returns. By default, those of this stream.
            name: What `explain` and metrics call the operator. By default, the name of the function.
            uid: The permanent identity of the operator's state. Only a function with operator state needs it.

        Examples:
            >>> words = orders.flat_map(lambda order: [(word,) for word in order.user.split()], schema="word string")
            >>> with tg.testing.harness(words) as h:
            ...     h.process((1, "ann lee", 5.0, T0))
            ...     h.output()
            [Struct(word='ann'), Struct(word='lee')]
        """
        return self._transform("flat_map", fn, schema, name, uid)

    @called_like("async_map('enrich', Enrich(), schema='user string, tier string', timeout='5 s')")
    def async_map(
        self,
        uid: str,
        function: AsyncFunction,
        *,
        schema: str | Schema | None = None,
        timeout: Duration,
        capacity: int = 100,
        ordered: bool = True,
        retry: RetryStrategy | None = None,
        on_error: OnError | str = "fail",
    ) -> Stream:
        """Call an async function for each row.

        All calls of an epoch finish within it. If the epoch is repeated, so are its calls.

        Args:
            uid: The permanent identity of the operator: metrics and dead letters name it.
            function: An instance of a class derived from `AsyncFunction`.
            schema: The columns of the rows that it returns. By default, those of this stream.
            timeout: How long a row may take, over all tries that `retry` allows.
            capacity: The number of calls at a time in each task.
            ordered: Emit results in the order of the rows. With `ordered=False`, they are emitted as calls finish.
            retry: When a failed call is repeated: `FixedDelayRetry` or `ExponentialBackoffDelayRetry`. By default, never.
            on_error: What happens to a row whose call failed or took too long, as for `KeyedStream.process`.

        Examples:
            >>> class Tier(tg.AsyncFunction):
            ...     async def async_invoke(self, order):
            ...         return order.user, "gold" if order.amount > 100 else "plain"
            >>> tiers = orders.async_map("tier", Tier(), schema="user string, tier string", timeout="5 s")
            >>> with tg.testing.harness(tiers) as h:
            ...     h.process((1, "ann", 250.0, T0))
            ...     h.output()
            [Struct(user='ann', tier='gold')]
        """
        out = add_async_transform(
            self._job,
            self._as_input(),
            uid,
            function,
            schema,
            AsyncCalls.of(uid, timeout=timeout, capacity=capacity, ordered=ordered, retry=retry),
            OnError.of(on_error),
        )
        return self._emitted(out)

    def union(self, *others: Stream) -> Stream:
        """Combine the rows of this stream and the others, in no particular order.

        Args:
            others: Streams of the same job, with the same columns as this one.

        Examples:
            >>> large = orders.filter(lambda order: order.amount > 100)
            >>> small = orders.filter(lambda order: order.amount < 1)
            >>> unusual = large.union(small)
            >>> unusual.schema == orders.schema
            True
        """
        for other in others:
            if not isinstance(other, Stream):
                raise GraphError(f"union takes streams; got {other!r}.")
            if other._job is not self._job:
                raise GraphError("Streams of two jobs cannot be united. Declare both sources in one job.")
        check_union([(stream._shown(), stream.schema) for stream in (self, *others)])
        same = all(other.event_time == self.event_time for other in others)
        streams = sum((other._streams for other in others), self._streams)
        return Stream(self._job, streams, self.schema, self.event_time if same else None)

    def assign_timestamps(self, column: str) -> Stream:
        """Use another column as the event time of the rows. The watermark is still derived from the sources.

        Args:
            column: A timestamp column of this stream.

        Examples:
            >>> late = orders.map(lambda order: order).assign_timestamps("ts")
            >>> late.event_time
            'ts'
        """
        check_event_time(column, self.schema)
        return Stream(self._job, self._streams, self.schema, column)

    def key_by(self, *columns: str) -> KeyedStream:
        """Group the rows by the value of the columns. Required for anything with keyed state.

        Args:
            columns: The names of one or more columns. Rows with equal values in all of them share state.

        Examples:
            >>> orders.key_by("user").key
            ('user',)
        """
        check_key(columns, self.schema)
        return KeyedStream(self._job, Input(self._streams, self.schema, columns, self.event_time))

    def broadcast(self, *descriptors: object) -> BroadcastStream:
        """Send every row to every task, for `KeyedStream.connect`.

        Args:
            descriptors: Only for a function of `tidegate.flink`: the descriptors of its broadcast state. Other functions declare
                that state on their class.

        Examples:
            >>> keyed = orders.key_by("user").connect(limits.broadcast())
        """
        return BroadcastStream(
            self._job,
            Input(streams=self._streams, schema=self.schema, key=(), event_time=self.event_time, broadcast=True),
            descriptors,
        )

    def side_output(self, tag: str) -> Stream:
        """Return a side output of the operator that produces this stream.

        Args:
            tag: The tag under which the operator declares it, as in `side_outputs={"late": "user string"}`.

        Examples:
            >>> totals = orders.key_by("user").process(
            ...     "totals", Totals(), schema="user string, total double", side_outputs={"late": "user string"}
            ... )
            >>> totals.side_output("late").schema.ddl()
            'user string'
        """
        if len(self._streams) != 1:
            raise GraphError(f"A union has no side output {tag!r}. Ask the stream of the operator that declares it.")
        return self._emitted(StreamRef(self._streams[0].node, tag))

    @called_like("sink('totals-out', PrintSink())")
    def sink(self, uid: str, target: Sink) -> None:
        """Write the rows to a target.

        Args:
            uid: The permanent identity of the sink: by it, a restarted job knows what it has already written.
            target: A sink, such as `FileSink("out/")` or `KafkaSink(servers, topic)`; see `Sink` for one of your own.

        Examples:
            >>> orders.sink("out", tg.FileSink("out/", format="json"))
        """
        add_sink(self._job, self._as_input(), uid, target)

    def _transform(
        self, kind: str, fn: object, schema: str | Schema | None, name: str | None, uid: str | None
    ) -> Stream:
        return self._emitted(add_transform(self._job, self._as_input(), kind, fn, schema, name, uid))

    def _as_input(self) -> Input:
        return Input(self._streams, self.schema)

    def _emitted(self, out: StreamRef) -> Stream:
        """Return the stream of what an operator over these rows emits."""
        schema = self._job.draft().schema(out)
        return Stream(self._job, (out,), schema, kept_event_time(self.event_time, schema))

    def node(self) -> Node:
        """Return the operator that produces these rows."""
        if len(self._streams) != 1:
            raise GraphError("A union is made by several operators. Ask one of the streams that it unites.")
        return self._job.draft().node(self._streams[0].node)

    def renamed_uids(self) -> Mapping[Uid, tuple[str, ...]]:
        """Return the renamed uids of the job, with those that they had before."""
        return self._job.draft().renamed_uids

    def _shown(self) -> str:
        graph = self._job.draft()
        return " ∪ ".join(str(graph.node(stream.node)) for stream in self._streams)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if not name.startswith("_") and hasattr(KeyedStream, name):
                raise AttributeError(
                    f"{name} needs rows that are brought together by a key. Write stream.key_by('column').{name}(…); the "
                    f"columns are {', '.join(self.schema.names)}."
                )
            raise AttributeError(f"A Stream has no {name!r}.")

    def __repr__(self) -> str:
        return f"<Stream of {self._shown()}: {self.schema}>"


class KeyedStream:
    """Rows grouped by key. Only here can an operator have keyed state."""

    def __init__(self, job: GraphBuilder, input: Input) -> None:
        self._job = job
        self._input = input

    @property
    def key(self) -> tuple[str, ...]:
        return self._input.key

    @called_like("process('totals', Totals(), schema='user string, total double')")
    def process(
        self,
        uid: str,
        function: KeyedProcessFunction | KeyedBatchFunction | PortedFunction,
        *,
        schema: str | Schema,
        side_outputs: Mapping[str, str | Schema] | None = None,
        on_error: OnError | str = "fail",
    ) -> Stream:
        """Run a stateful function over the rows, one by one or in batches.

        Args:
            uid: The permanent identity of the function's state and timers. Do not change it while the job has checkpoints.
            function: An instance of a class derived from `KeyedProcessFunction` or `KeyedBatchFunction`.
            schema: The columns of the rows that it yields, as in `"user string, total double"`.
            side_outputs: Tags, and the columns of the rows that the function sends there with `ctx.output(tag, row)`.
            on_error: What happens to a row on which the function raises: `"fail"` the job, `"skip"` the row, or send it to the
                side output `"dead-letter"`; `dead_letter` gives that output another tag. State changes and output of a row that
                is skipped or sent away are rolled back.

        Examples:
            >>> class Totals(tg.KeyedProcessFunction):
            ...     total = tg.ValueState(float, default=0.0)
            ...
            ...     def process_element(self, order, ctx):
            ...         self.total.update(self.total.value() + order.amount)
            ...         yield order.user, self.total.value()
            >>> totals = orders.key_by("user").process("totals", Totals(), schema="user string, total double")
            >>> with tg.testing.harness(totals) as h:
            ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
            ...     h.output()
            [Struct(user='ann', total=5.0), Struct(user='ann', total=12.0)]
        """
        check_instance(f"process {uid!r}", function)
        if not isinstance(function, KeyedBatchFunction | PortedFunction):
            derive = "Derive a class from KeyedProcessFunction or KeyedBatchFunction and pass an instance."
            check_methods(function, ("process_element",), derive)
        called, states = runnable(function)
        operator = KeyedOperator(
            function=called,
            states=states,
            schema=as_schema(schema),
            side_outputs=side_outputs,
            on_error=OnError.of(on_error),
            batches=isinstance(function, KeyedBatchFunction),
        )
        if not Combiner.is_wanted(function):
            return self._operate(uid, operator)
        if operator.on_error.action is not ErrorAction.FAIL:
            raise GraphError(
                f"process {uid!r}: on_error skips rows on which process_batch fails, but {type(function).__name__}.combine sees "
                "them first, and cannot skip any. Leave out combine, or on_error."
            )
        combined = KeyedStream(self._job, add_combiner(self._job, self._input, uid, function))
        return combined._operate(uid, operator)

    def _operate(self, uid: str, operator: KeyedOperator) -> Stream:
        """Add an operator of any kind: what the methods of keyed, windowed and connected streams declare."""
        out = add_process(self._job, self._input, uid, operator)
        return Stream(self._job, (out,), operator.schema, kept_event_time(self._input.event_time, operator.schema))

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Group the rows of each key in windows.

        Args:
            assigner: The kind of windows, such as `TumblingEventTimeWindows.of("1 min")`.

        Examples:
            >>> windowed = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
            >>> windowed.aggregate("per-minute", n=tg.count()).schema.ddl()
            'user string, window_start timestamp, window_end timestamp, n bigint'
        """
        return WindowedStream(self, assigner)

    @overload
    def connect(self, other: KeyedStream) -> ConnectedStreams: ...
    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(self, other: KeyedStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect this stream with another, for a function that processes the rows of both.

        Args:
            other: A stream that is keyed by columns of the same types, for a function that shares state between both; or a
                broadcast one, for a function that reads on one side what the other side sent to every task.

        Examples:
            >>> both = orders.key_by("id").connect(payments.key_by("order"))
            >>> ruled = orders.key_by("user").connect(limits.broadcast())
        """
        if isinstance(other, BroadcastStream):
            if other._job is not self._job:
                raise GraphError("Streams of two jobs cannot be connected. Declare both sources in one job.")
            return BroadcastConnectedStream(self, other)
        return ConnectedStreams(self, other)

    def interval_join(
        self,
        uid: str,
        other: KeyedStream,
        *,
        lower: Duration,
        upper: Duration,
        function: ProcessJoinFunction | Callable[[Row, Row], object],
        schema: str | Schema,
    ) -> Stream:
        """Join rows of one key whose event times are close. Rows later than the watermark are dropped.

        Args:
            uid: The permanent identity of the join's state.
            other: The other stream, keyed by columns of the same types.
            lower: The least difference between the event time of the other row and that of this one. It may be negative.
            upper: The greatest difference.
            function: A callable that takes a row of each stream, and returns one row or None; or a `ProcessJoinFunction`, which
                returns any number of rows.
            schema: The columns of the rows that it returns.

        Examples:
            >>> paid = orders.key_by("id").interval_join(
            ...     "paid", payments.key_by("order"), lower="0 s", upper="1 h",
            ...     function=lambda order, payment: (order.id, payment.paid), schema="id bigint, paid double",
            ... )
            >>> with tg.testing.harness(paid) as h:
            ...     h.process1((1, "ann", 5.0, T0))
            ...     h.process2((1, 5.0, T0 + timedelta(minutes=10)))
            ...     h.output()
            [Struct(id=1, paid=5.0)]
        """
        from tidegate.api.joins import interval_join  # Late, for a quick start.

        rows = as_schema(schema)
        check_connected(self, other)
        return self._operate(uid, interval_join(self._input, other._input, lower, upper, function, rows))

    def window_join(
        self,
        uid: str,
        other: KeyedStream,
        assigner: WindowAssigner,
        *,
        function: ProcessJoinFunction | Callable[[Row, Row], object],
        schema: str | Schema,
    ) -> Stream:
        """Join rows of one key that are in the same window. Pairs are emitted when the window ends.

        Args:
            uid: The permanent identity of the join's state.
            other: The other stream, keyed by columns of the same types.
            assigner: The kind of windows, such as `TumblingEventTimeWindows.of("1 min")`.
            function: A callable that takes a row of each stream, and returns one row or None; or a `ProcessJoinFunction`, which
                returns any number of rows.
            schema: The columns of the rows that it returns.

        Examples:
            >>> paid = orders.key_by("id").window_join(
            ...     "paid", payments.key_by("order"), tg.TumblingEventTimeWindows.of("1 h"),
            ...     function=lambda order, payment: (order.id, payment.paid), schema="id bigint, paid double",
            ... )
        """
        from tidegate.api.joins import window_join  # Late, for a quick start.

        rows = as_schema(schema)
        check_connected(self, other)
        return self._operate(uid, window_join(self._input, other._input, assigner, function, rows))

    def deduplicate(self, uid: str, *, ttl: Duration | None = None) -> Stream:
        """Keep the first row of each key.

        Args:
            uid: The permanent identity of the state: the keys seen so far.
            ttl: Forget a key after this long, in processing time after its first row. By default, never.

        Examples:
            >>> once = orders.key_by("id").deduplicate("once", ttl="1 day")
            >>> with tg.testing.harness(once) as h:
            ...     h.process((1, "ann", 5.0, T0), (1, "ann", 5.0, T0))
            ...     len(h.output())
            1
        """
        from tidegate.api.joins import deduplicate  # Late, for a quick start.

        return self._operate(uid, deduplicate(self._input, ttl, uid))

    def aggregate(self, uid: str, **columns: Aggregate) -> Stream:
        """Compute built-in aggregates of all rows of each key so far.

        Every epoch emits one row for each key that it touched: the key's columns, and one for each aggregate.

        Args:
            uid: The permanent identity of the aggregates' state.
            columns: Names of result columns, and what they contain: `count`, `sum`, `min`, `max`, `mean` or `approx_distinct`.

        Examples:
            >>> latest = orders.key_by("user").aggregate("latest", n=tg.count(), last=tg.max("ts"))
            >>> latest.schema.ddl()
            'user string, n bigint, last timestamp'
        """
        from tidegate.api.running import running_aggregate  # Late, for a quick start.

        return self._operate(uid, running_aggregate(self._input, columns))

    def map_with_state(
        self,
        uid: str,
        function: Callable[[Row, Stored], tuple[object, object]],
        *,
        state: object,
        schema: str | Schema,
        on_error: OnError | str = "fail",
    ) -> Stream:
        """Map each row to one row, with one value of state for each key.

        Args:
            uid: The permanent identity of the state.
            function: A callable that takes a row and the state of its key, None at first. It returns what to emit, a value or a
                row, and the state to keep, None for nothing.
            state: The type of the state, such as `float` or a dataclass.
            schema: The columns of the rows that are emitted.
            on_error: What happens to a row on which the function raises, as for `process`.

        Examples:
            >>> change = orders.key_by("user").map_with_state(
            ...     "change", lambda order, last: ((order.user, order.amount - (last or 0)), order.amount),
            ...     state=float, schema="user string, change double",
            ... )
            >>> with tg.testing.harness(change) as h:
            ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
            ...     h.output()
            [Struct(user='ann', change=5.0), Struct(user='ann', change=2.0)]
        """
        from tidegate.api.running import map_with_state  # Late, for a quick start.

        return self._operate(uid, map_with_state(function, state, schema, on_error))

    @property
    def input(self) -> Input:
        return self._input

    def __repr__(self) -> str:
        return f"<KeyedStream by {', '.join(self.key)}: {self._input.schema}>"


class BroadcastStream:
    """Rows that every task receives. Created by `stream.broadcast()`, for `connect`."""

    def __init__(self, job: GraphBuilder, input: Input, descriptors: Sequence[object] = ()) -> None:
        self._job = job
        self._input = input
        self.descriptors = descriptors

    def __repr__(self) -> str:
        return f"<BroadcastStream: {self._input.schema}>"


class BroadcastConnectedStream:
    """A keyed stream and a broadcast one. There is no order between the rows of the two."""

    def __init__(self, keyed: KeyedStream, broadcast: BroadcastStream) -> None:
        self._keyed = keyed
        self._broadcast = broadcast

    @called_like("process('rated', Rated(), schema='user string, rate double')")
    def process(
        self,
        uid: str,
        function: KeyedBroadcastProcessFunction,
        *,
        schema: str | Schema,
        side_outputs: Mapping[str, str | Schema] | None = None,
        on_error: OnError | str = "fail",
    ) -> Stream:
        """Run a function over both streams.

        Args:
            uid: The permanent identity of the function's state and timers.
            function: An instance of a class derived from `KeyedBroadcastProcessFunction`.
            schema: The columns of the rows that it yields.
            side_outputs: Tags, and the columns of the rows that the function sends there with `ctx.output(tag, row)`.
            on_error: What happens to a row on which the function raises, as for `KeyedStream.process`.

        Examples:
            >>> class Alerts(tg.KeyedBroadcastProcessFunction):
            ...     limits = tg.BroadcastState(str, float)
            ...
            ...     def process_element(self, order, ctx):
            ...         if order.amount > (self.limits.get(order.user) or 100.0):
            ...             yield order.user, order.amount
            ...
            ...     def process_broadcast_element(self, limit, ctx):
            ...         self.limits.put(limit.user, limit.most)
            >>> alerts = orders.key_by("user").connect(limits.broadcast())
            >>> alerts = alerts.process("alerts", Alerts(), schema="user string, amount double")
            >>> with tg.testing.harness(alerts) as h:
            ...     h.process_broadcast(("ann", 10.0))
            ...     h.process((1, "ann", 50.0, T0), (2, "bob", 50.0, T0))
            ...     h.output()
            [Struct(user='ann', amount=50.0)]
        """
        check_instance(f"process {uid!r}", function)
        check_methods(
            function,
            ("process_element", "process_broadcast_element"),
            "Derive a class from KeyedBroadcastProcessFunction and pass an instance.",
        )
        called, states = runnable(function, self._broadcast.descriptors)
        return self._keyed._operate(
            uid,
            KeyedOperator(
                function=called,
                states=states,
                schema=as_schema(schema),
                side_outputs=side_outputs,
                broadcast=self._broadcast._input,
                on_error=OnError.of(on_error),
            ),
        )


class ConnectedStreams:
    """Created by `first.key_by(…).connect(second.key_by(…))`. Rows of a key meet in one task, with no order between the two."""

    def __init__(self, first: KeyedStream, second: KeyedStream) -> None:
        check_connected(first, second)
        self._first = first
        self._second = second

    @called_like("process('matched', Match(), schema='order string, payment string')")
    def process(
        self,
        uid: str,
        function: KeyedCoProcessFunction,
        *,
        schema: str | Schema,
        side_outputs: Mapping[str, str | Schema] | None = None,
        on_error: OnError | str = "fail",
    ) -> Stream:
        """Run a function over the rows of both streams. State and timers belong to the key, whichever stream a row came from.

        Args:
            uid: The permanent identity of the function's state and timers.
            function: An instance of a class derived from `KeyedCoProcessFunction`.
            schema: The columns of the rows that it yields.
            side_outputs: Tags, and the columns of the rows that the function sends there with `ctx.output(tag, row)`.
            on_error: What happens to a row on which the function raises, as for `KeyedStream.process`.

        Examples:
            >>> class Matched(tg.KeyedCoProcessFunction):
            ...     user = tg.ValueState(str)
            ...
            ...     def process_element1(self, order, ctx):
            ...         self.user.update(order.user)
            ...
            ...     def process_element2(self, payment, ctx):
            ...         yield self.user.value(), payment.paid
            >>> both = orders.key_by("id").connect(payments.key_by("order"))
            >>> matched = both.process("matched", Matched(), schema="user string, paid double")
            >>> with tg.testing.harness(matched) as h:
            ...     h.process1((1, "ann", 5.0, T0))
            ...     h.process2((1, 5.0, T0))
            ...     h.output()
            [Struct(user='ann', paid=5.0)]
        """
        check_instance(f"process {uid!r}", function)
        check_methods(function, ("process_element1", "process_element2"), "Derive a class from KeyedCoProcessFunction.")
        called, states = runnable(function)
        return self._first._operate(
            uid,
            KeyedOperator(
                function=called,
                states=states,
                schema=as_schema(schema),
                side_outputs=side_outputs,
                second=self._second.input,
                on_error=OnError.of(on_error),
            ),
        )


class WindowedStream:
    """Rows of keys in windows, to be processed by a window function. Created by `key_by(…).window(assigner)`."""

    def __init__(self, keyed: KeyedStream, assigner: WindowAssigner) -> None:
        from tidegate.api.windowing import Windowing  # Late, for a quick start.

        self._keyed = keyed
        self._windowing = Windowing.of(keyed.input, assigner)

    def on_error(self, choice: OnError | str) -> Self:
        """Choose what happens to a row, or to a window that fires, on which a function raises. A window whose function raised is
        discarded with its contents.

        Args:
            choice: `"fail"`, `"skip"`, `"dead-letter"` or `dead_letter(tag)`, as for `KeyedStream.process`.
        """
        return self._with(replace(self._windowing, on_error=OnError.of(choice)))

    def trigger(self, trigger: Trigger) -> Self:
        """Choose when windows fire.

        Args:
            trigger: A trigger, such as `CountTrigger.of(100)`, that replaces the assigner's default one.

        Examples:
            >>> windowed = orders.key_by("user").window(tg.GlobalWindows.create())
            >>> windowed = windowed.trigger(tg.PurgingTrigger.of(tg.CountTrigger.of(100)))
        """
        return self._with(self._windowing.with_trigger(trigger))

    def evictor(self, evictor: Evictor) -> Self:
        """Choose which rows are evaluated when a window fires. The window then keeps all its rows.

        Args:
            evictor: An evictor, such as `CountEvictor.of(10)`.
        """
        return self._with(replace(self._windowing, evictor=evictor))

    def allowed_lateness(self, lateness: Duration) -> Self:
        """Keep a window after the watermark has passed its end. A row that arrives in that time fires it again.

        Args:
            lateness: For how long, as in `"10 s"`.
        """
        return self._with(self._windowing.with_lateness(lateness))

    def side_output_late_data(self, tag: str) -> Self:
        """Send rows that are too late for all their windows to a side output. By default, they are dropped.

        Args:
            tag: The tag of the side output, which `stream.side_output(tag)` returns.

        Examples:
            >>> windowed = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min")).side_output_late_data("late")
            >>> late = windowed.aggregate("per-minute", n=tg.count()).side_output("late")
        """
        return self._with(replace(self._windowing, late_tag=tag))

    def reduce(
        self,
        uid: str,
        function: ReduceFunction | Callable[[Row, Row], Row],
        window_function: WindowFunction | None = None,
        *,
        schema: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None,
    ) -> Stream:
        """Combine the rows of a window pairwise into one, as they arrive.

        Args:
            uid: The permanent identity of the windows' state.
            function: A `ReduceFunction`, or a callable that takes two rows and returns one with the same columns.
            window_function: Optional: a `ProcessWindowFunction` that turns the result of a window into the rows to emit, and
                knows the key and the window.
            schema: The columns of what `window_function` emits. By default, those of this stream.
            side_outputs: Tags, and the columns of the rows that `window_function` sends there.

        Examples:
            >>> windowed = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
            >>> largest = windowed.reduce("largest", lambda one, other: one if one.amount > other.amount else other)
            >>> with tg.testing.harness(largest) as h:
            ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
            ...     h.advance_watermark(T0 + timedelta(minutes=1))
            ...     [order.amount for order in h.output()]
            [7.0]
        """
        return self._keyed._operate(uid, self._windowing.reduce(function, window_function, schema, side_outputs))

    def aggregate(
        self,
        uid: str,
        function: AggregateFunction | None = None,
        window_function: WindowFunction | None = None,
        *,
        accumulator: object = None,
        schema: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None,
        **columns: Aggregate,
    ) -> Stream:
        """Combine the rows of a window into one value, as they arrive: with built-in aggregates, or with a function.

        With built-in aggregates, rows have the columns of the key, `window_start`, `window_end` and one for each aggregate.

        Args:
            uid: The permanent identity of the windows' state.
            function: An `AggregateFunction`, if none of the built-in aggregates fits.
            window_function: Optional, with `function`: turns the result of a window into the rows to emit.
            accumulator: With `function`: the type of its accumulator, such as `tuple[float, int]`.
            schema: With `function`: the columns of the rows that are emitted.
            side_outputs: Tags, and the columns of the rows that `window_function` sends there.
            columns: Without `function`: names of result columns, and what they contain, such as `count()`.

        Examples:
            >>> windowed = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
            >>> spent = windowed.aggregate("per-minute", n=tg.count(), spent=tg.sum("amount"))
            >>> with tg.testing.harness(spent) as h:
            ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
            ...     h.advance_watermark(T0 + timedelta(minutes=1))
            ...     [(row.user, row.n, row.spent) for row in h.output()]
            [('ann', 2, 12.0)]
        """
        if (function is None) == (not columns):
            raise GraphError(
                "aggregate takes a function, or built-in aggregates such as n=tidegate.count(). Give one kind."
            )
        if function is not None:
            made = self._windowing.aggregate(function, window_function, accumulator, schema, side_outputs)
        elif window_function is not None or schema is not None or accumulator is not None:
            raise GraphError("Built-in aggregates have a schema of their own. Leave out all but their columns.")
        else:
            made = self._windowing.aggregate_columns(columns, side_outputs)
        return self._keyed._operate(uid, made)

    def process(
        self,
        uid: str,
        function: WindowFunction,
        *,
        schema: str | Schema,
        side_outputs: Mapping[str, str | Schema] | None = None,
    ) -> Stream:
        """Pass all rows of a window to a function when it fires. They are stored one by one until then.

        Args:
            uid: The permanent identity of the windows' state.
            function: An instance of a class derived from `ProcessWindowFunction`.
            schema: The columns of the rows that it yields.
            side_outputs: Tags, and the columns of the rows that it sends there with `ctx.output(tag, row)`.

        Examples:
            >>> class Longest(tg.ProcessWindowFunction):
            ...     def process(self, key, context, elements):
            ...         yield key, max(order.amount for order in elements)
            >>> windowed = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
            >>> longest = windowed.process("longest", Longest(), schema="user string, amount double")
            >>> with tg.testing.harness(longest) as h:
            ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
            ...     h.advance_watermark(T0 + timedelta(minutes=1))
            ...     h.output()
            [Struct(user='ann', amount=7.0)]
        """
        return self._keyed._operate(uid, self._windowing.process(function, schema, side_outputs))

    def _with(self, windowing: Windowing) -> Self:
        other = copy(self)
        other._windowing = windowing
        return other


def check_connected(first: KeyedStream, second: KeyedStream) -> None:
    if not isinstance(second, KeyedStream):
        raise GraphError(f"A keyed stream is connected to a keyed stream; got {second!r}. Add key_by(…).")
    if first._job is not second._job:
        raise GraphError("Streams of two jobs cannot meet. Declare both sources in one job.")
    check_same_keys((first.input, second.input))
