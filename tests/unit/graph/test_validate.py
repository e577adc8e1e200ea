"""What is refused, and that the refusal says what to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegate.core.errors import GraphError
from tidegate.core.ids import Uid
from tidegate.graph.model import Graph, Input, NodeId, Process, SinkNode, Source, StreamRef, Transform
from tidegate.graph.states import Distribution, StateKind, StateSpec
from tidegate.graph.validate import DuplicateUid, check, check_key, check_name, check_runnable
from tidegate.schema.schema import Schema

ROWS = Schema.parse("user string, tags array<string>, ts timestamp")
FROM_SOURCE = Input((StreamRef(NodeId(0)),), ROWS)
SOURCE = Source(id=NodeId(0), uid=Uid("in"), schema=ROWS, frame=None, event_time="ts")
PROCESS = Process(
    id=NodeId(1),
    uid=Uid("op"),
    function=None,
    input=replace(FROM_SOURCE, key=("user",)),
    schema=ROWS,
    states=(),
    side_outputs=(("late", ROWS),),
)
SINK = SinkNode(NodeId(2), Uid("out"), None, Input((StreamRef(NodeId(1), "late"),), ROWS))


def graph(*nodes: Any) -> Graph:
    return Graph("job", nodes)


def test_a_right_graph_is_given_back() -> None:
    right = graph(SOURCE, PROCESS, SINK)
    assert check(right) is right
    check_runnable(right)


def test_a_uid_is_used_once_whatever_it_names() -> None:
    with pytest.raises(DuplicateUid, match="to source 'in' and to process 'in'"):
        check(graph(SOURCE, replace(PROCESS, uid=Uid("in"))))


@pytest.mark.parametrize("uid", ["a", "orders by user", "größe-1.2", "x" * 200, "a\\b"])
def test_names_that_are_fine(uid: str) -> None:
    assert check_name(uid, "uid") == uid


@pytest.mark.parametrize("uid", ["", None, 5, "a/b", "a\nb", "a\0", " a", "a ", ".", "..", "x" * 201, "\ud800"])
def test_names_that_are_not(uid: Any) -> None:
    with pytest.raises(GraphError, match="uid"):
        check_name(uid, "uid")


@pytest.mark.feature("A9")
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ((), "at least one"),
        (("who",), "The columns are user, tags, ts"),
        (("tags",), "array<string> and cannot be a key"),
        (("user", "user"), "twice"),
    ],
)
def test_keys_that_cannot_be(columns: tuple[str, ...], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        check_key(columns, ROWS)


@pytest.mark.parametrize(
    "kind",
    [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
        "decimal(10,2)",
    ],
)
def test_types_of_keys(kind: str) -> None:
    check_key(("k",), Schema.parse(f"k {kind}"))


@pytest.mark.feature("A9")
def test_state_needs_a_key() -> None:
    with pytest.raises(GraphError, match="key_by needs at least one column"):
        check(graph(SOURCE, replace(PROCESS, input=FROM_SOURCE)))


@pytest.mark.feature("A9")
def test_a_function_without_a_key_may_have_lists_of_its_task_and_no_state_of_keys() -> None:
    lists = StateSpec(name="offsets", kind=StateKind.LIST, value=int, distribution=Distribution.SPLIT)
    of_keys = StateSpec(name="total", kind=StateKind.VALUE, value=int)
    transform = replace(TRANSFORM, uid=Uid("map"), states=(lists,))
    check(graph(SOURCE, transform))
    with pytest.raises(GraphError, match="declares keyed state, but has no key"):
        check(graph(SOURCE, replace(transform, states=(lists, of_keys))))


OTHER = Schema.parse("user string")
TRANSFORM = Transform(id=NodeId(1), kind="map", function=len, input=FROM_SOURCE, schema=ROWS, name="f")


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ((replace(SOURCE, event_time="tags"),), "not a timestamp"),
        ((replace(SOURCE, event_time="when"),), "no column .when. of event times"),
        ((replace(SOURCE, id=NodeId(3)),), "Ids count the nodes"),
        ((SOURCE, replace(PROCESS, input=replace(PROCESS.input, streams=(StreamRef(NodeId(1)),)))), "Cycles"),
        ((SOURCE, replace(PROCESS, input=replace(PROCESS.input, streams=()))), "reads nothing"),
        ((SOURCE, replace(PROCESS, input=replace(PROCESS.input, schema=OTHER))), "cannot be united"),
        ((SOURCE, PROCESS, replace(SINK, input=Input((StreamRef(NodeId(1), "lost"),), ROWS))), "used but not declared"),
        ((SOURCE, PROCESS, replace(SINK, input=replace(SINK.input, key=("user",)))), "Leave out key_by"),
        ((SOURCE, PROCESS, SINK, replace(SINK, id=NodeId(3), uid=Uid("b"), input=Input((StreamRef(NodeId(2)),), ROWS))),
         "a sink ends its stream"),
        ((SOURCE, replace(TRANSFORM, kind="reduce")), "unknown kind"),
        ((SOURCE, replace(TRANSFORM, kind="filter", schema=OTHER)), "changes the columns"),
        ((SOURCE, replace(TRANSFORM, input=PROCESS.input)), "has no state"),
        ((SOURCE, replace(PROCESS, states=(StateSpec(name="s", kind=StateKind.VALUE, value=int),) * 2)), "state 's' twice"),
        ((SOURCE, replace(PROCESS, side_outputs=PROCESS.side_outputs * 2)), "side output 'late' twice"),
    ],
)  # fmt: skip
def test_graphs_that_are_wrong(nodes: tuple[Any, ...], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        check(graph(*nodes))


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ((SOURCE, PROCESS), "has no sink"),
        ((SINK,), "has no source"),
        ((SOURCE, replace(SOURCE, uid=Uid("table"), bounded=True), SINK), r"bounded sources \(table\) with streaming"),
    ],
)
def test_graphs_that_cannot_run(nodes: tuple[Any, ...], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        check_runnable(graph(*nodes))
