"""Levels of graphs: some by hand, many at random."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.ids import Uid
from tidegate.graph.levels import Plan, plan
from tidegate.graph.model import Graph, Input, Node, NodeId, Process, SinkNode, Source, StreamRef, Transform
from tidegate.graph.validate import check
from tidegate.schema.schema import Schema

_ROWS = Schema.parse("k int, v string")


def _graph(*nodes: tuple[Any, ...]) -> Graph:
    """Nodes as (kind, *inputs); an input is the index of a node, or (index, tag)."""
    made: list[Node] = []
    for number, (kind, *inputs) in enumerate(nodes):
        id, uid = NodeId(number), Uid(f"{kind}-{number}")
        streams = tuple(StreamRef(NodeId(i)) if isinstance(i, int) else StreamRef(NodeId(i[0]), i[1]) for i in inputs)
        input = Input(streams, _ROWS, ("k",) if kind == "process" else ())
        match kind:
            case "source":
                made.append(Source(id=id, uid=uid, schema=_ROWS, frame=None))
            case "map":
                made.append(Transform(id=id, kind="map", function=len, input=input, schema=_ROWS, name="map"))
            case "process":
                made.append(
                    Process(
                        id=id,
                        uid=uid,
                        function=None,
                        input=input,
                        schema=_ROWS,
                        states=(),
                        side_outputs=(("side", _ROWS),),
                    )
                )
            case "sink":
                made.append(SinkNode(id, uid, None, input))
    return check(Graph("job", tuple(made)))


def _levels(graph: Graph) -> list[int]:
    planned = plan(graph)
    return [planned.level_of(node.id) for node in graph.nodes]


@pytest.mark.feature("C21")
def test_a_map_before_a_key_stays_in_the_source_stage() -> None:
    assert _levels(_graph(("source",), ("map", 0), ("map", 1), ("process", 2), ("sink", 3))) == [0, 0, 0, 1, 1]


def test_a_map_that_feeds_no_key_joins_the_sink() -> None:
    assert _levels(_graph(("source",), ("map", 0), ("sink", 1))) == [0, 1, 1]


@pytest.mark.feature("C21")
def test_a_map_behind_a_process_is_chained_to_it() -> None:
    planned = plan(_graph(("source",), ("process", 0), ("map", (1, "side")), ("process", 2)))
    assert [level.nodes for level in planned.levels] == [(0,), (1, 2), (3,)]
    assert [chain.target for chain in planned.levels[1].consumers(StreamRef(NodeId(1), "side"))] == [2]


def test_an_edge_over_a_level_is_passed_through() -> None:
    planned = plan(_graph(("source",), ("process", 0), ("process", 0, 1), ("sink", 0, 2)))
    long = [edge for edge in planned.edges if edge.to_level == 2 and edge.from_level == 0]
    assert [(edge.target, edge.key) for edge in long] == [(2, ("k",)), (3, ())]
    assert planned.levels[1].passing == tuple(long)


def test_a_stream_united_with_itself_is_read_twice() -> None:
    planned = plan(_graph(("source",), ("process", 0, 0), ("map", 1, 1)))
    assert len(planned.edges) == 2
    assert len(planned.levels[1].consumers(StreamRef(NodeId(1)))) == 2


@st.composite
def _graphs(draw: Any) -> Graph:
    nodes: list[tuple[Any, ...]] = [("source",)]
    streams: list[Any] = [0]
    for number in range(1, draw(st.integers(1, 20))):
        kind = draw(st.sampled_from(["source", "map", "map", "process", "process", "sink"]))
        inputs = () if kind == "source" else draw(st.lists(st.sampled_from(streams), min_size=1, max_size=3))
        nodes.append((kind, *inputs))
        if kind != "sink":
            streams.append(number)
        if kind == "process":
            streams.append((number, "side"))
    return _graph(*nodes)


@pytest.mark.feature("C21")
@given(_graphs())
def test_every_row_path_exists_exactly_once(graph: Graph) -> None:
    planned = plan(graph)
    meant = Counter(
        (stream, node.id, number)
        for node in graph.nodes
        for number, input in enumerate(graph.inputs(node))
        for stream in input.streams
    )
    chains = [chain for level in planned.levels for chain in level.chains]
    assert Counter((path.source, path.target, path.input) for path in (*planned.edges, *chains)) == meant  # type: ignore[attr-defined]


@given(_graphs())
def test_every_node_has_one_level_and_comes_after_what_it_reads(graph: Graph) -> None:
    planned = plan(graph)
    assert sorted(id for level in planned.levels for id in level.nodes) == [node.id for node in graph.nodes]
    for level in planned.levels:
        assert level.nodes
        for chain in level.chains:
            assert level.nodes.index(chain.source.node) < level.nodes.index(chain.target)


@given(_graphs())
def test_edges_go_up_and_are_known_on_every_level_they_touch(graph: Graph) -> None:
    planned = plan(graph)
    assert [edge.id for edge in planned.edges] == list(range(len(planned.edges)))
    for edge in planned.edges:
        assert edge.from_level == planned.level_of(edge.source.node) < edge.to_level == planned.level_of(edge.target)
        for level in planned.levels:
            assert (edge in level.outgoing) == (level.index == edge.from_level)
            assert (edge in level.passing) == (edge.from_level < level.index < edge.to_level)
            assert (edge in level.incoming) == (level.index == edge.to_level)


@pytest.mark.feature("C21")
@given(_graphs())
def test_every_keyed_input_crosses_a_shuffle_and_the_source_stage_only_prepares_one(graph: Graph) -> None:
    planned = plan(graph)
    for process in graph.processes:
        keyed = [edge for edge in planned.edges if edge.target == process.id]
        assert Counter(edge.source for edge in keyed) == Counter(process.input.streams)
        assert all(edge.key == ("k",) for edge in keyed)
    for id in planned.levels[0].nodes:
        node = graph.node(id)
        assert isinstance(node, Source) or (isinstance(node, Transform) and id in _before_a_key(planned))


def _before_a_key(planned: Plan) -> set[NodeId]:
    found = {edge.source.node for edge in planned.edges if edge.key}
    for chain in reversed(planned.levels[0].chains):
        if chain.target in found:
            found.add(chain.source.node)
    return found


def test_fifty_operators_are_planned_in_no_time() -> None:
    nodes: list[tuple[Any, ...]] = [("source",)]
    for number in range(1, 50):
        nodes.append(("process" if number % 10 == 0 else "map", number - 1, max(0, number - 7)))
    graph = _graph(*nodes)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        planned = plan(graph)
        times.append(time.perf_counter() - start)
    assert len(planned.levels) == 5
    assert min(times) < 0.010
