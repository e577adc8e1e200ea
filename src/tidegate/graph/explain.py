"""Formats a plan as text, from the sources down: every level with its operators, then the rows that leave it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.core.durations import show_ms
from tidegate.core.guarantee import Guarantee
from tidegate.core.ids import Uid
from tidegate.graph.guarantee import of_job, of_sink
from tidegate.graph.labels import Labels, name_of, summary_of
from tidegate.graph.levels import Edge, Level, Plan
from tidegate.graph.model import Graph, Node, Process, SinkNode, Source, StreamRef, Transform
from tidegate.graph.on_error import ErrorAction
from tidegate.graph.parallelism import default_max_parallelism

Lines = Iterator[str]
_INDENT = 14


def explain_text(
    graph: Graph,
    plan: Plan,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    once_only: Mapping[Uid, str] | None = None,
) -> str:
    """The whole job as text. The same graph gives the same text.

    `once_only`: sources that cannot be re-read, each with a description.
    """
    labels = Labels(graph)
    weak = once_only or {}
    lines = [f"Job {graph.job}", _totals(graph, plan), _parallel(parallelism, max_parallelism)]
    lines += [_guarantee(graph, weak), ""]
    for level in plan.levels:
        last = level is plan.levels[-1]
        lines.append(("└─ " if last else "┌─ " if level.index == 0 else "├─ ") + _title(level))
        rail = " " if last else "│"
        for block in _blocks(graph, level, labels, weak):
            lines.append(rail)
            lines.extend(f"{rail}  {line}" for line in block)
        if not last:
            lines.append(rail)
    if not graph.sinks:
        lines += ["", "There is no sink yet: add one with stream.sink(uid, target) before the job is run."]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _totals(graph: Graph, plan: Plan) -> str:
    states = sum(len(node.states) for node in graph.stateful)
    return " · ".join(
        (
            _count(len(graph.sources), "source"),
            f"{_count(len(graph.processes), 'keyed operator')} with {_count(states, 'state')}",
            _count(len(graph.sinks), "sink"),
            _count(len(plan.levels) - 1, "shuffle") + " in every epoch",
        )
    )


def _parallel(parallelism: int | None, max_parallelism: int | None) -> str:
    if parallelism is None:
        limit = "" if max_parallelism is None else f", at most {max_parallelism}"
        return f"parallelism chosen from the Spark session{limit}"
    return f"parallelism {parallelism}, at most {max_parallelism or default_max_parallelism(parallelism)}"


def _guarantee(graph: Graph, once_only: Mapping[Uid, str]) -> str:
    """Describe the guarantee of the job; the engine is exactly-once if it takes checkpoints."""
    job = of_job(graph, sources=dict.fromkeys(once_only, Guarantee.AT_MOST_ONCE))
    because = f", for {', '.join(job.weakest)}" if job.weakest else ""
    return f"{job.level} with checkpoints{because}; {Guarantee.AT_MOST_ONCE} without"


def _title(level: Level) -> str:
    return "Level 0 · source stage, before the first shuffle" if level.index == 0 else f"Level {level.index}"


def _blocks(graph: Graph, level: Level, labels: Labels, once_only: Mapping[Uid, str]) -> Iterator[list[str]]:
    for id in level.nodes:
        yield list(_node(graph.node(id), labels, once_only))
    leaving = [_arrow(edge, labels) for edge in level.outgoing]
    leaving += [f"{_arrow(edge, labels)} (passing through)" for edge in level.passing]
    if leaving:
        yield _aligned(leaving)


def _arrow(edge: Edge, labels: Labels) -> str:
    by = "in Spark SQL" if edge.combined_from is None else "by the sending task"
    combined = f", combined {by} first" if edge.combine is not None else ""
    how = f"shuffle by {', '.join(edge.key)}{combined}" if edge.key else "broadcast" if edge.broadcast else "forward"
    beyond = f" on level {edge.to_level}" if edge.to_level > edge.from_level + 1 else ""
    return f"{labels.stream(edge.source)} ── {how} ──▶ {labels.node(edge.target)}{beyond}"


def _node(node: Node, labels: Labels, once_only: Mapping[Uid, str]) -> Lines:
    match node:
        case Source():
            return _source(node, labels, once_only.get(node.uid))
        case Transform():
            return _transform(node, labels)
        case Process():
            return _process(node, labels)
        case SinkNode():
            return _sink(node, labels)


def _source(source: Source, labels: Labels, reads: str | None) -> Lines:
    """`reads` describes a source that cannot be re-read."""
    yield f"source {labels.node(source.id)} · {'bounded' if source.bounded else 'streaming'}"
    yield from _part("columns", str(source.schema) + _unread(StreamRef(source.id), labels))
    if source.at_most_once or reads is not None:
        yield from _part("guarantee", f"{Guarantee.AT_MOST_ONCE}: rows read after a checkpoint do not come again")
    if reads is not None:
        yield from _part("reads", reads)
        if not source.at_most_once:
            yield from _part("note", "refused by a job with checkpoints, unless at_most_once=True accepts the loss")
    if source.event_time is not None:
        yield from _part("event time", f"{source.event_time}{_watermarks(source)}")


def _watermarks(source: Source) -> str:
    column = "" if source.watermark is None else f", watermarks of {source.watermark}"
    split = "" if source.split is None else f", for each {source.split}"
    if source.generator is not None:
        order = "watermarks by a function"
    elif source.out_of_orderness_ms:
        order = f"rows up to {show_ms(source.out_of_orderness_ms)} late"
    else:
        order = "in order"
    return f"{column}, {order}{split}"


def _transform(node: Transform, labels: Labels) -> Lines:
    yield _headline(node.kind, labels.node(node.id), node.function)
    yield from _summary(node.function)
    yield from _reads(node, labels)
    yield from _states(node)
    if node.calls is not None:
        yield from _part("calls", str(node.calls))
    yield from _on_error(node)
    if node.schema != node.input.schema:
        yield from _part("emits", str(node.schema))
    yield from _side_outputs(node, labels)
    if not labels.is_read(StreamRef(node.id)):
        yield from _part("note", "nothing reads its rows")


def _process(node: Process, labels: Labels) -> Lines:
    yield _headline("process", labels.node(node.id), node.function)
    yield from _summary(node.function)
    yield from _reads(node, labels)
    yield from _part("key", str(node.input.schema.select(node.input.key)))
    yield from _states(node)
    yield from _on_error(node)
    yield from _part("emits", str(node.schema) + _unread(StreamRef(node.id), labels))
    yield from _side_outputs(node, labels)


def _sink(node: SinkNode, labels: Labels) -> Lines:
    yield _headline("sink", labels.node(node.id), node.target)
    yield from _reads(node, labels)
    yield from _part("guarantee", str(of_sink(node)))


def _states(node: Transform | Process) -> Lines:
    width = max((len(state.name) for state in node.states), default=0)
    yield from _part("state", *(f"{state.name:<{width}}  {state}" for state in node.states))


def _on_error(node: Transform | Process) -> Lines:
    if node.on_error.action is not ErrorAction.FAIL:
        yield from _part("on error", str(node.on_error.action))


def _side_outputs(node: Transform | Process, labels: Labels) -> Lines:
    streams = [(tag, schema, StreamRef(node.id, tag)) for tag, schema in node.side_outputs]
    yield from _part("side output", *(f"{tag}: {schema}{_unread(ref, labels)}" for tag, schema, ref in streams))


def _headline(kind: str, label: str, function: object) -> str:
    name, plain = name_of(function), label.partition("#")[0]
    return (label if plain == kind else f"{kind} {label}") + (f" · {name}" if name and name != plain else "")


def _summary(function: object) -> Lines:
    summary = summary_of(function)
    if summary:
        yield f"  {summary}"


def _reads(node: Transform | Process | SinkNode, labels: Labels) -> Lines:
    inputs = node.inputs if isinstance(node, Process) else (node.input,)
    yield from _part("reads", *(" ∪ ".join(labels.stream(stream) for stream in input.streams) for input in inputs))


def _unread(stream: StreamRef, labels: Labels) -> str:
    return "" if labels.is_read(stream) else "  (nothing reads it)"


def _part(title: str, *values: str) -> Lines:
    for number, value in enumerate(values):
        yield f"  {'' if number else title:<{_INDENT}}{value}"


def _aligned(arrows: list[str]) -> list[str]:
    """Pad arrows in consecutive lines to the same length."""
    split = [arrow.split(" ── ", 1) for arrow in arrows]
    names = max(len(name) for name, _ in split)
    hows = max(len(rest.split(" ──▶ ", 1)[0]) for _, rest in split)
    drawn = []
    for name, rest in split:
        how, target = rest.split(" ──▶ ", 1)
        drawn.append(f"{name:>{names}} ── {how} ──{'─' * (hows - len(how))}▶ {target}")
    return drawn


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
