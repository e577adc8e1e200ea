"""From the graph of a job to Flink's plan: every level is a vertex, since its operators share a task."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.control.messages.plan import JobPlan, JobPlanInput, JobPlanNode
from tidegate.graph.outline import Outline, OutlineNode

SOURCE_STAGE = 0
_STRATEGIES = {"keyed": "HASH", "broadcast": "BROADCAST", "forward": "FORWARD"}
"""How rows get to another level → what Flink calls it."""
_PREFIXES = {"source": "Source: ", "sink": "Sink: "}


def vertex_id(level: int) -> str:
    return f"level-{level}"


@dataclass(frozen=True, slots=True)
class Vertex:
    """A level under the name that Flink's dashboard shows: `Source: orders`, `totals -> Sink: out`."""

    level: int
    name: str
    operators: frozenset[str]
    """The names of its sources, operators and sinks, as metrics have them."""

    @property
    def id(self) -> str:
        return vertex_id(self.level)

    @property
    def is_source_stage(self) -> bool:
        return self.level == SOURCE_STAGE


def vertices(graph: Outline) -> list[Vertex]:
    """Return the levels, sources first."""
    by_level: dict[int, list[OutlineNode]] = {}
    for node in graph.nodes:
        by_level.setdefault(node.level, []).append(node)
    return [
        Vertex(level, _name(nodes, _chained(graph, nodes)), frozenset(node.name for node in nodes))
        for level, nodes in sorted(by_level.items())
    ]


def job_plan(job_id: str, job: str, graph: Outline, parallelism: Mapping[int, int]) -> JobPlan:
    """`parallelism` by level."""
    levels = {node.uid: node.level for node in graph.nodes}
    inputs: dict[int, dict[tuple[int, str], None]] = {level: {} for level in levels.values()}
    for edge in graph.edges:
        source = levels[edge.source]
        target = levels[edge.target]
        if source != target:
            inputs[target][source, _strategy(edge.exchange, source)] = None
    nodes = [
        JobPlanNode(
            id=vertex.id,
            parallelism=parallelism[vertex.level],
            # As in Flink's plan: dashboards show a description as markup.
            description=html.escape(vertex.name, quote=False),
            inputs=_inputs(inputs[vertex.level]),
        )
        for vertex in vertices(graph)
    ]
    return JobPlan(jid=job_id, name=job, nodes=nodes)


def _inputs(producers: Iterable[tuple[int, str]]) -> list[JobPlanInput]:
    """Return an input for each level that rows come from and each way that they take."""
    return [
        JobPlanInput(num=number, id=vertex_id(source), ship_strategy=strategy)
        for number, (source, strategy) in enumerate(producers)
    ]


def _strategy(exchange: str, source_level: int) -> str:
    # Partitions of a source are dealt to the slots; between levels, rows stay in their slot.
    if exchange == "forward" and source_level == SOURCE_STAGE:
        return "RESCALE"
    return _STRATEGIES[exchange]


def _chained(graph: Outline, nodes: Iterable[OutlineNode]) -> dict[str, list[str]]:
    """Node → the nodes of its level that read from it."""
    inside = {node.uid for node in nodes}
    consumers: dict[str, list[str]] = {}
    for edge in graph.edges:
        targets = consumers.setdefault(edge.source, [])
        if edge.source in inside and edge.target in inside and edge.target not in targets:
            targets.append(edge.target)
    return consumers


def _name(nodes: Iterable[OutlineNode], chained: Mapping[str, list[str]]) -> str:
    by_uid = {node.uid: node for node in nodes}
    # A chain begins at a node that reads from no other one of its level.
    targets = {target for uid in by_uid for target in chained.get(uid, ())}
    visited: set[str] = set()
    return ", ".join(_chain(by_uid, chained, uid, visited) for uid in by_uid if uid not in targets)


def _chain(nodes: Mapping[str, OutlineNode], chained: Mapping[str, list[str]], uid: str, visited: set[str]) -> str:
    """Return the name of a node and of what is chained to it. A node with several producers is named after the first."""
    visited.add(uid)
    shown = _PREFIXES.get(nodes[uid].kind, "") + uid
    parts = [_chain(nodes, chained, target, visited) for target in chained.get(uid, ()) if target not in visited]
    if not parts:
        return shown
    return f"{shown} -> {parts[0]}" if len(parts) == 1 else f"{shown} -> ({', '.join(parts)})"
