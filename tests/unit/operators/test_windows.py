"""Windows against closed-form results, in the harness, on both backends."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.tiers.profiles import examples
from tidegate.core.errors import GraphError
from tidegate.core.times import moment

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
SCHEMA = "user string, amount int, ts timestamp"
RESULT = "user string, total bigint, start bigint, end bigint"


def at(ms: int) -> datetime:
    return moment(ms)


class Sums(tg.ProcessWindowFunction):
    """The sum of a window, with its bounds."""

    def process(self, key, context, elements):
        yield key, sum(row.amount for row in elements), context.window().start, context.window().end


def windowed(assigner, tag=None, lateness=0):
    job = tg.Job("windows")
    rows = job.source("rows", tg.testing.frame(SCHEMA), event_time="ts")
    stream = rows.key_by("user").window(assigner).allowed_lateness(f"{lateness} ms")
    return stream.side_output_late_data(tag) if tag else stream


def rows_of(events):
    return [(user, amount, at(ms)) for user, amount, ms in events]


EVENTS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(-50, 150)), max_size=40)
MOVES = st.integers(-60, 200)
KINDS = {
    "tumbling": (
        tg.TumblingEventTimeWindows.of("20 ms", "5 ms"),
        lambda t: [((t - 5) // 20 * 20 + 5, (t - 5) // 20 * 20 + 25)],
    ),
    "sliding": (
        tg.SlidingEventTimeWindows.of("30 ms", "10 ms"),
        lambda t: [(start, start + 30) for start in range(t // 10 * 10, t - 30, -10)],
    ),
}


def feed(h, events, watermarks):
    """Rows with the watermark moved between them; which rows were late for which of their windows is for the caller."""
    moved = -(1 << 63)
    judged = []
    for number, event in enumerate(events):
        if number in watermarks:
            moved = max(moved, watermarks[number])
            h.advance_watermark(moved)
        h.process(*rows_of([event]))
        judged.append((event, moved))
    return judged


def check_windows(backend, kind, events, watermarks, cut):
    assigner, closed_form = KINDS[kind]
    stream = windowed(assigner, "late").process("sum", Sums(), schema=RESULT)
    first = {n: w for n, w in watermarks.items() if n < cut}
    second = {n - cut: w for n, w in watermarks.items() if n >= cut}
    with tg.testing.harness(stream, state_backend=backend, parallelism=2) as h:
        judged = feed(h, events[:cut], first)
        seen, late, snapshot = h.output(), h.side_output("late"), h.snapshot()
    with tg.testing.harness(stream, state_backend=backend, parallelism=3, restore=snapshot) as h:
        before = max(first.values(), default=-(1 << 63))
        judged += [(event, max(moved, before)) for event, moved in feed(h, events[cut:], second)]
        h.advance_watermark(10_000)
        seen += h.output()
        late += h.side_output("late")
    expected, dropped = defaultdict(int), []
    for (user, amount, ms), moved in judged:
        open_windows = [w for w in closed_form(ms) if w[1] - 1 > moved]
        for start, end in open_windows:
            expected[user, start, end] += amount
        if not open_windows:
            dropped.append((user, amount, at(ms)))
    assert sorted(seen) == sorted((user, total, start, end) for (user, start, end), total in expected.items())
    assert sorted(late) == sorted(dropped)


WATERMARKS = st.dictionaries(st.integers(0, 39), MOVES, max_size=4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.feature("A4", "A5", "B11", "B12")
@given(events=EVENTS, watermarks=WATERMARKS, cut=st.integers(0, 40))
def test_windows_contain_all_rows_in_time_in_any_order_and_after_a_restore(kind, events, watermarks, cut):
    check_windows("hashmap", kind, events, watermarks, cut)


@pytest.mark.feature("A4", "A5", "B11")
@pytest.mark.parametrize("kind", KINDS)
@given(events=EVENTS, watermarks=WATERMARKS, cut=st.integers(0, 40))
@settings(max_examples=examples(6))
def test_windows_hold_the_same_in_rocksdb(kind, events, watermarks, cut):
    check_windows("rocksdb", kind, events, watermarks, cut)


@pytest.mark.feature("A4", "B12")
@pytest.mark.parametrize(
    ("size", "ms"), [("30 s", 30_000), ("1 min", 60_000), ("1 h", 3_600_000), ("1 day", 86_400_000)]
)
def test_rows_are_aggregated_by_minute_hour_day_or_any_number_of_seconds(size, ms):
    stream = windowed(tg.TumblingEventTimeWindows.of(size)).aggregate("sum", total=tg.sum("amount"))
    with tg.testing.harness(stream) as h:
        h.process(*rows_of([("a", 1, 5 * ms), ("a", 2, 6 * ms - 1), ("a", 4, 6 * ms)]))
        h.advance_watermark(6 * ms - 2)
        assert h.output() == []
        h.advance_watermark(6 * ms - 1)
        assert h.output() == [("a", at(5 * ms), at(6 * ms), 3)]


@pytest.mark.feature("B12")
def test_sliding_windows_may_begin_at_a_quarter_past():
    minute = 60_000
    windows = tg.SlidingEventTimeWindows.of("1 h", "30 min", "15 min").assign_windows(None, 0)
    assert [(start // minute, end // minute) for start, end in windows] == [(-15, 45), (-45, 15)]


@pytest.mark.feature("B12")
def test_a_row_belongs_to_the_windows_that_contain_its_time():
    def starts(assigner, ms):
        return [window.start for window in assigner.assign_windows(None, ms)]

    shifted, sliding = tg.TumblingEventTimeWindows.of("60 ms", "15 ms"), tg.SlidingEventTimeWindows.of("30 ms", "10 ms")
    assert [starts(shifted, ms) for ms in (14, 15, 74, 75)] == [[-45], [15], [15], [75]]
    assert [starts(sliding, ms) for ms in (59, 60)] == [[50, 40, 30], [60, 50, 40]]


def sessions(events, gap):
    """Times of one key, grouped wherever the next is no more than `gap` away."""
    groups: list[list] = []
    for amount, ms in sorted(events, key=lambda event: event[1]):
        if groups and ms - groups[-1][-1][1] <= gap:
            groups[-1].append((amount, ms))
        else:
            groups.append([(amount, ms)])
    return [(sum(a for a, _ in group), group[0][1], group[-1][1] + gap) for group in groups]


def check_sessions(backend, how, events, cut):
    stream = windowed(tg.EventTimeSessionWindows.with_gap("10 ms"))
    match how:
        case "process":
            out = stream.process("sum", Sums(), schema=RESULT)
        case "reduce":
            add = lambda a, b: (a.user, a.amount + b.amount, a.ts)  # noqa: E731
            out = stream.reduce("sum", add, Sums(), schema=RESULT)
        case _:
            out = stream.aggregate("sum", total=tg.sum("amount"))
    with tg.testing.harness(out, state_backend=backend) as h:
        h.process(*rows_of(events[:cut]))
        snapshot = h.snapshot()
    with tg.testing.harness(out, state_backend=backend, parallelism=2, restore=snapshot) as h:
        h.process(*rows_of(events[cut:]))
        assert h.output() == []
        h.advance_watermark(10_000)
        found = h.output()
        assert h.next_timers() == (None, None)
        assert h.snapshot().entries == ()
    expected = [
        (user, *group) for user in "ab" for group in sessions([(a, ms) for u, a, ms in events if u == user], 10)
    ]
    if how == "aggregate":
        expected = [(user, at(start), at(end), total) for user, total, start, end in expected]
    assert sorted(found) == sorted(expected)


HOW = pytest.mark.parametrize("how", ["process", "reduce", "aggregate"])


@pytest.mark.feature("A4", "A5")
@HOW
@given(events=EVENTS, cut=st.integers(0, 40))
@settings(max_examples=examples(50))
def test_sessions_merge_in_any_order_and_after_a_restore(how, events, cut):
    check_sessions("hashmap", how, events, cut)


@pytest.mark.feature("A4", "A5")
@HOW
@given(events=EVENTS, cut=st.integers(0, 40))
@settings(max_examples=examples(6))
def test_sessions_merge_the_same_in_rocksdb(how, events, cut):
    check_sessions("rocksdb", how, events, cut)


@BACKENDS
@pytest.mark.feature("A4")
@pytest.mark.parametrize(
    "trigger", [tg.EventTimeTrigger(), tg.CountTrigger.of(1000), tg.ContinuousEventTimeTrigger.of("7 ms")], ids=repr
)
def test_the_windows_of_a_key_leave_nothing_behind(backend, trigger):
    stream = (
        windowed(tg.SlidingEventTimeWindows.of("30 ms", "10 ms"), lateness=7)
        .trigger(trigger)
        .aggregate("n", n=tg.count())
    )
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(*rows_of([("a", 1, ms) for ms in range(0, 100, 3)]))
        h.advance_watermark(136)
        assert h.next_timers() == (None, None)
        assert h.snapshot().entries == ()


@pytest.mark.feature("A4")
@BACKENDS
def test_a_late_row_fires_its_window_again_as_long_as_it_may_come(backend):
    stream = windowed(tg.TumblingEventTimeWindows.of("10 ms"), "late", lateness=20).aggregate("n", n=tg.count())
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(("a", 1, at(1)))
        h.advance_watermark(9)
        h.process(("a", 1, at(2)))
        h.advance_watermark(28)
        h.process(("a", 1, at(3)))
        assert h.output() == [("a", at(0), at(10), n) for n in (1, 2, 3)]
        h.advance_watermark(29)
        h.process(("a", 1, at(4)))
        assert (h.output(), h.side_output("late")) == ([], [("a", 1, at(4))])


@BACKENDS
def test_built_in_aggregates_leave_nulls_out(backend):
    out = windowed(tg.TumblingEventTimeWindows.of("10 ms")).aggregate(
        "all", rows=tg.count(), n=tg.count("amount"), total=tg.sum("amount"), least=tg.min("amount"),
        most=tg.max("amount"), last=tg.max("ts"), mean=tg.mean("amount"),
    )  # fmt: skip
    assert str(out.schema.select(["total", "least", "mean"])) == "total bigint, least int, mean double"
    with tg.testing.harness(out, state_backend=backend) as h:
        h.process(*rows_of([("a", 4, 1), ("a", None, 3), ("a", 1, 2), ("b", None, 0)]))
        h.advance_watermark(100)
        assert sorted(h.output()) == [
            ("a", at(0), at(10), 3, 2, 5, 1, 4, at(3), 2.5),
            ("b", at(0), at(10), 1, 0, None, None, None, at(0), None),
        ]


class Mean(tg.AggregateFunction):
    def create_accumulator(self):
        return [0, 0]

    def add(self, value, accumulator):
        accumulator[0] += value.amount
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator):
        return (accumulator[0] / accumulator[1],)

    def merge(self, a, b):
        return [a[0] + b[0], a[1] + b[1]]


@BACKENDS
@pytest.mark.feature("A5")
def test_an_aggregate_function_keeps_its_accumulator_only(backend):
    stream = windowed(tg.TumblingEventTimeWindows.of("10 ms")).aggregate(
        "mean", Mean(), accumulator=list[int], schema="mean double"
    )
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(*rows_of([("a", n, 1) for n in range(101)]))
        entries = h.snapshot().entries
        assert len(entries) == 2  # the accumulator and the timer
        assert sum(len(value) for _, value in entries) < 10
        h.advance_watermark(9)
        assert h.output() == [(50.0,)]


@BACKENDS
@pytest.mark.parametrize(
    ("trigger", "fired"),
    [
        (tg.CountTrigger.of(2), [1 + 2, 1 + 2 + 3 + 4]),
        (tg.PurgingTrigger.of(tg.CountTrigger.of(2)), [1 + 2, 3 + 4]),
    ],
)
@pytest.mark.feature("A5")
def test_a_global_window_fires_by_count(backend, trigger, fired):
    job = tg.Job("windows")
    keyed = job.source("rows", tg.testing.frame(SCHEMA)).key_by("user")
    stream = keyed.window(tg.GlobalWindows.create()).trigger(trigger).aggregate("sum", total=tg.sum("amount"))
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(("a", 1, at(0)), ("b", 1, at(0)), ("a", 2, at(0)))
        snapshot = h.snapshot()
        assert h.output() == [("a", None, None, fired[0])]
    with tg.testing.harness(stream, state_backend=backend, parallelism=4, restore=snapshot) as h:
        h.process(("a", 3, at(0)), ("a", 4, at(0)), ("a", 5, at(0)))
        assert h.output() == [("a", None, None, fired[1])]


@pytest.mark.feature("A5")
@BACKENDS
def test_a_count_trigger_on_sessions_counts_rows_of_merged_windows_together(backend):
    stream = windowed(tg.EventTimeSessionWindows.with_gap("10 ms")).trigger(tg.CountTrigger.of(4))
    with tg.testing.harness(stream.aggregate("n", n=tg.count()), state_backend=backend) as h:
        h.process(*rows_of([("a", 0, 0), ("a", 0, 30), ("a", 0, 15), ("a", 0, 22)]))
        assert h.output() == []
        h.process(*rows_of([("a", 0, 8)]))
        assert h.output() == [("a", at(0), at(40), 5)]


@pytest.mark.feature("B1")
@BACKENDS
def test_a_continuous_trigger_shows_a_window_as_it_grows(backend):
    stream = windowed(tg.TumblingEventTimeWindows.of("100 ms")).trigger(tg.ContinuousEventTimeTrigger.of("40 ms"))
    with tg.testing.harness(stream.aggregate("n", n=tg.count()), state_backend=backend) as h:
        totals = []
        for ms in (5, 45, 90, 130):
            h.process(*rows_of([("a", 0, ms)]))
            h.advance_watermark(ms)
            totals.append([row[-1] for row in h.output() if row[1] == at(0)])
        assert totals == [[], [2], [3], [3]]


@BACKENDS
@pytest.mark.feature("B1")
def test_windows_of_processing_time_end_with_the_clock(backend):
    job = tg.Job("windows")
    keyed = job.source("rows", tg.testing.frame(SCHEMA)).key_by("user")
    tumbling = keyed.window(tg.TumblingProcessingTimeWindows.of("1000 ms")).aggregate("t", n=tg.count())
    with tg.testing.harness(tumbling, state_backend=backend) as h:
        h.set_processing_time(5_400)
        h.process(("a", 1, None), ("a", 1, None))
        h.set_processing_time(5_998)
        assert h.output() == []
        h.set_processing_time(5_999)
        assert h.output() == [("a", at(5000), at(6000), 2)]
    session = keyed.window(tg.ProcessingTimeSessionWindows.with_gap("1000 ms")).trigger(
        tg.ContinuousProcessingTimeTrigger.of("500 ms")
    )
    with tg.testing.harness(session.aggregate("s", n=tg.count()), state_backend=backend) as h:
        h.set_processing_time(100)
        h.process(("a", 1, None))
        h.set_processing_time(600)
        h.process(("a", 1, None))
        assert h.output() == [("a", at(100), at(1100), 1)]
        h.set_processing_time(1700)
        assert ("a", at(100), at(1600), 2) in h.output()


@pytest.mark.feature("A5")
@BACKENDS
@pytest.mark.parametrize(
    ("evictor", "expected"),
    [
        (tg.CountEvictor.of(2), [3 + 4, 4 + 5]),
        (tg.CountEvictor.of(2, True), [1 + 2 + 3 + 4, 3 + 4 + 5]),
        (tg.TimeEvictor.of("3 ms"), [2 + 3 + 4, 5]),
    ],
)
def test_an_evictor_decides_what_a_window_shows(backend, evictor, expected):
    stream = windowed(tg.TumblingEventTimeWindows.of("100 ms"), lateness=50).evictor(evictor)
    with tg.testing.harness(stream.aggregate("sum", total=tg.sum("amount")), state_backend=backend) as h:
        h.process(*rows_of([("a", 1, 1), ("a", 2, 2), ("a", 3, 3), ("a", 4, 4)]))
        h.advance_watermark(99)
        h.process(*rows_of([("a", 5, 50)]))
        assert [row[-1] for row in h.output()] == expected


class Loudest(tg.ProcessWindowFunction):
    """Windows that beat all before them of the same key; the others go aside."""

    best = tg.ValueState(int, default=0)

    def process(self, key, context, elements):
        (row,) = elements
        if row.amount > self.best.value():
            self.best.update(row.amount)
            return [(key, row.amount, context.current_watermark(), context.window().max_timestamp())]
        context.output("beaten", (key, row.amount))
        return None


@BACKENDS
@pytest.mark.feature("A1")
def test_a_window_function_has_state_of_its_key_side_outputs_and_time(backend):
    out = windowed(tg.TumblingEventTimeWindows.of("10 ms")).reduce(
        "loudest",
        lambda a, b: a if a.amount > b.amount else b,
        Loudest(),
        schema=RESULT,
        side_outputs={"beaten": "user string, amount int"},
    )
    with tg.testing.harness(out, state_backend=backend) as h:
        h.process(*rows_of([("a", 4, 1), ("a", 7, 2), ("a", 3, 11), ("a", 8, 21)]))
        h.advance_watermark(40)
        assert h.output() == [("a", 7, 40, 9), ("a", 8, 40, 29)]
        assert h.side_output("beaten") == [("a", 3)]


def test_mistakes_are_reported_where_they_are_made():
    job = tg.Job("windows")
    keyed = job.source("rows", tg.testing.frame(SCHEMA)).key_by("user")
    timed = job.source("timed", tg.testing.frame(SCHEMA), event_time="ts").key_by("user")
    minute = tg.TumblingEventTimeWindows.of("1 min")
    with pytest.raises(GraphError, match="event_time='ts'"):
        keyed.window(minute).aggregate("n", n=tg.count())
    with pytest.raises(GraphError, match="takes an assigner"):
        keyed.window("1 min")
    with pytest.raises(GraphError, match="cannot be used"):
        timed.window(tg.EventTimeSessionWindows.with_gap("1 s")).trigger(tg.NeverTrigger())
    with pytest.raises(GraphError, match="processing time"):
        timed.window(tg.TumblingProcessingTimeWindows.of("1 s")).allowed_lateness("1 s")
    with pytest.raises(GraphError, match="no column 'amnt'"):
        timed.window(minute).aggregate("n", n=tg.sum("amnt"))
    with pytest.raises(GraphError, match="accumulator"):
        timed.window(minute).aggregate("n", Mean(), schema="mean double")
    with pytest.raises(GraphError, match="of type string"):
        timed.window(minute).aggregate("n", n=tg.mean("user"))
    with pytest.raises(GraphError, match="0 ms"):
        tg.TumblingEventTimeWindows.of(0)


def test_a_row_without_event_time_is_an_error_that_names_it():
    stream = windowed(tg.TumblingEventTimeWindows.of("10 ms")).aggregate("n", n=tg.count())
    with tg.testing.harness(stream) as h, pytest.raises(tg.TidegateError, match="no event time"):
        h.process(("a", 1, None))
