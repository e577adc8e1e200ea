"""Timers in the harness: a keyed function, its clocks moved by hand, on both backends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import tidegate as tg
from tidegate.core.errors import GraphError
from tidegate.core.times import MIN_WATERMARK

BACKENDS = pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
T0 = datetime(2024, 1, 1, tzinfo=UTC)
T0_MS = 1_704_067_200_000
DAY = timedelta(days=1)


class Totals(tg.KeyedProcessFunction):
    """Running total per user; says so and forgets a user after a day of silence."""

    total = tg.ValueState(float, default=0.0)
    last = tg.ValueState(int)

    def process_element(self, order, ctx):
        self.total.update(self.total.value() + order.amount)
        if self.last.value() is not None:
            ctx.timer_service().delete_event_time_timer(self.last.value())
        self.last.update(ctx.timestamp() + 86_400_000)
        ctx.timer_service().register_event_time_timer(order.ts + DAY)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), self.total.value(), timestamp
        self.total.clear()
        self.last.clear()


def totals(backend, **options):
    return tg.testing.harness(
        Totals(),
        key="user",
        schema="user string, amount double, ts timestamp",
        event_time="ts",
        state_backend=backend,
        **options,
    )


@BACKENDS
@pytest.mark.feature("A10", "B1")
def test_a_user_is_forgotten_after_a_day_of_silence(backend):
    with totals(backend) as h:
        h.process(("ann", 5.0, T0), ("bob", 1.0, T0), ("ann", 7.0, T0 + timedelta(hours=3)))
        h.advance_watermark(T0 + DAY)
        assert h.output() == [("bob", 1.0, T0_MS + 86_400_000)]
        assert (h.state("total", "ann"), h.state("total", "bob")) == (12.0, None)
        h.advance_watermark(T0 + DAY)
        assert h.output() == []
        assert h.next_timers() == (T0_MS + 27 * 3_600_000, None)


@BACKENDS
@pytest.mark.feature("B2", "B7")
@pytest.mark.parametrize("before", [1, 2, 3, 8])
@pytest.mark.parametrize("after", [1, 2, 3, 8])
def test_timers_survive_a_snapshot_into_any_parallelism(backend, before, after):
    users = [f"user-{n}" for n in range(20)]
    with totals(backend, parallelism=before) as h:
        h.process(*[(user, float(n), T0 + timedelta(minutes=n)) for n, user in enumerate(users)])
        h.advance_watermark(T0 + DAY + timedelta(minutes=4))
        assert len(h.output()) == 5
        snapshot = h.snapshot()
    with totals(backend, parallelism=after, restore=snapshot) as h:
        h.advance_watermark(T0 + 2 * DAY)
        fired = sorted((user, total) for user, total, _ in h.output())
        assert fired == sorted((user, float(n)) for n, user in enumerate(users) if n > 4)
        h.advance_watermark(T0 + 9 * DAY)
        assert h.output() == []


class Beat(tg.KeyedProcessFunction):
    """Three beats, a second apart, from the first row of a key on."""

    beats = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 1000)
        yield "row", ctx.timestamp(), service.current_watermark()

    def on_timer(self, timestamp, ctx):
        self.beats.update(self.beats.value() + 1)
        if self.beats.value() < 3:
            ctx.timer_service().register_processing_time_timer(timestamp + 1000)
        yield ctx.time_domain().name, timestamp, ctx.timer_service().current_processing_time()


@BACKENDS
@pytest.mark.feature("B1")
def test_processing_time_timers_follow_the_clock(backend):
    with tg.testing.harness(Beat(), key="k", schema="k string", state_backend=backend) as h:
        h.set_processing_time(5000)
        h.process(("a",), ("a",))
        assert h.output() == [("row", None, MIN_WATERMARK)] * 2
        h.advance_watermark(T0)
        h.set_processing_time(5999)
        assert h.output() == []
        h.set_processing_time(6000)
        assert h.output() == [("PROCESSING_TIME", 6000, 6000)]
        h.set_processing_time(60_000)
        assert h.output() == [("PROCESSING_TIME", 7000, 60_000), ("PROCESSING_TIME", 8000, 60_000)]
        h.set_processing_time(1000)
        h.process(("b",))
        assert h.next_timers() == (None, 61_000)


@BACKENDS
@pytest.mark.feature("B2")
def test_a_timer_that_was_just_registered_is_in_the_snapshot(backend):
    def beat(**more):
        return tg.testing.harness(Beat(), key="k", schema="k string", state_backend=backend, **more)

    with beat() as h:
        h.process(("a",))
        snapshot = h.snapshot()
    with beat(parallelism=2, restore=snapshot) as h:
        h.set_processing_time(1000)
        assert h.output() == [("PROCESSING_TIME", 1000, 1000)]


def test_a_timer_without_on_timer_is_reported_at_once():
    class NoCallback(tg.KeyedProcessFunction):
        def process_element(self, row, ctx):
            ctx.timer_service().register_event_time_timer(1)

    with (
        tg.testing.harness(NoCallback(), key="k", schema="k string") as h,
        pytest.raises(GraphError, match="on_timer"),
    ):
        h.process(("a",))


class Late(tg.KeyedProcessFunction):
    """Tells rows apart by the latest watermark."""

    def process_element(self, row, ctx):
        yield row.k, ctx.timestamp() <= ctx.timer_service().current_watermark()


@BACKENDS
@pytest.mark.feature("N34")
def test_an_operator_that_looks_at_the_latest_watermark_decides_the_same_after_a_restore(backend):
    """No state of its own is needed for that: the first row already sees the watermark of the snapshot."""

    def late(**more):
        return tg.testing.harness(
            Late(), key="k", schema="k string, ts timestamp", event_time="ts", state_backend=backend, **more
        )

    rows = [("a", T0), ("b", T0 + timedelta(minutes=2))]
    with late() as h:
        h.advance_watermark(T0 + timedelta(minutes=1))
        h.process(*rows)
        before, snapshot = h.output(), h.snapshot()
    with late(parallelism=3, restore=snapshot) as h:
        h.process(*rows)
        assert h.output() == before == [("a", True), ("b", False)]
