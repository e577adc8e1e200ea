"""Streams: rows of one schema between sources and sinks. A method declares an operator and runs nothing.

The kinds of streams are in one module because they lead to each other: `key_by` turns a stream into a keyed stream,
`window` turns that into a windowed one, and `aggregate` turns a windowed one into a stream again. The operators themselves
are in `joins`, `running` and `windowing`, which know nothing about streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, overload

from tidegate.api.functions import (
    Combiner,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBatchFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    MapFunction,
    operator_states_of,
    runnable,
    states_of,
)
from tidegate.api.graph_builder import GraphBuilder
from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.mistakes import called_like, check_instance
from tidegate.api.ported_function import PortedFunction
from tidegate.api.rows import Row, Stored
from tidegate.core.durations import Duration, argument_ms
from tidegate.core.errors import GraphError
from tidegate.core.ids import Uid
from tidegate.graph.async_calls import AsyncCalls
from tidegate.graph.model import Input, Node, NodeId, Process, SinkNode, StreamRef, Transform
from tidegate.graph.on_error import ErrorAction, OnError
from tidegate.graph.renamed import Uid as RenamedUid
from tidegate.graph.schema import Schema, as_schema
from tidegate.graph.validate import (
    ASYNC,
    COMBINE,
    EVENT_TIME_KINDS,
    check_event_time,
    check_key,
    check_name,
    check_same_keys,
    check_union,
)

if TYPE_CHECKING:
    from tidegate.api.aggregates import Aggregate, AggregateFunction, ReduceFunction
    from tidegate.api.async_function import AsyncFunction
    from tidegate.api.evictors import Evictor
    from tidegate.api.joins import ProcessJoinFunction
    from tidegate.api.triggers import Trigger
    from tidegate.api.window_function import WindowFunction
    from tidegate.api.windowing import Windowing
    from tidegate.api.windows import WindowAssigner
    from tidegate.connectors.sink import Sink
    from tidegate.graph.retry import RetryStrategy

_BASES: dict[str, type[Function]] = {"map": MapFunction, "filter": FilterFunction, "flat_map": FlatMapFunction}


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
        """Map each row to one row. Without `schema`, the columns stay as they are. A function with operator state needs a
        `uid` that the state belongs to; so do those of `filter` and `flat_map`.
        """
        return self._transform("map", fn, schema, name, uid)

    def filter(
        self, fn: FilterFunction | Callable[[Row], object], *, name: str | None = None, uid: str | None = None
    ) -> Stream:
        """Keep the rows for which the function is true."""
        return self._transform("filter", fn, None, name, uid)

    def flat_map(
        self,
        fn: FlatMapFunction | Callable[[Row], Iterable[object] | None],
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
        uid: str | None = None,
    ) -> Stream:
        """Map each row to any number of rows. Without `schema`, the columns stay as they are."""
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
        """Call an async function for each row, with at most `capacity` calls at a time in each task. Without `schema`, the
        columns stay as they are.

        All calls of an epoch finish within it. Results are emitted in the order of the rows or, with `ordered=False`, as
        calls finish. `timeout` is for each row, over all tries that `retry` allows. `on_error` determines what happens to a row
        whose call failed or took too long, as for `KeyedStream.process`. If the epoch is repeated, so are its calls.
        """
        from tidegate.api.async_function import check_async_function  # Late, for a quick start.

        nodes = self._job.draft().nodes
        checked = self._job.new_uid(uid, f"async_map {uid!r}")
        check_async_function(uid, function)
        failing = OnError.of(on_error)
        out = self.schema if schema is None else as_schema(schema)
        self._job.add(
            Transform(
                id=NodeId(len(nodes)),
                kind=ASYNC,
                function=function,
                input=Input(self._streams, self.schema),
                schema=out,
                name=str(checked),
                uid=checked,
                side_outputs=failing.side_outputs,
                on_error=failing,
                calls=AsyncCalls.of(uid, timeout=timeout, capacity=capacity, ordered=ordered, retry=retry),
            )
        )
        return Stream(self._job, (StreamRef(NodeId(len(nodes))),), out, kept_event_time(self.event_time, out))

    def union(self, *others: Stream) -> Stream:
        """Combine the rows of this stream and the others, in no particular order. All have the same columns."""
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
        """Use another column as the event time of the rows. The watermark is still derived from the sources."""
        check_event_time(column, self.schema)
        return Stream(self._job, self._streams, self.schema, column)

    def key_by(self, *columns: str) -> KeyedStream:
        """Group the rows by the value of the columns. Required for anything with keyed state."""
        check_key(columns, self.schema)
        return KeyedStream(self._job, Input(self._streams, self.schema, columns, self.event_time))

    def broadcast(self, *descriptors: object) -> BroadcastStream:
        """Send every row to every task: `keyed.connect(rules.broadcast()).process(…)`. A function of `tidegate.flink` needs the
        descriptors of its broadcast state here.
        """
        return BroadcastStream(
            self._job,
            Input(streams=self._streams, schema=self.schema, key=(), event_time=self.event_time, broadcast=True),
            descriptors,
        )

    def side_output(self, tag: str) -> Stream:
        """Return a side output of the operator that produces this stream."""
        if len(self._streams) != 1:
            raise GraphError(f"A union has no side output {tag!r}. Ask the stream of the operator that declares it.")
        stream = StreamRef(self._streams[0].node, tag)
        schema = self._job.draft().schema(stream)
        return Stream(self._job, (stream,), schema, kept_event_time(self.event_time, schema))

    @called_like("sink('totals-out', PrintSink())")
    def sink(self, uid: str, target: Sink) -> None:
        """End the stream in a target, under a uid that identifies its output permanently."""
        nodes = self._job.draft().nodes
        if isinstance(uid, RenamedUid):
            raise GraphError(
                f"sink {str(uid)!r} cannot take over the output of {uid.renamed_from[0]!r}: the target knows what it has by the "
                "uid of the sink. Keep the old uid. Or stop the job with a savepoint, which commits its output, and then use "
                "the new uid without renamed_from."
            )
        checked = self._job.new_uid(uid, f"sink {uid!r}")
        if isinstance(target, type) or not callable(getattr(target, "create_writer", None)):
            if isinstance(target, type):
                raise GraphError(
                    f"sink {uid!r} takes an instance, not the class {target.__name__}. Write {target.__name__}(…)."
                )
            raise GraphError(
                f"sink {uid!r} cannot write to {target!r:.200}, which has no create_writer. Use, for example, PrintSink()."
            )
        self._job.add(SinkNode(NodeId(len(nodes)), checked, target, Input(self._streams, self.schema)))

    def _transform(
        self, kind: str, fn: object, schema: str | Schema | None, name: str | None, uid: str | None
    ) -> Stream:
        base = _BASES[kind]
        if isinstance(fn, type) and issubclass(fn, Function):
            raise GraphError(f"{kind} takes a function object, not the class {fn.__name__}. Pass {fn.__name__}().")
        if isinstance(fn, Function) and not isinstance(fn, base):
            raise GraphError(f"{kind} takes a {base.__name__} or a callable; {type(fn).__name__} is neither.")
        if not isinstance(fn, base) and not callable(fn):
            raise GraphError(f"{kind} takes a {base.__name__} or a callable; got {fn!r}.")
        states = operator_states_of(fn) if isinstance(fn, Function) else ()
        ported = fn.transform() if isinstance(fn, PortedFunction) else fn
        if any(state.keyed for state in states):
            raise GraphError(
                f"{type(fn).__name__} declares keyed state, but {kind} has no key. Use key_by(…).process(uid, …), or "
                "declare it with operator=True for a list of each task."
            )
        if states and uid is None:
            raise GraphError(
                f"{type(fn).__name__} declares operator state, which needs a uid to belong to: {kind}(…, uid='…')."
            )
        nodes = self._job.draft().nodes
        checked = None if uid is None else self._job.new_uid(uid, f"{kind} {uid!r}")
        shown = check_name(name, "name") if name is not None else _name_of(fn, kind)
        out = self.schema if schema is None else as_schema(schema)
        input = Input(self._streams, self.schema)
        self._job.add(
            Transform(
                id=NodeId(len(nodes)),
                kind=kind,
                function=ported,
                input=input,
                schema=out,
                name=shown,
                uid=checked,
                states=states,
            )
        )
        return Stream(self._job, (StreamRef(NodeId(len(nodes))),), out, kept_event_time(self.event_time, out))

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
        """Run a stateful function over the rows, one by one or in batches. Its state permanently belongs to `uid`.

        `schema` is that of the rows it yields; `side_outputs` maps tags to the schemas of rows sent with
        `ctx.output`. `on_error` determines what happens to a row on which the function raises: `"fail"` the job,
        `"skip"` the row, or send it to the side output `"dead-letter"`; see `dead_letter` for another tag. State
        changes and output of such a row are rolled back.
        """
        check_instance(f"process {uid!r}", function)
        if not isinstance(function, KeyedBatchFunction | PortedFunction):
            derive = "Derive a class from KeyedProcessFunction or KeyedBatchFunction and pass an instance."
            _check_methods(function, ("process_element",), derive)
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
            return self.operate(uid, operator)
        if operator.on_error.action is not ErrorAction.FAIL:
            raise GraphError(
                f"process {uid!r}: on_error skips rows on which process_batch fails, but {type(function).__name__}.combine sees "
                "them first, and cannot skip any. Leave out combine, or on_error."
            )
        return self._combined(uid, function).operate(uid, operator)

    def _combined(self, uid: str, function: KeyedBatchFunction) -> KeyedStream:
        """The rows that `function.combine` makes before the shuffle."""
        read, partial = self._input, combined_schema(uid, function, self._input)
        nodes = self._job.draft().nodes
        self._job.new_uid(uid, f"process {uid!r}")
        id = NodeId(len(nodes))
        self._job.add(
            Transform(
                id=id,
                kind=COMBINE,
                function=Combiner(function, read.key),
                input=Input(read.streams, read.schema),
                schema=partial,
                name=f"combine {uid}",
            )
        )
        event_time = kept_event_time(read.event_time, partial)
        return KeyedStream(self._job, Input((StreamRef(id),), partial, read.key, event_time))

    def operate(self, uid: str, operator: KeyedOperator) -> Stream:
        """Add an operator of any kind; for the methods of keyed, windowed and connected streams."""
        nodes = self._job.draft().nodes
        checked = self._job.new_uid(uid, f"process {uid!r}")
        declared = (operator.side_outputs or {}).items()
        sides = tuple((check_name(tag, "side output tag"), as_schema(ddl)) for tag, ddl in declared)
        id = NodeId(len(nodes))
        for tag, ddl in operator.on_error.side_outputs:
            sides = (*sides, (check_name(tag, "side output tag"), ddl))
        made = Process(
            id=id,
            uid=checked,
            function=operator.function,
            input=self._input,
            schema=operator.schema,
            states=operator.states,
            side_outputs=sides,
            second=operator.second,
            broadcast=operator.broadcast,
            on_error=operator.on_error,
            combine=operator.combine,
            batches=operator.batches,
        )
        self._job.add(made)
        event_time = kept_event_time(self._input.event_time, operator.schema)
        return Stream(self._job, (StreamRef(id),), operator.schema, event_time)

    def window(self, assigner: WindowAssigner) -> WindowedStream:
        """Group the rows of each key in windows: `key_by("page").window(TumblingEventTimeWindows.of("1 min"))`."""
        return WindowedStream(self, assigner)

    @overload
    def connect(self, other: KeyedStream) -> ConnectedStreams: ...
    @overload
    def connect(self, other: BroadcastStream) -> BroadcastConnectedStream: ...
    def connect(self, other: KeyedStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Connect this stream with another: one keyed by columns of the same types, for a function that shares state
        between both, or a broadcast one, for a function that reads on one side what the other side sent to every task.
        """
        if isinstance(other, BroadcastStream):
            if other._job is not self._job:
                raise GraphError("Streams of two jobs cannot be connected. Declare both sources in one job.")
            return BroadcastConnectedStream(self, other)
        return ConnectedStreams(self, other)

    def interval_join(
        self, uid: str, other: KeyedStream, *, lower: Duration, upper: Duration,
        function: ProcessJoinFunction | Callable[[Row, Row], object], schema: str | Schema,
    ) -> Stream:  # fmt: skip
        """Join rows of one key whose event times are close: `lower` ≤ the other's less this one's ≤ `upper`.

        `function(left, right)` returns one row or None, or is an object whose `process_element(left, right, ctx)` returns
        any number of rows. Rows later than the watermark are dropped.
        """
        from tidegate.api.joins import interval_join  # Late, for a quick start.

        rows = as_schema(schema)
        check_connected(self, other)
        return self.operate(uid, interval_join(self._input, other._input, lower, upper, function, rows))

    def window_join(
        self, uid: str, other: KeyedStream, assigner: WindowAssigner, *,
        function: ProcessJoinFunction | Callable[[Row, Row], object], schema: str | Schema,
    ) -> Stream:  # fmt: skip
        """Pairs of rows of one key that lie in the same window, when it ends. `function` as for `interval_join`."""
        from tidegate.api.joins import window_join  # Late, for a quick start.

        rows = as_schema(schema)
        check_connected(self, other)
        return self.operate(uid, window_join(self._input, other._input, assigner, function, rows))

    def deduplicate(self, uid: str, *, ttl: Duration | None = None) -> Stream:
        """Keep the first row of each key. With `ttl`, a key is forgotten that long, in processing time, after its first row."""
        from tidegate.api.joins import Deduplicate  # Late, for a quick start.

        function = Deduplicate(None if ttl is None else argument_ms("ttl", ttl))
        return self.operate(
            uid, KeyedOperator(function=function, states=states_of(function), schema=self._input.schema)
        )

    def aggregate(self, uid: str, **columns: Aggregate) -> Stream:
        """Compute built-in aggregates of all rows of each key so far:
        `key_by("word").aggregate("count", n=count(), last=max("ts"))`.

        Every epoch emits one row for each key that it touched: the key's columns and one for each aggregate.
        """
        from tidegate.api.running import running_aggregate  # Late, for a quick start.

        return self.operate(uid, running_aggregate(self._input, columns))

    def map_with_state(
        self, uid: str, function: Callable[[Row, Stored], tuple[object, object]], *, state: object, schema: str | Schema,
        on_error: OnError | str = "fail",
    ) -> Stream:  # fmt: skip
        """Map each row to one row, with a function that receives the row and the state it last returned for the key, None
        at first: `map_with_state("delta", lambda row, last: (row.v - (last or 0), row.v), state=float, schema="d
        double")`. It returns what to emit, a value or a row, and the state to keep, None for nothing.
        """
        from tidegate.api.running import map_with_state  # Late, for a quick start.

        return self.operate(uid, map_with_state(function, state, schema, on_error))

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
        self._keyed, self._broadcast = keyed, broadcast

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
        """Run a function over both; see `KeyedStream.process`."""
        check_instance(f"process {uid!r}", function)
        _check_methods(
            function, ("process_element", "process_broadcast_element"),
            "Derive a class from KeyedBroadcastProcessFunction and pass an instance.",
        )  # fmt: skip
        called, states = runnable(function, self._broadcast.descriptors)
        return self._keyed.operate(
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
        self._first, self._second = first, second

    @called_like("process('matched', Match(), schema='order string, payment string')")
    def process(
        self, uid: str, function: KeyedCoProcessFunction, *, schema: str | Schema,
        side_outputs: Mapping[str, str | Schema] | None = None, on_error: OnError | str = "fail",
    ) -> Stream:  # fmt: skip
        """Run a function over the rows of both. State and timers belong to the key, whichever stream a row came from.
        `on_error` as for `KeyedStream.process`."""
        check_instance(f"process {uid!r}", function)
        _check_methods(
            function, ("process_element1", "process_element2"), "Derive a class from KeyedCoProcessFunction."
        )
        called, states = runnable(function)
        return self._first.operate(
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

        self._keyed, self._windowing = keyed, Windowing.of(keyed.input, assigner)

    def on_error(self, choice: OnError | str) -> Self:
        """Choose what happens to a row, or to a window that fires, on which a function raises: as for
        `KeyedStream.process`. A window whose function raised is discarded with its contents.
        """
        return self._with(replace(self._windowing, on_error=OnError.of(choice)))

    def trigger(self, trigger: Trigger) -> Self:
        """Choose when windows fire, instead of the assigner's default trigger."""
        return self._with(self._windowing.with_trigger(trigger))

    def evictor(self, evictor: Evictor) -> Self:
        """Choose which rows are evaluated when a window fires. The window then keeps all its rows."""
        return self._with(replace(self._windowing, evictor=evictor))

    def allowed_lateness(self, lateness: Duration) -> Self:
        """Keep a window for this long after the watermark has passed its end. A row that arrives in that time fires it again."""
        return self._with(self._windowing.with_lateness(lateness))

    def side_output_late_data(self, tag: str) -> Self:
        """Send rows that are too late for all their windows to a side output,
        `stream.side_output(tag)`. By default, they are dropped.
        """
        return self._with(replace(self._windowing, late_tag=tag))

    def reduce(
        self, uid: str, function: ReduceFunction | Callable[[Row, Row], Row],
        window_function: WindowFunction | None = None, *, schema: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None,
    ) -> Stream:  # fmt: skip
        """Combine the rows of a window pairwise into one with the same columns, as they arrive."""
        return self._keyed.operate(uid, self._windowing.reduce(function, window_function, schema, side_outputs))

    def aggregate(
        self, uid: str, function: AggregateFunction | None = None, window_function: WindowFunction | None = None,
        *, accumulator: object = None, schema: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None, **columns: Aggregate,
    ) -> Stream:  # fmt: skip
        """Combine the rows of a window into one value, as they arrive.

        With built-in aggregates, `aggregate("per-minute", n=count(), spent=sum("ms"))`, rows have the key, `window_start`,
        `window_end` and a column for each. With a function, give the type of its accumulator and the schema of its result:
        `aggregate("mean", Mean(), accumulator=tuple[float, int], schema="mean double")`.
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
        return self._keyed.operate(uid, made)

    def process(
        self, uid: str, function: WindowFunction, *, schema: str | Schema,
        side_outputs: Mapping[str, str | Schema] | None = None,
    ) -> Stream:  # fmt: skip
        """Pass all rows of a window to a function when it fires. They are stored one by one until then."""
        return self._keyed.operate(uid, self._windowing.process(function, schema, side_outputs))

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


def kept_event_time(column: str | None, schema: Schema) -> str | None:
    """Return the event-time column of rows that an operator emits: the one it read, if they have it too."""
    if column is None or column not in schema or schema.fields[schema.index(column)].type.kind not in EVENT_TIME_KINDS:
        return None
    return column


def _name_of(fn: object, kind: str) -> str:
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return kind if name == "<lambda>" else str(name)


def _check_methods(function: object, names: Sequence[str], advice: str) -> None:
    for name in names:
        if not callable(getattr(function, name, None)):
            raise GraphError(f"{function!r} has no {name}. {advice}")


def combined_schema(uid: str, function: KeyedBatchFunction, read: Input) -> Schema:
    """The columns that `combine` returns. Raises GraphError unless they have the key's columns as they are."""
    name = type(function).__name__
    if not function.combined:
        raise GraphError(
            f"{name} has a method combine, but does not say which columns it returns. Declare them on the class: "
            "combined = 'user string, n bigint'."
        )
    partial = as_schema(function.combined)
    for column in read.key:
        wanted = read.schema.fields[read.schema.index(column)].type
        if column not in partial or partial.fields[partial.index(column)].type != wanted:
            raise GraphError(
                f"process {uid!r}: the columns that {name}.combine returns ({partial}) must contain the key column "
                f"{column!r} as {wanted.ddl()}."
            )
    return partial
