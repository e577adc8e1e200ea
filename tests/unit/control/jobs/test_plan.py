"""Flink's plan of a job with two sources, three levels, a side output and a row path over a level."""

from __future__ import annotations

import tidegate as tg
from tests.unit.api.shop import Frame, NullSink, shop
from tidegate.control.jobs.plan import job_plan, vertices
from tidegate.control.messages.plan import JobPlan
from tidegate.graph.levels import plan
from tidegate.graph.outline import Outline, outline


def drawn(job: tg.Job) -> Outline:
    graph = job.graph()
    return outline(graph, plan(graph))


def planned(job: tg.Job) -> JobPlan:
    return job_plan("f" * 32, "shop", drawn(job), dict.fromkeys(range(9), 4))


def test_operators_that_share_a_task_are_one_vertex() -> None:
    assert [vertex.name for vertex in vertices(drawn(shop()))] == [
        "Source: orders -> filter, Source: refunds -> negated",
        "totals -> Sink: alerts, Sink: archive",
        "regions -> Sink: board",
    ]


def test_inputs_have_their_level_and_ship_strategy() -> None:
    found = [[(each.num, each.id, each.ship_strategy) for each in node.inputs] for node in planned(shop()).nodes]
    assert found == [
        [],
        [(0, "level-0", "HASH"), (1, "level-0", "RESCALE")],
        [(0, "level-1", "HASH"), (1, "level-0", "HASH")],
    ]


def test_names_in_descriptions_are_escaped_as_html() -> None:
    job = tg.Job("j")
    job.source("<b>", Frame("value string")).sink("out", NullSink())
    assert planned(job).nodes[0].description == "Source: &lt;b&gt;"
