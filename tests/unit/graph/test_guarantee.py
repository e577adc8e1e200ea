"""The weakest part sets the level."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame, NullSink
from tidegate.core.guarantee import Guarantee
from tidegate.core.ids import Uid
from tidegate.graph.guarantee import of_job

EXACT, LEAST, MOST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE


def job_with(*sinks):
    job = tg.Job("j")
    rows = job.source("in", Frame("a int"))
    for number, sink in enumerate(sinks):
        rows.sink(f"out{number}", sink)
    return job


@pytest.mark.feature("J14", "J29")
@pytest.mark.parametrize(
    ("sinks", "engine", "sources", "level", "weakest"),
    [
        ([tg.FileSink("out")], EXACT, {}, EXACT, ()),
        ([tg.FileSink("out"), tg.PrintSink()], EXACT, {}, LEAST, ("sink 'out1'",)),
        ([tg.FileSink("out")], MOST, {}, MOST, ("the engine",)),
        ([tg.FileSink("out")], EXACT, {Uid("in"): MOST}, MOST, ("source 'in'",)),
        ([tg.PrintSink()], LEAST, {}, LEAST, ("the engine", "sink 'out0'")),
        ([tg.CollectSink()], EXACT, {}, LEAST, ("sink 'out0'",)),
        ([tg.CallbackSink(print)], EXACT, {}, LEAST, ("sink 'out0'",)),
        ([NullSink()], EXACT, {}, LEAST, ("sink 'out0'",)),
        ([tg.WriteAheadSink(print)], EXACT, {}, LEAST, ("sink 'out0'",)),
        ([tg.WriteAheadSink(print, idempotent=True)], EXACT, {}, EXACT, ()),
        ([tg.PostgresSink("", "t")], EXACT, {}, EXACT, ()),
    ],
)
def test_the_weakest_of_source_engine_and_sink(sinks, engine, sources, level, weakest):
    found = of_job(job_with(*sinks).graph(), engine, sources)
    assert (found.level, found.weakest) == (level, weakest)


@pytest.mark.feature("J14")
def test_explain_names_the_component_that_limits_the_guarantee():
    text = job_with(tg.FileSink("out"), tg.CallbackSink(print)).explain()
    assert "at least once with checkpoints, for sink 'out1'; at most once without" in text
    assert "sink out0 · FileSink\n     reads         in\n     guarantee     exactly once" in text
    assert "sink out1 · CallbackSink\n     reads         in\n     guarantee     at least once" in text
    assert "\nexactly once with checkpoints; at most once without\n" in job_with(tg.FileSink("out")).explain()


@pytest.mark.feature("J14")
def test_a_source_whose_loss_is_accepted_sets_the_level():
    job = tg.Job("j")
    job.source("in", Frame("a int"), at_most_once=True).sink("out", tg.FileSink("out"))
    text = job.explain()
    assert "\nat most once with checkpoints, for source 'in'; at most once without\n" in text
    assert "guarantee     at most once: rows read after a checkpoint do not come again" in text


def test_guarantees_are_ordered():
    assert sorted([EXACT, MOST, LEAST]) == [MOST, LEAST, EXACT]
    assert min(EXACT, LEAST) is LEAST
