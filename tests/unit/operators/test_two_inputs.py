"""Two streams that meet: connected functions and joins, in the harness, on both backends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.tiers.profiles import examples
from tidegate.api.functions import Function
from tidegate.core.errors import GraphError
from tidegate.core.times import moment

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
ORDERS = "id bigint, item string, ts timestamp"
PAYMENTS = "amount double, order_id bigint, paid timestamp"


def two_streams():
    job = tg.Job("shop")
    orders = job.source("orders", tg.testing.frame(ORDERS), event_time="ts")
    payments = job.source("payments", tg.testing.frame(PAYMENTS), event_time="paid")
    return orders.key_by("id"), payments.key_by("order_id")


class Match(tg.KeyedCoProcessFunction):
    """Orders with their payments; an order that is not paid within 100 ms is told."""

    order = tg.ValueState(str)
    paid = tg.ListState(float)

    def process_element1(self, order, ctx):
        self.order.update(order.item)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 100)
        for amount in self.paid:
            yield order.id, order.item, amount
        self.paid.clear()

    def process_element2(self, payment, ctx):
        if self.order.value() is None:
            self.paid.add(payment.amount)
            return
        ctx.timer_service().delete_event_time_timer(100)
        yield ctx.get_current_key(), self.order.value(), payment.amount

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.order.value(), None


@BACKENDS
@pytest.mark.feature("A1", "N9")
def test_two_streams_share_state_and_timers_of_a_key(backend):
    orders, payments = two_streams()
    matched = orders.connect(payments).process("match", Match(), schema="id bigint, item string, amount double")
    with tg.testing.harness(matched, state_backend=backend, parallelism=3) as h:
        h.process1((1, "pen", moment(0)), (2, "ink", moment(0)))
        h.process2((9.0, 1, moment(5)), (4.0, 3, moment(5)))
        snapshot = h.snapshot()
        assert h.output() == [(1, "pen", 9.0)]
    with tg.testing.harness(matched, state_backend=backend, parallelism=2, restore=snapshot) as h:
        h.process1((3, "cap", moment(9)))
        h.advance_watermark(100)
        assert h.output() == [(3, "cap", 4.0), (2, "ink", None)]


def test_a_connected_operator_is_reached_over_two_shuffles():
    orders, payments = two_streams()
    matched = orders.connect(payments).process("match", Match(), schema="id bigint, item string, amount double")
    matched.sink("out", tg.CollectSink())
    job = orders._job
    text = job.explain()
    assert "orders ── shuffle by id" in text
    assert "payments ── shuffle by order_id" in text
    node = matched.node()
    assert [input.key for input in job.graph().inputs(node)] == [("id",), ("order_id",)]


def test_only_keys_of_the_same_types_meet():
    orders, _ = two_streams()
    other = orders._job.source("names", tg.testing.frame("name string, n bigint"), event_time=None)
    with pytest.raises(GraphError, match="same types"):
        orders.connect(other.key_by("name"))
    with pytest.raises(GraphError, match="key_by"):
        orders.connect(other)
    with pytest.raises(GraphError, match="event time"):
        orders.interval_join(
            "j", other.key_by("n"), lower=0, upper="1 ms", function=lambda left, right: None, schema="a int"
        )
    with pytest.raises(GraphError, match="two jobs"):
        orders.connect(two_streams()[1])


ROWS = st.lists(st.tuples(st.booleans(), st.integers(1, 2), st.integers(0, 60)), max_size=25)


def check_interval_join(backend, rows, lower, upper, moves, cut):
    lower, upper = min(lower, upper), max(lower, upper)
    orders, payments = two_streams()
    joined = orders.interval_join(
        "join", payments, lower=f"{lower} ms", upper=f"{upper} ms", schema="l int, r int",
        function=lambda order, payment: (int(order.item), int(payment.amount)),
    )  # fmt: skip
    seen, watermark, kept, snapshot, dropped = [], -1, [], None, 0
    for part, first in ((rows[:cut], 0), (rows[cut:], cut)):
        with tg.testing.harness(joined, state_backend=backend, restore=snapshot) as h:
            for number, (left, key, ms) in enumerate(part, first):
                if number in moves:
                    watermark = max(watermark, moves[number])
                    h.advance_watermark(watermark)
                if left:
                    h.process1((key, str(number), moment(ms)))
                else:
                    h.process2((float(number), key, moment(ms)))
                if ms >= watermark:
                    kept.append((number, left, key, ms))
            seen += h.output()
            dropped += h._subtasks[0].operator.late_dropped
            snapshot = h.snapshot()
    assert dropped == len(rows) - len(kept)
    with tg.testing.harness(joined, state_backend=backend, restore=snapshot) as h:
        h.advance_watermark(1000)
        assert h.snapshot().entries == ()
    expected = [
        (a, b)
        for a, left, key, ms in kept
        for b, right, other, at in kept
        if left and not right and key == other and lower <= at - ms <= upper
    ]
    assert sorted(seen) == sorted(expected)


BOUND = st.integers(-20, 20)
MOVES = st.dictionaries(st.integers(0, 24), st.integers(0, 60), max_size=3)


@pytest.mark.feature("N9")
@given(rows=ROWS, lower=BOUND, upper=BOUND, moves=MOVES, cut=st.integers(0, 25))
@settings(max_examples=examples(50))
def test_an_interval_join_finds_every_pair_and_keeps_nothing_in_the_end(rows, lower, upper, moves, cut):
    check_interval_join("hashmap", rows, lower, upper, moves, cut)


@given(rows=ROWS, lower=BOUND, upper=BOUND, moves=MOVES, cut=st.integers(0, 25))
@settings(max_examples=examples(6))
def test_an_interval_join_finds_the_same_in_rocksdb(rows, lower, upper, moves, cut):
    check_interval_join("rocksdb", rows, lower, upper, moves, cut)


class Pairs(tg.ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        yield left.item, right.amount


@BACKENDS
def test_a_window_join_pairs_the_rows_of_a_window(backend):
    orders, payments = two_streams()
    joined = orders.window_join(
        "join", payments, tg.TumblingEventTimeWindows.of("10 ms"), function=Pairs(), schema="item string, amount double"
    )
    with tg.testing.harness(joined, state_backend=backend) as h:
        h.process1((1, "pen", moment(1)), (1, "ink", moment(9)), (1, "cap", moment(11)))
        h.process2((5.0, 1, moment(3)), (6.0, 2, moment(3)), (7.0, 1, moment(12)))
        h.advance_watermark(9)
        assert sorted(h.output()) == [("ink", 5.0), ("pen", 5.0)]
        h.advance_watermark(100)
        assert h.output() == [("cap", 7.0)]
        assert h.snapshot().entries == ()


class Opened(tg.ProcessJoinFunction):
    currency = None

    def open(self, ctx):
        self.currency = "EUR"

    def process_element(self, order, payment, ctx):
        yield order.id, self.currency


class OpenedCallable(Function):
    """A function that is callable, and not a `ProcessJoinFunction`."""

    currency = None
    completed = 0
    closed = 0

    def open(self, ctx):
        self.currency = "EUR"

    def close(self):
        type(self).closed += 1

    def notify_checkpoint_complete(self, checkpoint_id):
        type(self).completed += 1

    def __call__(self, order, payment):
        return order.id, self.currency


def joined_with(function, kind):
    orders, payments = two_streams()
    schema = "id bigint, currency string"
    if kind == "interval":
        return orders.interval_join("j", payments, lower="0 s", upper="1 s", function=function, schema=schema)
    hour = tg.TumblingEventTimeWindows.of("1 h")
    return orders.window_join("j", payments, hour, function=function, schema=schema)


@pytest.mark.parametrize("kind", ["interval", "window"])
@pytest.mark.parametrize("function", [Opened, OpenedCallable])
def test_join_function_is_opened(kind, function):
    with tg.testing.harness(joined_with(function(), kind)) as h:
        h.process((1, "pen", moment(0)))
        h.process2((2.0, 1, moment(0)))
        h.advance_watermark(10_000_000)
        assert h.output() == [(1, "EUR")]


@pytest.mark.parametrize("kind", ["interval", "window"])
def test_callable_join_function_is_closed_and_notified_of_checkpoints(kind, monkeypatch):
    monkeypatch.setattr(OpenedCallable, "closed", 0)
    monkeypatch.setattr(OpenedCallable, "completed", 0)
    with tg.testing.harness(joined_with(OpenedCallable(), kind)) as h:
        h.process((1, "pen", moment(0)))
        h.notify_checkpoint_complete(1)
    assert OpenedCallable.closed > 0
    assert OpenedCallable.completed == 1


@BACKENDS
def test_deduplication_emits_the_first_row_of_a_key(backend):
    orders, _ = two_streams()
    with tg.testing.harness(orders.deduplicate("once", ttl="1 s"), state_backend=backend) as h:
        h.set_processing_time(500)
        h.process((1, "a", moment(0)), (1, "b", moment(0)), (2, "c", moment(0)))
        h.set_processing_time(1499)
        h.process((1, "d", moment(0)))
        assert [row.item for row in h.output()] == ["a", "c"]
        h.set_processing_time(1500)
        h.process((1, "e", moment(0)))
        assert [row.item for row in h.output()] == ["e"]
