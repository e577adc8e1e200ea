"""The graph of a job: nodes and the streams between them, as frozen data.

A node with a `uid` owns state, positions or output under that name for ever. Everything else may change between runs.
Functions of the user are opaque objects here; only the runtime calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NewType

from tidegate.core.errors import GraphError
from tidegate.core.ids import Uid
from tidegate.graph.combine import Combine
from tidegate.graph.on_error import FAIL, OnError
from tidegate.graph.schema import Schema
from tidegate.graph.states import StateSpec

NodeId = NewType("NodeId", int)
"""Index of a node in its graph, in the order of declaration. Means nothing outside one run."""


@dataclass(frozen=True, slots=True)
class StreamRef:
    """One output of a node: the main one (tag None) or a side output by its tag."""

    node: NodeId
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """What a node reads: one or more streams of one schema (more than one is a union), keyed or not.

    `key` names the key columns. Empty: the rows come as they are, chained where producer and consumer share a level.
    """

    streams: tuple[StreamRef, ...]
    schema: Schema
    key: tuple[str, ...] = ()
    event_time: str | None = None
    """The column that says when a row happened."""
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
    """After how long without a row it no longer holds the watermark back. None: never."""
    split: str | None = None
    """The column that tells the splits of the source apart, each with a watermark of its own."""
    watermark: str | None = None
    """The column that the watermark is made of, where it is not the event time."""
    generator: Callable[[int, int], int] | None = field(default=None, compare=False)
    """Makes the watermark of (greatest time, clock), in place of the greatest less the disorder."""
    at_most_once: bool = False
    """The user knows that it does not give the same rows again, and accepts that a failure loses some."""
    files_kept: bool = False
    """The user declares that files stay as long as a checkpoint needs them, where tidegate cannot see it."""

    @property
    def watermark_column(self) -> str | None:
        """What tasks look at: whose greatest value is reported."""
        return self.watermark or self.event_time

    def __str__(self) -> str:
        return f"source {self.uid!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A stateless function of rows: kind "map", "filter" or "flat_map"."""

    id: NodeId
    kind: str
    function: Any = field(compare=False)
    """An object with a method named after `kind` (and perhaps `open` and `close`), or a plain callable."""
    input: Input
    schema: Schema
    name: str
    uid: Uid | None = None
    """Of a function with operator state; others need none."""
    states: tuple[StateSpec, ...] = ()

    @property
    def call(self) -> Callable[[Any], Any]:
        """What to call with a row: the method named after the kind where there is one, else the function itself."""
        found: Callable[[Any], Any] = getattr(self.function, self.kind, self.function)
        return found

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A keyed function with declared state, of one input or of two."""

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
    combine: Combine | None = None
    """How rows may be combined on the way: the function then has `process_combined` besides."""

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

    What `Job.graph()` gives has passed `validate.check`; a graph put together by hand should be sent through it.
    """

    job: str
    nodes: tuple[Node, ...]

    def node(self, id: NodeId) -> Node:
        return self.nodes[id]

    def inputs(self, node: Node) -> tuple[Input, ...]:
        """What a node reads. Sources read nothing, a process one input or two, everything else one."""
        if isinstance(node, Source):
            return ()
        return node.inputs if isinstance(node, Process) else (node.input,)

    def schema(self, stream: StreamRef) -> Schema:
        """The columns of a stream. Raises GraphError where no such stream is declared."""
        node = self.nodes[stream.node]
        if isinstance(node, SinkNode):
            raise GraphError(f"Nothing can be read from {node}: a sink ends its stream.")
        if stream.tag is None:
            return node.schema
        declared = dict(node.side_outputs) if isinstance(node, Process) else {}
        if stream.tag not in declared:
            known = f"It declares {', '.join(map(repr, declared))}." if declared else "It declares none."
            raise GraphError(
                f"The side output {stream.tag!r} of {node} is used but not declared. {known} "
                f'Add it where the operator is made: process(…, side_outputs={{{stream.tag!r}: "…"}}).'
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
