"""The nodes that methods of streams declare: each function checks what the user passed, and adds a node to the job's graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegate.api.functions import (
    Combiner,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBatchFunction,
    MapFunction,
    combined_schema,
    operator_states_of,
)
from tidegate.api.graph_builder import GraphBuilder
from tidegate.api.keyed_operator import KeyedOperator
from tidegate.api.ported_function import PortedFunction
from tidegate.core.errors import GraphError
from tidegate.graph.async_calls import AsyncCalls
from tidegate.graph.model import Input, NodeId, Process, SinkNode, StreamRef, Transform
from tidegate.graph.on_error import OnError
from tidegate.graph.renamed import Uid as RenamedUid
from tidegate.graph.validate import ASYNC, COMBINE, EVENT_TIME_KINDS, check_name
from tidegate.schema.schema import Schema, as_schema

if TYPE_CHECKING:
    from tidegate.api.async_function import AsyncFunction
    from tidegate.connectors.sink import Sink

_BASES: dict[str, type[Function]] = {"map": MapFunction, "filter": FilterFunction, "flat_map": FlatMapFunction}


def add_transform(
    job: GraphBuilder,
    input: Input,
    kind: str,
    fn: object,
    schema: str | Schema | None,
    name: str | None,
    uid: str | None,
) -> StreamRef:
    """Add a map, filter or flat_map. Return its output."""
    base = _BASES[kind]
    if isinstance(fn, type) and issubclass(fn, Function):
        raise GraphError(f"{kind} takes a function object, not the class {fn.__name__}. Pass {fn.__name__}().")
    if isinstance(fn, Function) and not isinstance(fn, base):
        raise GraphError(f"{kind} takes a {base.__name__} or a callable; {type(fn).__name__} is neither.")
    if not isinstance(fn, base) and not callable(fn):
        raise GraphError(f"{kind} takes a {base.__name__} or a callable; got {fn!r}.")
    # A plain callable may have any attributes, and declares nothing.
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
    id = _next_id(job)
    checked = None if uid is None else job.new_uid(uid, f"{kind} {uid!r}")
    shown = check_name(name, "name") if name is not None else _name_of(fn, kind)
    job.add(
        Transform(
            id=id,
            kind=kind,
            function=ported,
            input=input,
            schema=input.schema if schema is None else as_schema(schema),
            name=shown,
            uid=checked,
            states=states,
        )
    )
    return StreamRef(id)


def add_async_transform(
    job: GraphBuilder,
    input: Input,
    uid: str,
    function: AsyncFunction,
    schema: str | Schema | None,
    calls: AsyncCalls,
    on_error: OnError,
) -> StreamRef:
    """Add an async_map. Return its output."""
    from tidegate.api.async_function import check_async_function  # Late, for a quick start.

    id = _next_id(job)
    checked = job.new_uid(uid, f"async_map {uid!r}")
    check_async_function(uid, function)
    job.add(
        Transform(
            id=id,
            kind=ASYNC,
            function=function,
            input=input,
            schema=input.schema if schema is None else as_schema(schema),
            name=str(checked),
            uid=checked,
            side_outputs=on_error.side_outputs,
            on_error=on_error,
            calls=calls,
        )
    )
    return StreamRef(id)


def add_combiner(job: GraphBuilder, read: Input, uid: str, function: KeyedBatchFunction) -> Input:
    """Add the `combine` of a function, which runs before the shuffle. Return what the function then reads."""
    partial = combined_schema(uid, function, read)
    id = _next_id(job)
    # The uid belongs to the process that comes next. It is checked now, before anything is added under its name.
    job.new_uid(uid, f"process {uid!r}")
    job.add(
        Transform(
            id=id,
            kind=COMBINE,
            function=Combiner(function, read.key),
            input=Input(read.streams, read.schema),
            schema=partial,
            name=f"combine {uid}",
        )
    )
    return Input((StreamRef(id),), partial, read.key, kept_event_time(read.event_time, partial))


def add_process(job: GraphBuilder, input: Input, uid: str, operator: KeyedOperator) -> StreamRef:
    """Add a keyed operator of any kind. Return its main output."""
    id = _next_id(job)
    checked = job.new_uid(uid, f"process {uid!r}")
    declared = (operator.side_outputs or {}).items()
    sides = [(check_name(tag, "side output tag"), as_schema(ddl)) for tag, ddl in declared]
    # Dead letters are a side output like any other, but nobody declares it.
    sides += [(check_name(tag, "side output tag"), columns) for tag, columns in operator.on_error.side_outputs]
    job.add(
        Process(
            id=id,
            uid=checked,
            function=operator.function,
            input=input,
            schema=operator.schema,
            states=operator.states,
            side_outputs=tuple(sides),
            second=operator.second,
            broadcast=operator.broadcast,
            on_error=operator.on_error,
            combine=operator.combine,
            batches=operator.batches,
        )
    )
    return StreamRef(id)


def add_sink(job: GraphBuilder, input: Input, uid: str, target: Sink) -> None:
    """Add a sink."""
    if isinstance(uid, RenamedUid):
        raise GraphError(
            f"sink {str(uid)!r} cannot take over the output of {uid.renamed_from[0]!r}: the target knows what it has by the "
            "uid of the sink. Keep the old uid. Or stop the job with a savepoint, which commits its output, and then use "
            "the new uid without renamed_from."
        )
    id = _next_id(job)
    checked = job.new_uid(uid, f"sink {uid!r}")
    if isinstance(target, type):
        raise GraphError(
            f"sink {uid!r} takes an instance, not the class {target.__name__}. Write {target.__name__}(…)."
        )
    # A sink of the user's own derives from nothing: having the method makes it one.
    if not callable(getattr(target, "create_writer", None)):
        raise GraphError(
            f"sink {uid!r} cannot write to {target!r:.200}, which has no create_writer. Use, for example, PrintSink()."
        )
    job.add(SinkNode(id, checked, target, input))


def kept_event_time(column: str | None, schema: Schema) -> str | None:
    """Return the event-time column of rows that an operator emits: the one it read, if they have it too."""
    if column is None or column not in schema or schema.fields[schema.index(column)].type.kind not in EVENT_TIME_KINDS:
        return None
    return column


def check_methods(function: object, names: Sequence[str], advice: str) -> None:
    """Raise GraphError unless the function has these methods. Its class may be any: no base class is required."""
    for name in names:
        if not callable(getattr(function, name, None)):
            raise GraphError(f"{function!r} has no {name}. {advice}")


def _next_id(job: GraphBuilder) -> NodeId:
    """Nodes are numbered in the order of declaration, which is a topological order."""
    return NodeId(len(job.draft().nodes))


def _name_of(fn: object, kind: str) -> str:
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return kind if name == "<lambda>" else str(name)
