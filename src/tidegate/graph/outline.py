"""The graph of a job as plain data, for pictures and reports: it can be stored, and read without the job's code."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.graph.labels import Labels, name_of, summary_of
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Input, Node, Process, SinkNode, Source, StreamRef, Transform
from tidegate.graph.states import StateSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineState:
    name: str
    kind: str
    type: str
    """As the user declared it: `MapState[str, int]`."""
    ttl_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineNode:
    uid: str
    """The uid; for a transform without one, its unique label."""
    name: str
    """The name under which tasks count the rows of the operator."""
    kind: str
    """`source`, `map`, `filter`, `flat_map`, `process` or `sink`."""
    label: str
    """What people read: the function or target, and the first line of its docstring."""
    level: int
    states: tuple[OutlineState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineEdge:
    source: str
    target: str
    exchange: str
    """`keyed`, `broadcast`, `forward` (to the same slot of a later level) or `chained` (within a task)."""
    key: str = ""
    """The key columns of a keyed exchange."""
    side_output: str | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    nodes: tuple[OutlineNode, ...]
    edges: tuple[OutlineEdge, ...]


def outline(graph: Graph, plan: Plan) -> Outline:
    labels = Labels(graph)
    levels = {id: level.index for level in plan.levels for id in level.nodes}
    nodes = tuple(_node(node, labels.node(node.id), levels[node.id]) for node in graph.nodes)
    edges = tuple(
        OutlineEdge(
            source=labels.node(stream.node),
            target=labels.node(node.id),
            exchange=_exchange(input, chained=levels[stream.node] == levels[node.id]),
            key=", ".join(input.key),
            side_output=stream.tag,
        )
        for node in graph.nodes
        for input, stream in _inputs(graph, node)
    )
    return Outline(nodes, edges)


def _inputs(graph: Graph, node: Node) -> list[tuple[Input, StreamRef]]:
    return [(input, stream) for input in graph.inputs(node) for stream in input.streams]


def _exchange(input: Input, chained: bool) -> str:
    if input.key:
        return "keyed"
    return "broadcast" if input.broadcast else "chained" if chained else "forward"


def _node(node: Node, uid: str, level: int) -> OutlineNode:
    kind, label = _shown(node)
    states = node.states if isinstance(node, Transform | Process) else ()
    name = node.name if isinstance(node, Transform | Process) else str(node.uid)
    return OutlineNode(
        uid=uid, name=name, kind=kind, label=label, level=level, states=tuple(_state(each) for each in states)
    )


def _shown(node: Node) -> tuple[str, str]:
    """The kind of a node, and its label."""
    match node:
        case Source():
            return "source", ""
        case SinkNode():
            return "sink", name_of(node.target) or ""
        case Transform():
            return node.kind, _label(node.function)
        case Process():
            return "process", _label(node.function)


def _label(function: object) -> str:
    said = [name_of(function), summary_of(function)]
    return ": ".join(part for part in said if part)


def _state(spec: StateSpec) -> OutlineState:
    return OutlineState(
        name=spec.name, kind=str(spec.kind), type=str(spec), ttl_ms=None if spec.ttl is None else spec.ttl.ttl_ms
    )
