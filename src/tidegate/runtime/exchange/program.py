"""The program of a level: its operators with the user's functions, and the edges that reach and leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.core.ids import Uid
from tidegate.graph.combine import TIME
from tidegate.graph.levels import Edge, Level, Plan
from tidegate.graph.model import Graph, Node, NodeId, Source, StreamRef


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelProgram:
    """One level's operators with the user's functions, and the edges that reach and leave it.

    `consumers` are the nodes of this level that read a stream made in this level (chained: same process, no shuffle).
    `incoming` and `outgoing` include the edges whose rows only pass through.
    """

    level: int
    nodes: tuple[Node, ...]
    consumers: Mapping[StreamRef, tuple[NodeId, ...]]
    incoming: tuple[Edge, ...]
    outgoing: tuple[Edge, ...]
    state_ids: Mapping[tuple[Uid, str], int]
    event_times: Mapping[int, tuple[Uid, str, str | None]] = field(default_factory=dict)
    """Edges whose rows come from a source unchanged: the source, its event-time column, and its split
    column. One edge for each source.
    """
    counted: Mapping[int, Uid] = field(default_factory=dict)
    """Edges whose rows count as read, and the source they come from. One edge for each source, because a row that two operators
    read would count twice.
    """


def programs(graph: Graph, plan: Plan, state_ids: Mapping[tuple[Uid, str], int]) -> tuple[LevelProgram, ...]:
    """Return the program of every level, including the source stage (level 0)."""
    return tuple(_program(graph, plan, level, state_ids) for level in plan.levels)


def exchange(plan: Plan, level: int) -> tuple[Edge, ...]:
    """Return the edges whose rows arrive at a level, to stay or to be forwarded: the columns of the exchange above it."""
    return tuple(edge for edge in plan.edges if edge.from_level < level <= edge.to_level)


def _program(graph: Graph, plan: Plan, level: Level, state_ids: Mapping[tuple[Uid, str], int]) -> LevelProgram:
    consumers: dict[StreamRef, tuple[NodeId, ...]] = {}
    for chain in level.chains:
        consumers[chain.source] = (*consumers.get(chain.source, ()), chain.target)
    return LevelProgram(
        level=level.index,
        # DataFrames and watermark generators stay in the driver.
        nodes=tuple(
            replace(n, frame=None, generator=None) if isinstance(n, Source) else n for n in map(graph.node, level.nodes)
        ),
        consumers=consumers,
        incoming=exchange(plan, level.index),
        outgoing=exchange(plan, level.index + 1),
        state_ids=dict(state_ids),
        # Only there do rows of sources arrive as they were read.
        event_times=_event_times(graph, plan) if level.index == 1 else {},
        counted=_counted(graph, plan) if level.index == 1 else {},
    )


def _event_times(graph: Graph, plan: Plan) -> dict[int, tuple[Uid, str, str | None]]:
    """Return where level 1 sees the rows of sources. If the source stage runs Python, it has already seen them."""
    if len(plan.levels[0].nodes) > len(graph.sources):
        return {}
    found: dict[NodeId, tuple[int, tuple[Uid, str, str | None]]] = {}
    for edge in exchange(plan, 1):
        node = graph.node(edge.source.node)
        if isinstance(node, Source) and node.watermark_column is not None and node.id not in found:
            column = node.watermark_column if edge.combine is None else TIME
            found[node.id] = edge.id, (node.uid, column, node.split)
    return dict(found.values())


def _counted(graph: Graph, plan: Plan) -> dict[int, Uid]:
    """Empty if the source stage runs Python, because it counts them itself."""
    if len(plan.levels[0].nodes) > len(graph.sources):
        return {}
    first: dict[NodeId, tuple[int, Uid]] = {}
    # A non-broadcast edge sends each row to one task, so every task counts its rows; of a
    # broadcast, only one task counts.
    for edge in sorted(exchange(plan, 1), key=lambda edge: edge.broadcast):
        node = graph.node(edge.source.node)
        if isinstance(node, Source):
            first.setdefault(node.id, (edge.id, node.uid))
    return dict(first.values())
