"""Levels: which operators share a task, and which rows cross a shuffle to get there. Pure.

- Sources are level 0.
- A process is one above the highest of its producers, since its rows must be shuffled by key first.
- A transform is on the level of its highest producer, chained to it. At level 0 it runs in the source stage, before the
  shuffle, only if a process follows it through transforms alone; otherwise nothing would be gained and it is moved to
  level 1, with the sinks. A transform with state is never in the source stage.
- A sink is on the level of its highest producer, but never in the source stage.

A stream whose producer is on a lower level than its consumer crosses an exchange, an `Edge`. The rows of an edge over
several levels pass unchanged through the tasks of the levels in between. Streams within a level are `Chain`s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.graph.combine import Combine
from tidegate.graph.model import Graph, Node, NodeId, Process, SinkNode, Source, StreamRef, Transform
from tidegate.schema.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Rows sent from one level to a higher one."""

    id: int
    """Index in `Plan.edges`. Tags the rows of the edge in transit; meaningless outside one run."""
    source: StreamRef
    target: NodeId
    input: int
    """Which input of the target the rows are for."""
    key: tuple[str, ...]
    """Columns that determine the slot. Empty: forward, rows stay in their slot."""
    schema: Schema
    from_level: int
    to_level: int
    broadcast: bool = False
    """Every row goes to every slot; it is replicated when it leaves `from_level`."""
    combine: Combine | None = None
    """The rows are combined before the shuffle; `schema` is that of combined rows, `key` names columns before."""
    combined_from: Schema | None = None
    """The columns of the rows that each sending task combines, so that several combined rows may arrive for one key and interval.
    None: Spark SQL combines the rows of all tasks, or nobody combines any."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Rows passed from one node to another on the same level, by a call within the task."""

    source: StreamRef
    target: NodeId
    input: int


@dataclass(frozen=True, slots=True)
class Level:
    """What one task of a level does. `nodes` are in topological order."""

    index: int
    nodes: tuple[NodeId, ...]
    incoming: tuple[Edge, ...]
    outgoing: tuple[Edge, ...]
    passing: tuple[Edge, ...]
    """Edges that start below and end above this level; their rows are forwarded unchanged."""
    chains: tuple[Chain, ...]

    def consumers(self, stream: StreamRef) -> tuple[Chain, ...]:
        """Return the consumers of a stream within this level. A consumer that unites the stream with itself appears twice."""
        return tuple(chain for chain in self.chains if chain.source == stream)


@dataclass(frozen=True, slots=True)
class Plan:
    """The levels of a graph, 0 (the source stage) first, and every edge between them."""

    levels: tuple[Level, ...]
    edges: tuple[Edge, ...]

    def level_of(self, node: NodeId) -> int:
        return next(level.index for level in self.levels if node in level.nodes)


def plan(graph: Graph, *, two_stage: bool = True) -> Plan:
    """Assign every node of a checked graph to a level. `two_stage`: combine rows before the shuffle where possible."""
    level_of = _assign(graph)

    # A node may read several inputs, and an input several streams: each pair of a stream and a reader is an edge or a chain.
    edges: list[Edge] = []
    chains: list[Chain] = []
    for node in graph.nodes:
        here = level_of[node.id]
        for number, input in enumerate(graph.inputs(node)):
            for stream in input.streams:
                there = level_of[stream.node]
                if there < here:
                    edges.append(
                        Edge(
                            id=len(edges),
                            source=stream,
                            target=node.id,
                            input=number,
                            key=input.key,
                            schema=input.schema,
                            from_level=there,
                            to_level=here,
                            broadcast=input.broadcast,
                        )
                    )
                else:
                    chains.append(Chain(stream, node.id, number))

    # SQL comes first: where it has combined the rows of an edge, tasks have none to combine.
    if two_stage:
        edges = _combined_by_tasks(graph, level_of, _combined_by_sql(graph, level_of, edges))
    levels = tuple(
        Level(
            index=index,
            nodes=tuple(node.id for node in graph.nodes if level_of[node.id] == index),
            incoming=tuple(edge for edge in edges if edge.to_level == index),
            outgoing=tuple(edge for edge in edges if edge.from_level == index),
            passing=tuple(edge for edge in edges if edge.from_level < index < edge.to_level),
            chains=tuple(chain for chain in chains if level_of[chain.target] == index),
        )
        for index in range(max(level_of, default=0) + 1)
    )
    return Plan(levels, tuple(edges))


def _combined_by_sql(graph: Graph, level_of: list[int], edges: list[Edge]) -> list[Edge]:
    """Combine rows where that avoids shuffling all of them: one source, read by one operator, with nothing in between.

    If several operators read a row, or Python runs before the shuffle, the source would be read twice.
    """
    sources = graph.sources
    if len(sources) != 1 or level_of.count(0) != 1 or len(edges) == 0:
        return edges
    leaving = [edge for edge in edges if edge.from_level == 0]
    target = graph.node(leaving[0].target) if len(leaving) == 1 else None
    if not isinstance(target, Process) or target.combine is None:
        return edges
    # A combined row carries one greatest time, as a timestamp: enough for one watermark, and not for one of each split.
    time = sources[0].watermark_column
    if sources[0].split is not None:
        return edges
    if time is not None and sources[0].schema.fields[sources[0].schema.index(time)].type.kind != "timestamp":
        return edges
    one = leaving[0]
    edges[one.id] = replace(one, combine=target.combine, schema=target.combine.schema)
    return edges


def _combined_by_tasks(graph: Graph, level_of: list[int], edges: list[Edge]) -> list[Edge]:
    """Combine rows that Python sends: those of keyed operators, and those of a source stage that runs Python.

    An operator gets combined rows over all of its edges or over none: it emits once for each key and epoch.
    """
    # Without Python in the source stage its rows never pass through a task, so no task can combine them.
    sql_sources = level_of.count(0) == len(graph.sources)
    for target in graph.processes:
        arriving = [edge for edge in edges if edge.target == target.id]
        combine = target.combine
        if combine is None or any(edge.combine or (edge.from_level == 0 and sql_sources) for edge in arriving):
            continue
        for edge in arriving:
            edges[edge.id] = replace(edge, combine=combine, schema=combine.schema, combined_from=edge.schema)
    return edges


def _assign(graph: Graph) -> list[int]:
    before_a_key = _before_a_key(graph)
    level_of: list[int] = []
    for node in graph.nodes:
        # The nodes come in the order of declaration, and nothing reads a stream that is declared later.
        below = max((level_of[producer] for producer in _producers(graph, node)), default=0)
        match node:
            case Source():
                level_of.append(0)
            case Process():
                level_of.append(below + 1)
            case Transform():
                # State needs a slot, and the source stage has none.
                level_of.append(below if below or (before_a_key[node.id] and not node.states) else 1)
            case SinkNode():
                level_of.append(max(1, below))
    return level_of


def _before_a_key(graph: Graph) -> list[bool]:
    """For each node, return whether a process reads it, directly or through transforms."""
    # Nodes are in topological order, so backwards each reader comes before what it reads.
    found = [False] * len(graph.nodes)
    for node in reversed(graph.nodes):
        if isinstance(node, Process) or (isinstance(node, Transform) and found[node.id]):
            for producer in _producers(graph, node):
                found[producer] = True
    return found


def _producers(graph: Graph, node: Node) -> list[NodeId]:
    return [stream.node for input in graph.inputs(node) for stream in input.streams]
