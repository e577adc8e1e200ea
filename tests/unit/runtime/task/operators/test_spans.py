"""`ctx.span` in a user function: added up by name, with the acknowledgement."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.runtime.task.operators.spans import MOST_NAMES, OTHERS, SpanTimes


def test_uses_of_a_name_are_added_up() -> None:
    times = SpanTimes()
    for took_ns in (2_000_000, 5_000_000, 1_000_000):
        times.add("parse", took_ns)
    assert times.totals() == {"parse": (3, 8_000, 5_000)}


def test_a_block_is_measured_also_when_it_raises_and_when_nested() -> None:
    times = SpanTimes()
    with pytest.raises(ValueError), times.span("outer"), times.span("outer"), times.span("inner"):
        raise ValueError
    assert {name: count for name, (count, _, _) in times.totals().items()} == {"outer": 2, "inner": 1}
    assert times.totals()["outer"][1] >= times.totals()["inner"][1]


def test_a_span_name_for_every_row_does_not_enlarge_the_acknowledgement() -> None:
    times = SpanTimes()
    for number in range(MOST_NAMES + 50):
        times.add(f"user {number}", 1)
    assert len(times.totals()) == MOST_NAMES + 1
    assert times.totals()[OTHERS][0] == 50


class Spanning(tg.KeyedProcessFunction):
    def open(self, ctx: tg.RuntimeContext) -> None:
        with ctx.span("connect"):
            pass

    def process_element(self, row, ctx):
        with ctx.span("lookup"):
            pass
        yield row.k, 1


class Mapped(tg.MapFunction):
    def open(self, ctx: tg.RuntimeContext) -> None:
        self.ctx = ctx

    def map(self, row):
        with self.ctx.span("parse"):
            return row


def test_the_harness_counts_spans_of_all_instances_across_snapshots() -> None:
    with tg.testing.harness(Spanning(), key="k", schema="k string", parallelism=2) as h:
        h.process(("a",), ("b",))
        h.snapshot()
        h.process(("c",))
        assert h.spans()["lookup"] == 3
        assert h.spans()["connect"] == 4


def test_a_function_without_a_context_in_its_calls_keeps_that_of_open() -> None:
    with tg.testing.harness(Mapped(), schema="k string") as h:
        h.process(("a",), ("b",))
        assert h.spans() == {"parse": 2}


class Windowed(tg.ProcessWindowFunction):
    def process(self, key, context, elements):
        with context.span("emit"):
            return [(key, len(list(elements)))]


def test_window_functions_measure_too() -> None:
    job = tg.Job("spans", parallelism=1)
    rows = job.source("in", tg.testing.frame("k string, ts timestamp"), event_time="ts")
    windows = rows.key_by("k").window(tg.TumblingEventTimeWindows.of("1 min"))
    counted = windows.process("w", Windowed(), schema="k string, n bigint")
    from datetime import UTC, datetime

    with tg.testing.harness(counted) as h:
        h.process(("a", datetime(2026, 1, 1, tzinfo=UTC)))
        h.advance_watermark(datetime(2026, 1, 2, tzinfo=UTC))
        assert h.spans() == {"emit": 1}
