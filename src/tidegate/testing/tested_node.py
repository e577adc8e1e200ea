"""The node of a graph that a harness runs for a function which no job declares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.api.async_function import check_async_function
from tidegate.api.declared_nodes import kept_event_time
from tidegate.api.functions import KeyedBatchFunction, combined_schema, operator_states_of, runnable
from tidegate.api.ported_function import PortedFunction
from tidegate.api.streams import Stream
from tidegate.core.errors import GraphError, SchemaError
from tidegate.core.ids import Uid
from tidegate.graph.async_calls import AsyncCalls
from tidegate.graph.model import Input, NodeId, Process, Transform
from tidegate.graph.on_error import OnError
from tidegate.graph.validate import ASYNC, TRANSFORM_KINDS, check_event_time
from tidegate.schema.schema import Schema, as_schema

UID = Uid("function")
"""The uid of what has none: state belongs to a uid, in a snapshot of the harness, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionInput:
    """What the caller of the harness says about the rows of a function."""

    key: str | Sequence[str] | None
    schema: str | Schema | None
    side_outputs: Sequence[str] | Mapping[str, str | Schema]
    event_time: str | None
    broadcast_schema: str | Schema | None
    on_error: OnError

    @property
    def side_schemas(self) -> dict[str, Schema]:
        """The columns of the side outputs, if they were given."""
        if not isinstance(self.side_outputs, Mapping):
            return {}
        return {tag: as_schema(ddl) for tag, ddl in self.side_outputs.items()}


def node_of_stream(stream: Stream) -> Process | Transform:
    """Return the operator that produces a stream."""
    node = stream.node()
    if not isinstance(node, Process | Transform):
        raise GraphError(f"The harness runs operators; {node} is not one.")
    return node


def node_of_function(function: Any, given: FunctionInput, output_schema: Schema | None) -> Process | Transform:
    """Return the node that runs a function. Raises GraphError if a job would not accept it, either."""
    if isinstance(function, type):
        raise GraphError(
            f"The harness takes an instance, not the class {function.__name__}. Write {function.__name__}()."
        )

    # Without a key it runs as behind `stream.map` and its like.
    if given.schema is not None and given.key is None:
        kind = next((kind for kind in TRANSFORM_KINDS if callable(getattr(function, kind, None))), None)
        if kind is not None:
            return _transform(kind, function, as_schema(given.schema))
        if callable(getattr(function, "async_invoke", None)):
            return _async_transform(function, as_schema(given.schema), given.on_error)

    node = _process(function, given)
    if isinstance(function, KeyedBatchFunction):
        return _over_batches(node, output_schema, given)
    return node


def combined(node: Process, function: KeyedBatchFunction) -> Process:
    """Return the node as it is behind the function's own `combine`, whose rows it then reads."""
    read = node.input
    partial = combined_schema(str(UID), function, read)
    event_time = kept_event_time(read.event_time, partial)
    return replace(node, input=replace(read, schema=partial, event_time=event_time))


def _transform(kind: str, function: Any, read: Schema) -> Transform:
    return Transform(
        id=NodeId(0),
        kind=kind,
        function=function.transform() if isinstance(function, PortedFunction) else function,
        input=Input((), read),
        schema=read,
        name=kind,
        uid=UID,
        states=operator_states_of(function),
    )


def _async_transform(function: Any, read: Schema, on_error: OnError) -> Transform:
    check_async_function(str(UID), function)
    return Transform(
        id=NodeId(0),
        kind=ASYNC,
        function=function,
        input=Input((), read),
        schema=read,
        name=ASYNC,
        uid=UID,
        side_outputs=on_error.side_outputs,
        on_error=on_error,
        # Order and capacity as `async_map` has them by default; it has no default for the timeout.
        calls=AsyncCalls(timeout_ms=10_000, capacity=100, ordered=True),
    )


def _process(function: Any, given: FunctionInput) -> Process:
    if not isinstance(function, KeyedBatchFunction | PortedFunction) and not callable(
        getattr(function, "process_element", None)
    ):
        raise GraphError(
            f"{function!r} has no process_element: the harness runs instances of KeyedProcessFunction and "
            "KeyedBatchFunction, and streams of keyed operators."
        )
    if given.key is None or given.schema is None:
        raise GraphError(
            "Give the harness the key and the columns of the rows: harness(function, key='user', schema='user "
            "string, …')."
        )
    columns = as_schema(given.schema)
    input = _keyed_input(given.key, columns, given.event_time)
    broadcast = _broadcast_input(function, given.broadcast_schema)
    called, states = runnable(function)
    return Process(
        id=NodeId(0),
        uid=UID,
        function=called,
        input=input,
        schema=columns,
        states=states,
        side_outputs=(*_side_outputs(given.side_outputs, columns), *given.on_error.side_outputs),
        broadcast=broadcast,
        on_error=given.on_error,
    )


def _keyed_input(key: str | Sequence[str], columns: Schema, event_time: str | None) -> Input:
    names = (key,) if isinstance(key, str) else tuple(key)
    for name in names:
        if name not in columns:
            raise SchemaError(f"There is no key column {name!r} among {', '.join(columns.names)}.")
    if event_time is not None:
        check_event_time(event_time, columns)
    return Input((), columns, names, event_time)


def _side_outputs(tags: Iterable[str], columns: Schema) -> tuple[tuple[str, Schema], ...]:
    # A node needs columns for every tag. Where the test gave none, these are never checked.
    return tuple((tag, columns) for tag in tags)


def _broadcast_input(function: object, schema: str | Schema | None) -> Input | None:
    if not hasattr(function, "process_broadcast_element"):
        return None
    if schema is None:
        raise GraphError("Give the harness the columns of the broadcast rows: broadcast_schema='name string, …'.")
    return Input((), as_schema(schema), broadcast=True)


def _over_batches(node: Process, schema: Schema | None, given: FunctionInput) -> Process:
    """Columns have no names of their own, as a row of a function has: they are converted to those of a schema."""
    if schema is None or any(tag not in given.side_schemas for tag in given.side_outputs):
        raise GraphError(
            "Give the harness the columns that a function over batches emits: harness(…, output_schema='user string, n "
            "bigint'), and the same for each side output: side_outputs={'late': 'user string, …'}."
        )
    known = dict(node.on_error.side_outputs) | given.side_schemas
    side_outputs = tuple((tag, known[tag]) for tag, _ in node.side_outputs)
    return replace(node, batches=True, schema=schema, side_outputs=side_outputs)
