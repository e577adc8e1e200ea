"""Watermark and clock, decided from what earlier epochs saw."""

from __future__ import annotations

import pytest

from tidegate.core.errors import WrongValue
from tidegate.core.ids import Uid
from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK, EpochTime
from tidegate.graph.event_times import split_name
from tidegate.graph.model import NodeId, Source
from tidegate.runtime.epochs.clocks import Clocks, is_due
from tidegate.schema.schema import Schema

SCHEMA = Schema.parse("ts timestamp")


def source(
    uid: str, late: int = 0, idle: int | None = None, event_time: str | None = "ts", split=None, generator=None
) -> Source:
    return Source(
        id=NodeId(0),
        uid=Uid(uid),
        schema=SCHEMA,
        frame=None,
        bounded=False,
        event_time=event_time,
        out_of_orderness_ms=late,
        idleness_ms=idle,
        split=split,
        watermark=None,
        generator=generator,
    )


def after(clocks: Clocks, sources: list[Source], wall: int, **seen: int) -> Clocks:
    return clocks.after(clocks.next(sources, wall), {Uid(uid): ms for uid, ms in seen.items()})


@pytest.mark.feature("B1")
def test_an_epoch_applies_what_the_epochs_before_it_saw():
    sources = [source("a", late=100)]
    clocks = after(Clocks(), sources, 1, a=1000)
    assert clocks.watermark_ms == MIN_WATERMARK
    assert clocks.next(sources, 2) == EpochTime(2, MIN_WATERMARK, 899)
    clocks = after(clocks, sources, 2, a=5000)
    assert clocks.next(sources, 3) == EpochTime(3, 899, 4899)


def test_the_slowest_source_holds_the_watermark_and_one_without_rows_holds_it_altogether():
    sources = [source("a"), source("b"), source("no event time", event_time=None)]
    clocks = after(Clocks(), sources, 1, a=1000)
    assert clocks.next(sources, 2).watermark_ms == MIN_WATERMARK
    clocks = after(clocks, sources, 2, b=700)
    assert clocks.next(sources, 3).watermark_ms == 699


def test_neither_clock_moves_backwards():
    sources = [source("a")]
    clocks = after(Clocks(), sources, 500, a=1000)
    clocks = after(clocks, sources, 500, a=20)
    assert clocks.next(sources, 100) == EpochTime(500, 999, 999)
    assert clocks.next([*sources, source("new")], 600).watermark_ms == 999


def test_an_idle_source_does_not_hold_the_watermark_until_it_has_rows_again():
    sources = [source("a"), source("b", idle=1000)]
    clocks = Clocks().began(sources, 0)
    clocks = after(clocks, sources, 10, a=5000)
    assert clocks.next(sources, 999).watermark_ms == MIN_WATERMARK
    assert clocks.next(sources, 1000).watermark_ms == 4999
    clocks = after(clocks, sources, 1000, b=100)
    assert clocks.next(sources, 1500).watermark_ms == 4999
    all_idle = [source("a", idle=10), source("b", idle=10)]
    assert clocks.next(all_idle, 90_000).watermark_ms == 4999


def test_the_slowest_split_holds_the_watermark_of_its_source_until_it_is_idle():
    sources = [source("a", late=100, idle=1000, split="ts")]
    fast, slow = split_name("a", "0"), split_name("a", "1")
    clocks = Clocks().began(sources, 0).after(EpochTime(10), {fast: 9000, slow: 2000}, sources)
    assert clocks.next(sources, 20).watermark_ms == 1899
    clocks = clocks.after(EpochTime(900, 0, 1899), {fast: 9500}, sources)
    assert clocks.next(sources, 1009).watermark_ms == 1899
    assert clocks.next(sources, 1010).watermark_ms == 9399
    clocks = clocks.after(EpochTime(1100, 0, 9399), {fast: 9600}, sources)
    assert slow not in clocks.greatest
    clocks = clocks.after(EpochTime(1200, 0, 9499), {slow: 3000}, sources)
    assert clocks.next(sources, 1300).watermark_ms == 9499


def test_each_split_that_is_not_idle_has_its_own_watermark():
    sources = [source("a", late=100, idle=1000, split="ts"), source("b", late=5)]
    seen = {split_name("a", "0"): 9000, split_name("a", "1"): 2000, "b": 7}
    clocks = Clocks().began(sources, 0).after(EpochTime(10), seen, sources)
    assert clocks.split_watermarks(sources) == {("a", "0"): 8899, ("a", "1"): 1899}
    clocks = clocks.after(EpochTime(1100, 0, 1899), {split_name("a", "0"): 9500}, sources)
    assert clocks.split_watermarks(sources) == {("a", "0"): 9399}


def test_a_watermark_function_is_not_called_to_show_the_watermarks_of_splits():
    def never(greatest, clock):
        raise AssertionError("called")

    sources = [source("a", split="ts", generator=never)]
    clocks = Clocks(greatest={split_name("a", "0"): 9000})
    assert clocks.split_watermarks(sources) == {}


def test_an_unknown_split_does_not_hold_the_watermark():
    sources = [source("a", split="ts"), source("b")]
    clocks = Clocks().after(EpochTime(10), {split_name("a", "7"): 500, "b": 400}, sources)
    assert clocks.next(sources, 20).watermark_ms == 399


def test_a_watermark_function_gets_the_greatest_time_and_the_clock():
    sources = [source("a", generator=lambda greatest, clock: min(greatest, clock - 50))]
    clocks = Clocks().after(EpochTime(10), {"a": 500}, sources)
    assert clocks.next(sources, 400).watermark_ms == 350
    assert clocks.next(sources, 4000).watermark_ms == 500
    with pytest.raises(WrongValue, match="source 'a' returned None"):
        clocks.next([source("a", generator=lambda greatest, clock: None)], 5)


@pytest.mark.feature("L1")
def test_the_end_of_bounded_input_is_the_end_of_time():
    assert Clocks().next([source("a")], 5, final=True).watermark_ms == MAX_WATERMARK


@pytest.mark.feature("B1")
@pytest.mark.parametrize(
    ("pending", "due"),
    [((None, None), False), ((99, None), True), ((100, None), True), ((101, None), False), ((None, 50), True),
     ((None, 51), False), ((101, 51), False), ((101, 50), True)],
)  # fmt: skip
def test_a_task_has_something_to_do_when_either_clock_reached_a_timer(pending, due):
    assert is_due(pending, EpochTime(50, 0, 100)) is due
