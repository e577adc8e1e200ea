"""A plan as a Mermaid flowchart, for Markdown pages."""

from __future__ import annotations

from tidegate.graph.labels import Labels, name_of
from tidegate.graph.levels import Plan
from tidegate.graph.model import Graph, Node, NodeId, Process, SinkNode, Source, StreamRef, Transform

_STYLES = (
    "classDef source fill:#e3f2fd,stroke:#1565c0,color:#0d2b4b",
    "classDef transform fill:#f5f5f5,stroke:#757575,color:#212121",
    "classDef process fill:#fff3e0,stroke:#e65100,color:#4a2500",
    "classDef sink fill:#e8f5e9,stroke:#2e7d32,color:#10331a",
)


def explain_mermaid(graph: Graph, plan: Plan) -> str:
    """Return one subgraph per level; thick arrows are shuffles, dotted ones cross levels within their slot."""
    labels = Labels(graph)
    lines = ["flowchart LR"]
    for level in plan.levels:
        title = "Level 0 · source stage" if level.index == 0 else f"Level {level.index}"
        lines.append(f'    subgraph level{level.index}["{title}"]')
        lines += [f"        {_box(graph.node(id), labels)}" for id in level.nodes]
        lines.append("    end")
    for level in plan.levels:
        for chain in level.chains:
            tag = f'-- "{_text(_side(chain.source))}" -->' if chain.source.tag else "-->"
            lines.append(f"    {_id(chain.source.node)} {tag} {_id(chain.target)}")
        for edge in level.outgoing:
            side = f"{_side(edge.source)}, " if edge.source.tag else ""
            how = f"shuffle by {', '.join(edge.key)}" if edge.key else "broadcast" if edge.broadcast else "forward"
            arrow = f'== "{_text(side + how)}" ==>' if edge.key else f'-. "{_text(side + how)}" .->'
            lines.append(f"    {_id(edge.source.node)} {arrow} {_id(edge.target)}")
    lines += [f"    {style}" for style in _STYLES]
    return "\n".join(lines) + "\n"


def _box(node: Node, labels: Labels) -> str:
    parts = [f"<b>{_text(labels.node(node.id))}</b>"]
    match node:
        case Source():
            opening, closing, style = "([", "])", "source"
            parts.insert(0, "source")
        case Transform():
            opening, closing, style = "[", "]", "transform"
            parts.insert(0, node.kind)
            parts += [f"{_text(state.name)}: {_text(str(state))}" for state in node.states]
        case Process():
            opening, closing, style = "[[", "]]", "process"
            parts.insert(0, _text(name_of(node.function) or "process"))
            parts += [f"{_text(state.name)}: {_text(str(state))}" for state in node.states]
        case SinkNode():
            opening, closing, style = "[(", ")]", "sink"
            parts.insert(0, _text(name_of(node.target) or "sink"))
    return f'{_id(node.id)}{opening}"{"<br/>".join(parts)}"{closing}:::{style}'


def _id(node: NodeId) -> str:
    return f"n{node}"


def _side(stream: StreamRef) -> str:
    return f"side output {stream.tag}"


_ENTITIES = str.maketrans({"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;"})


def _text(text: str) -> str:
    """Escape text in quotes, using Mermaid's entities for characters that it would treat as markup."""
    return text.translate(_ENTITIES)
