"""The graph of a job: nodes and the streams between them, as frozen data.

A node with a `uid` owns state, positions or output permanently under that name. Everything else may change between
runs. User functions are opaque objects here; only the runtime calls them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

from tidegate.core.errors import GraphError
from tidegate.core.ids import Uid
from tidegate.graph.async_calls import AsyncCalls
from tidegate.graph.combine import Combine
from tidegate.graph.on_error import FAIL, OnError
from tidegate.graph.states import StateSpec
from tidegate.schema.schema import Schema

NodeId = NewType("NodeId", int)
"""Index of a node in its graph, in the order of declaration. Meaningless outside one run."""


@dataclass(frozen=True, slots=True)
class StreamRef:
    """One output of a node: the main one (tag None) or a side output by its tag."""

    node: NodeId
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """What a node reads: one or more streams of one schema (more than one is a union), keyed or not.

    `key` names the key columns. Empty: the rows are not repartitioned, and are chained if producer and consumer share a
    level.
    """

    streams: tuple[StreamRef, ...]
    schema: Schema
    key: tuple[str, ...] = ()
    event_time: str | None = None
    """The column that holds the event time of a row."""
    broadcast: bool = False
    """Every row goes to every task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    id: NodeId
    uid: Uid
    schema: Schema
    frame: Any = field(compare=False, repr=False)
    """A Spark DataFrame, streaming or batch. Opaque."""
    bounded: bool = False
    event_time: str | None = None
    out_of_orderness_ms: int = 0
    idleness_ms: int | None = None
    """How long without a row until the source no longer holds back the watermark. None: it always does."""
    split: str | None = None
    """The column that identifies the splits of the source. Each split has its own watermark."""
    watermark: str | None = None
    """The column that the watermark is derived from, if it is not the event time."""
    generator: Callable[[int, int], int] | None = field(default=None, compare=False)
    """Computes the watermark from (greatest time, clock), instead of the greatest time minus the out-of-orderness."""
    at_most_once: bool = False
    """The user accepts that the source cannot replay its rows, so a failure loses some."""
    files_kept: bool = False
    """The user declares that files are kept as long as a checkpoint needs them, if tidegate cannot verify it."""

    @property
    def watermark_column(self) -> str | None:
        """The column whose greatest value tasks report."""
        return self.watermark or self.event_time

    def __str__(self) -> str:
        return f"source {self.uid!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A function of rows without a key: kind "map", "filter", "flat_map", or "async_map"."""

    id: NodeId
    kind: str
    function: Any = field(compare=False)
    """An object with a method named after `kind` (and perhaps `open` and `close`), or a plain callable."""
    input: Input
    schema: Schema
    name: str
    uid: Uid | None = None
    """Required for a function with operator state, optional otherwise."""
    states: tuple[StateSpec, ...] = ()
    side_outputs: tuple[tuple[str, Schema], ...] = ()
    on_error: OnError = FAIL
    calls: AsyncCalls | None = None
    """How an async function is called; None for the other kinds."""

    @property
    def call(self) -> Callable[[Any], Any]:
        """Return the callable for a row: the method named after the kind if there is one, else the function itself."""
        call: Callable[[Any], Any] = getattr(self.function, self.kind, self.function)
        return call

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A keyed function with declared state and one or two inputs."""

    id: NodeId
    uid: Uid
    function: Any = field(compare=False)
    input: Input
    schema: Schema
    states: tuple[StateSpec, ...]
    side_outputs: tuple[tuple[str, Schema], ...] = ()
    second: Input | None = None
    """The other input of a function that has `process_element1` and `process_element2`."""
    broadcast: Input | None = None
    """The other input of a function that has `process_broadcast_element`."""
    on_error: OnError = FAIL
    batches: bool = False
    """Whether the function takes whole batches."""
    combine: Combine | None = None
    """How rows can be combined before the shuffle; its operator then takes combined rows, too."""

    @property
    def name(self) -> str:
        return str(self.uid)

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (*self.keyed_inputs, *(() if self.broadcast is None else (self.broadcast,)))

    @property
    def keyed_inputs(self) -> tuple[Input, ...]:
        return (self.input,) if self.second is None else (self.input, self.second)

    def __str__(self) -> str:
        return f"process {self.uid!r}"


@dataclass(frozen=True, slots=True)
class SinkNode:
    id: NodeId
    uid: Uid
    target: Any = field(compare=False)
    """A sink of `tidegate.connectors`. Opaque."""
    input: Input

    def __str__(self) -> str:
        return f"sink {self.uid!r}"


Node = Source | Transform | Process | SinkNode


@dataclass(frozen=True, slots=True)
class Graph:
    """A whole job. Nodes are in the order of declaration, which is a topological order.

    The result of `Job.graph()` has passed `validate.check`; pass a graph built by hand through it, too.
    """

    job: str
    nodes: tuple[Node, ...]
    renamed_uids: Mapping[Uid, tuple[str, ...]] = field(default_factory=dict)
    """The uid of a source or an operator → the uids that it had before, the latest first."""

    def node(self, id: NodeId) -> Node:
        return self.nodes[id]

    def inputs(self, node: Node) -> tuple[Input, ...]:
        """Return the inputs of a node: none for a source, one or two for a process, one for everything else."""
        if isinstance(node, Source):
            return ()
        return node.inputs if isinstance(node, Process) else (node.input,)

    def schema(self, stream: StreamRef) -> Schema:
        """Return the columns of a stream. Raises GraphError if no such stream is declared."""
        node = self.nodes[stream.node]
        if isinstance(node, SinkNode):
            raise GraphError(f"Nothing can be read from {node}: a sink ends its stream.")
        if stream.tag is None:
            return node.schema
        declared = {} if isinstance(node, Source) else dict(node.side_outputs)
        if stream.tag not in declared:
            known = f"It declares {', '.join(map(repr, declared))}." if declared else "It declares none."
            raise GraphError(
                f"The side output {stream.tag!r} of {node} is used but not declared. {known} "
                f'Declare it with the operator: process(…, side_outputs={{{stream.tag!r}: "…"}}).'
            )
        return declared[stream.tag]

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Source))

    @property
    def processes(self) -> tuple[Process, ...]:
        return tuple(node for node in self.nodes if isinstance(node, Process))

    @property
    def stateful(self) -> tuple[Process | Transform, ...]:
        """Operators that may have state: all processes, and transforms that declare some."""
        return tuple(
            node
            for node in self.nodes
            if isinstance(node, Process) or (isinstance(node, Transform) and node.uid is not None)
        )

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        return tuple(node for node in self.nodes if isinstance(node, SinkNode))
