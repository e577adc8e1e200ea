"""What state is for, as four small programs: a pattern, aggregates of periods, a model in training, and looking back."""

from __future__ import annotations

import pytest

import tidegate as tg
from tidegate.core.times import moment


class SmallThenLarge(tg.KeyedProcessFunction):
    """A tiny payment, and right after it a large one."""

    tiny = tg.ValueState(bool, default=False)

    def process_element(self, row, ctx):
        if self.tiny.value() and row.amount > 100:
            yield row.card, row.amount
        self.tiny.update(row.amount < 1)


@pytest.mark.feature("A2", "N35")
def test_a_pattern_of_events_is_remembered_until_it_is_complete():
    with tg.testing.harness(SmallThenLarge(), key="card", schema="card string, amount double") as h:
        h.process(("a", 0.5), ("b", 500.0))
        snapshot = h.snapshot()
    with tg.testing.harness(SmallThenLarge(), key="card", schema="card string, amount double", restore=snapshot) as h:
        h.process(("a", 700.0), ("a", 800.0))
        assert h.output() == [("a", 700.0)]


@pytest.mark.feature("A2", "N35")
def test_aggregates_of_a_period_are_pending_until_it_ends():
    job = tg.Job("periods")
    rows = job.source("rows", tg.testing.frame("page string, ts timestamp"), event_time="ts").key_by("page")
    with tg.testing.harness(rows.window(tg.TumblingEventTimeWindows.of("1 h")).aggregate("hourly", n=tg.count())) as h:
        h.process(("home", moment(1)), ("home", moment(2)), ("home", moment(3_600_001)))
        h.advance_watermark(3_599_999)
        assert h.output() == [("home", moment(0), moment(3_600_000), 2)]


class Online(tg.KeyedBroadcastProcessFunction):
    """Predicts with the model of the moment, and learns it from the other stream: the mean of each sort."""

    model = tg.BroadcastState(str, tuple[float, int])

    def process_element(self, row, ctx):
        total, n = self.model.get(row.sort) or (0.0, 1)
        yield row.id, total / n

    def process_broadcast_element(self, row, ctx):
        total, n = self.model.get(row.sort) or (0.0, 0)
        self.model.put(row.sort, (total + row.price, n + 1))


@pytest.mark.feature("A2", "N35")
def test_the_parameters_of_a_model_are_learned_while_it_is_used():
    with tg.testing.harness(
        Online(), key="id", schema="id int, sort string", broadcast_schema="sort string, price double", parallelism=3
    ) as h:
        h.process_broadcast(("flat", 100.0), ("flat", 300.0))
        h.process((1, "flat"), (2, "house"))
        h.process_broadcast(("house", 900.0))
        h.process((2, "house"))
        assert h.output() == [(1, 200.0), (2, 0.0), (2, 900.0)]


class LastPrices(tg.KeyedProcessFunction):
    """What the price was at some time: the last one before it."""

    prices = tg.SortedMapState(int, float)

    def process_element(self, row, ctx):
        if row.price is not None:
            self.prices.put(row.at, row.price)
            return
        for at, price in self.prices.items(None, row.at + 1, reverse=True):
            yield row.item, at, price
            return


@pytest.mark.feature("A2", "N35")
def test_past_events_are_looked_up_by_their_times():
    with tg.testing.harness(LastPrices(), key="item", schema="item string, at int, price double") as h:
        h.process(("tea", 10, 2.0), ("tea", 30, 3.0), ("tea", 20, 2.5), ("tea", 25, None), ("tea", 5, None))
        assert h.output() == [("tea", 20, 2.5)]


@pytest.mark.feature("A15", "B11", "F4", "N13")
def test_the_contents_of_windows_lie_by_key_and_window():
    """Keys K1 to K3 in windows (10, 20) and (15, 25): one entry for each pair that has rows, in both backends."""
    job = tg.Job("contents")
    rows = job.source("rows", tg.testing.frame("k string, v int, ts timestamp"), event_time="ts").key_by("k")
    sums = rows.window(tg.SlidingEventTimeWindows.of("10 ms", "5 ms")).aggregate("sums", total=tg.sum("v"))
    found = {}
    for backend in ("hashmap", "rocksdb"):
        # One key group, so that neighbours differ by key and window alone.
        with tg.testing.harness(sums, state_backend=backend, max_parallelism=1) as h:
            h.process(*[(f"K{n}", n, moment(16)) for n in (1, 2, 3)], ("K1", 5, moment(11)))
            snapshot = h.snapshot()
            subtask = h._subtasks[0]
            contents = subtask.states.accessors["window.contents"]
            for n in (1, 2, 3):
                for window in (tg.TimeWindow(10, 20), tg.TimeWindow(15, 25), tg.TimeWindow(5, 15)):
                    group, _ = h._owner(f"K{n}")
                    subtask.states.window_scope.key = (f"K{n}", window)
                    subtask.states.window_scope.key_group = group
                    found[backend, n, window.start] = contents.stored()
            id = h.tested.state_ids[h.tested.uid, "window.contents"].to_bytes(2, "big")
            assert sum(raw[2:4] == id for raw, _ in snapshot.entries) == 7
    for backend in ("hashmap", "rocksdb"):
        assert [found[backend, n, 10] for n in (1, 2, 3)] == [(6,), (2,), (3,)]
        assert [found[backend, n, 15] for n in (1, 2, 3)] == [(1,), (2,), (3,)]
        assert [found[backend, n, 5] for n in (1, 2, 3)] == [(5,), None, None]
