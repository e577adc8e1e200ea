"""Functions of windows: state per window, and what becomes of errors. In the harness, on both backends."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.core.errors import GraphError
from tidegate.core.times import moment

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
SCHEMA = "user string, amount int, ts timestamp"


def rows(*events):
    return [(user, amount, moment(ms)) for user, amount, ms in events]


def windowed(assigner=None):
    job = tg.Job("windows")
    stream = job.source("rows", tg.testing.frame(SCHEMA), event_time="ts").key_by("user")
    return stream.window(assigner or tg.TumblingEventTimeWindows.of("10 ms"))


class Firings(tg.ProcessWindowFunction):
    """How often each window fired, and how often all windows of the key did."""

    here = tg.ValueState(int, default=0).per_window()
    sizes = tg.ListState(int).per_window()
    everywhere = tg.ValueState(int, default=0)

    def process(self, key, context, elements):
        self.here.update(self.here.value() + 1)
        self.sizes.add(len(list(elements)))
        self.everywhere.update(self.everywhere.value() + 1)
        yield key, context.window().start, self.here.value(), list(self.sizes.get()), self.everywhere.value()


FIRINGS = "user string, start bigint, here int, sizes array<int>, everywhere int"


@BACKENDS
@pytest.mark.feature("A5", "A15", "B11")
def test_each_window_has_its_own_state_until_it_is_removed(backend):
    stream = windowed().allowed_lateness("20 ms").process("firings", Firings(), schema=FIRINGS)
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(*rows(("a", 1, 3), ("a", 1, 13)))
        h.advance_watermark(19)
        h.process(*rows(("a", 1, 4)))
        assert h.output() == [("a", 0, 1, [1], 1), ("a", 10, 1, [1], 2), ("a", 0, 2, [1, 2], 3)]
        snapshot = h.snapshot()
    with tg.testing.harness(stream, state_backend=backend, parallelism=3, restore=snapshot) as h:
        h.process(*rows(("a", 1, 14)))
        assert h.output() == [("a", 10, 2, [1, 2], 4)]
        h.advance_watermark(1000)
        assert h.state("everywhere", "a") == 4
        assert len(h.snapshot().entries) == 1  # what belongs to the key, and nothing of any window


def test_state_per_window_is_refused_where_there_is_no_window_or_windows_merge():
    with pytest.raises(GraphError, match="merge"):
        windowed(tg.EventTimeSessionWindows.with_gap("5 ms")).process("firings", Firings(), schema=FIRINGS)

    class Misplaced(tg.KeyedProcessFunction):
        here = tg.ValueState(int).per_window()

        def process_element(self, row, ctx): ...

    with pytest.raises(GraphError, match="only a ProcessWindowFunction"):
        tg.testing.harness(Misplaced(), key="user", schema=SCHEMA)
    with pytest.raises(GraphError, match="knows no windows"):
        tg.ListState(int, operator=True).per_window()


class Picky(tg.ProcessWindowFunction):
    """Cannot stand a window with a negative amount."""

    done = tg.ValueState(int, default=0)

    def process(self, key, context, elements):
        self.done.update(self.done.value() + 1)
        for row in elements:
            if row.amount < 0:
                raise ValueError(f"{row.amount} at {context.window().start}")
            yield key, row.amount


@pytest.mark.feature("A4")
@BACKENDS
def test_a_window_whose_function_raises_is_gone_and_the_others_are_whole(backend):
    stream = windowed().on_error(tg.dead_letter("bad")).process("picky", Picky(), schema="user string, amount int")
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(*rows(("a", 1, 3), ("a", -2, 4), ("a", 3, 13), ("b", 4, 3)))
        h.advance_watermark(100)
        assert sorted(h.output()) == [("a", 3), ("b", 4)]
        (letter,) = h.side_output("bad")
        assert (letter[0], letter[1], letter[2], letter[3]) == ("picky", '"a"', None, "ValueError: -2 at 0")
        assert (h.state("done", "a"), h.next_timers()) == (1, (None, None))
        assert len(h.snapshot().entries) == 2


@BACKENDS
@pytest.mark.parametrize(
    "assigner", [tg.TumblingEventTimeWindows.of("10 ms"), tg.EventTimeSessionWindows.with_gap("5 ms")]
)
def test_a_row_that_cannot_be_added_leaves_no_window_behind(backend, assigner):
    def add(a, b):
        if b.amount < 0:
            raise ValueError("negative")
        return a.user, a.amount + b.amount, a.ts

    stream = windowed(assigner).on_error("skip").reduce("sum", add)
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process(*rows(("a", 1, 3), ("a", -5, 4), ("a", 2, 5), ("a", 7, 25)))
        h.advance_watermark(100)
        assert [row[1] for row in h.output()] == [3, 7]
        assert h.snapshot().entries == ()


class Both(tg.KeyedCoProcessFunction):
    total = tg.ValueState(int, default=0)

    def process_element1(self, row, ctx):
        self.total.update(self.total.value() + row.n)
        if row.n < 0:
            raise ValueError("negative")

    def process_element2(self, row, ctx):
        self.total.update(self.total.value() * 2)
        yield row.k, 10 // row.n


@BACKENDS
def test_rows_of_connected_streams_that_fail_are_undone_too(backend):
    job = tg.Job("both")
    one, other = (job.source(uid, tg.testing.frame("k string, n int")).key_by("k") for uid in ("one", "other"))
    stream = one.connect(other).process("both", Both(), schema="k string, n int", on_error="dead-letter")
    with tg.testing.harness(stream, state_backend=backend) as h:
        h.process1(("a", 3), ("a", -1))
        h.process2(("a", 5), ("a", 0))
        assert (h.output(), h.state("total", "a")) == ([("a", 2)], 6)
        assert [letter[2] for letter in h.side_output("dead-letter")] == ['{"k":"a","n":-1}', '{"k":"a","n":0}']
