"""Rows combined before the shuffle give what the rows themselves give, in the harness."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.tiers.profiles import examples
from tests.unit.operators import combining
from tidegate.core.times import moment, time_ms
from tidegate.graph.levels import plan
from tidegate.schema.datatype import DataType
from tidegate.state.keys import distinct

SCHEMA = "user string, amount int, price double, ts timestamp"
EPOCHS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9) | st.none(), st.integers(-50, 150)), max_size=20),
        st.integers(-60, 200),
    ),
    max_size=4,
)
"""Rows, and the watermark applied after them."""
ASSIGNERS = {
    "tumbling": tg.TumblingEventTimeWindows.of("20 ms", "5 ms"),
    "sliding": tg.SlidingEventTimeWindows.of("30 ms", "20 ms"),
    "with gaps": tg.SlidingEventTimeWindows.of("20 ms", "50 ms", "15 ms"),
    "every slide": tg.SlidingEventTimeWindows.of("30 ms", "10 ms", "3 ms"),
    "sessions": tg.EventTimeSessionWindows.with_gap("20 ms"),
}


def aggregated(assigner, lateness=0, tag="late"):
    job = tg.Job("combining")
    rows = job.source("rows", tg.testing.frame(SCHEMA), event_time="ts")
    stream = rows.key_by("user").window(assigner).allowed_lateness(f"{lateness} ms")
    stream = stream.side_output_late_data(tag) if tag else stream
    return stream.aggregate(
        "of", n=tg.count(), some=tg.count("amount"), total=tg.sum("amount"), least=tg.min("amount"),
        most=tg.max("amount"), mean=tg.mean("price"), different=tg.approx_distinct("amount"),
    )  # fmt: skip


def outcome(stream, epochs, feed, backend="hashmap"):
    """What comes of all epochs, with a snapshot restored into another parallelism after each."""
    out, late, snapshot = [], [], None
    for number, (events, watermark) in enumerate([*epochs, ([], 10_000)]):
        rows = [(user, amount, float(amount or 0), moment(ms)) for user, amount, ms in events]
        with tg.testing.harness(stream, parallelism=1 + number % 3, restore=snapshot, state_backend=backend) as h:
            feed(h, rows)
            h.advance_watermark(watermark)
            out += h.output()
            late += h.side_output("late") if "late" in h.tested.sides else []
            snapshot = h.snapshot()
    assert snapshot.entries == ()
    return sorted(out), sorted(late, key=repr)


def one_by_one(h, rows):
    """Whether a late row joins a session, or fires one of its own, depends on what is there before it. Here, and in `combined`,
    rows that are not late come first. Spark promises no order."""
    h.process(*sorted(rows, key=lambda row: time_ms(row[3]) + 20 - 1 <= h.tested.time.watermark_ms))


def combined(h, rows):
    combining.feed(h, rows, h.tested.time.watermark_ms)


@pytest.mark.parametrize("kind", ASSIGNERS)
@pytest.mark.feature("A5", "B12")
@given(epochs=EPOCHS, lateness=st.sampled_from([0, 15]))
@settings(max_examples=examples(25))
def test_combined_rows_give_what_single_rows_give_and_late_ones_are_judged_alone(kind, epochs, lateness):
    stream = aggregated(ASSIGNERS[kind], lateness)
    assert outcome(stream, epochs, combined) == outcome(stream, epochs, one_by_one)


@pytest.mark.feature("B12")
def test_rows_that_share_one_window_and_not_another_are_not_combined():
    stream, epochs = aggregated(ASSIGNERS["sliding"]), [([("a", 1, 5), ("a", 1, 15)], -60)]
    assert outcome(stream, epochs, combined) == outcome(stream, epochs, one_by_one)


@pytest.mark.feature("B12")
@pytest.mark.parametrize("kind", ["tumbling", "every slide"])
def test_rows_on_both_sides_of_the_offset_are_not_combined(kind):
    stream, epochs = aggregated(ASSIGNERS[kind]), [([("a", 1, 2), ("a", 1, 3), ("a", 2, 4), ("a", 4, 6)], -60)]
    assert outcome(stream, epochs, combined) == outcome(stream, epochs, one_by_one)


@pytest.mark.feature("B12")
def test_rows_that_are_late_for_a_window_with_an_offset_fire_it_one_by_one():
    """Two rows of the window from -5 to 25, which has fired and is kept for 15 ms."""
    stream = aggregated(tg.SlidingEventTimeWindows.of("30 ms", "20 ms", "15 ms"), lateness=15)
    epochs = [([], 26), ([("a", 1, 20), ("a", 2, 20)], 26)]
    out, _ = outcome(stream, epochs, combined)
    assert [row.total for row in out if row.window_end == moment(25)] == [1, 3]


@pytest.mark.feature("B12")
def test_rows_of_windows_with_gaps_are_sent_as_they_are():
    """A pane in a gap belongs to no window. Whether its rows are late would then be decided by the start of the pane."""

    def planned(assigner):
        job = tg.Job("plan")
        rows = job.source("rows", tg.testing.frame(SCHEMA), event_time="ts")
        rows.key_by("user").window(assigner).aggregate("sums", n=tg.count()).sink("out", tg.DiscardSink())
        return [edge.combine is not None for edge in plan(job.graph()).edges]

    assert planned(tg.SlidingEventTimeWindows.of("20 ms", "20 ms", "15 ms")) == [True]
    assert planned(tg.SlidingEventTimeWindows.of("20 ms", "21 ms", "15 ms")) == [False]


@pytest.mark.feature("B12")
def test_combined_rows_that_connect_two_sessions_keep_what_both_held():
    stream, epochs = aggregated(ASSIGNERS["sessions"]), [([("a", 1, 0), ("a", 2, 40)], -60), ([("a", 4, 20)], -60)]
    (row,), _ = outcome(stream, epochs, combined)
    assert (row.n, row.total) == (3, 7)


@pytest.mark.parametrize("kind", ["sliding", "sessions"])
@given(epochs=EPOCHS)
@settings(max_examples=examples(5))
def test_the_same_in_rocksdb(kind, epochs):
    stream = aggregated(ASSIGNERS[kind])
    assert outcome(stream, epochs, combined, "rocksdb") == outcome(stream, epochs, one_by_one)


def test_what_is_dropped_is_counted_by_rows():
    stream = aggregated(ASSIGNERS["tumbling"], tag=None)
    with tg.testing.harness(stream) as h:
        h.advance_watermark(100)
        combining.feed(h, [("a", 1, 1.0, moment(7)), ("a", 2, 1.0, moment(7)), ("a", 3, 1.0, moment(110))], 100)
        assert h._subtasks[0].operator.late_dropped == 2
        h.advance_watermark(1000)
        assert [row[3] for row in h.output()] == [1]


def test_spark_sql_combines_only_where_nothing_else_reads_the_rows():
    def edges(*, filtered=False, also=False, trigger=None, two_stage=True):
        job = tg.Job("plan")
        rows = job.source("rows", tg.testing.frame(SCHEMA), event_time="ts")
        read = rows.filter(lambda row: True) if filtered else rows
        stream = read.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
        stream = stream if trigger is None else stream.trigger(trigger)
        stream.aggregate("sums", n=tg.count()).sink("out", tg.DiscardSink())
        if also:
            rows.sink("raw", tg.DiscardSink())
        leaving = [edge for edge in plan(job.graph(), two_stage=two_stage).edges if edge.from_level == 0]
        return [edge.combine is not None and edge.combined_from is None for edge in leaving], job.explain()

    assert edges()[0] == [True]
    assert "combined in Spark SQL first" in edges()[1]
    assert edges(filtered=True)[0] == [False]
    assert edges(also=True)[0] == [False, False]
    assert "combined by the sending task first" in edges(filtered=True)[1]
    assert "combined" not in edges(also=True)[1]
    assert edges(trigger=tg.CountTrigger.of(2))[0] == [False]
    assert edges(two_stage=False)[0] == [False]


@given(st.lists(st.integers(), max_size=3000, unique=True).map(lambda found: [n % (1 << 40) for n in found]))
@settings(max_examples=examples(20))
def test_distinct_values_are_counted_about_right_however_they_are_split(values):
    add = distinct.adding(DataType("bigint"))
    whole, parts = b"", [b"", b"", b""]
    for number, value in enumerate(values):
        whole = add(whole, value)
        parts[number % 3] = add(parts[number % 3], value)
    assert distinct.merge(distinct.merge(parts[0], parts[2]), parts[1]) == whole
    assert abs(distinct.estimate(whole) - len(set(values))) <= max(2, 0.12 * len(set(values)))


def test_many_distinct_values_take_no_more_than_two_kilobytes():
    add, held = distinct.adding(DataType("int")), b""
    for value in range(20_000):
        held = add(held, value)
    assert len(held) == 2048
    assert 18_000 < distinct.estimate(held) < 22_000
