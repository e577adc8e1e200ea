"""The clocks of a job, and the timers that its tasks reported."""

from __future__ import annotations

import msgspec
import pytest

import tidegate as tg
from tidegate.core.ids import Uid
from tidegate.core.times import MAX_WATERMARK, MIN_WATERMARK
from tidegate.graph.levels import plan
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_clock import JobClock
from tidegate.runtime.epochs.processing_time import ProcessingClock
from tidegate.runtime.exchange.messages import TaskAck, digest
from tidegate.testing.clock import ManualClock

ACK = TaskAck(1, 1, 1, 0, 0, 100, "h", None, digest(()), 5, 5)


class Remind(tg.KeyedProcessFunction):
    def process_element(self, row, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 100)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


def job_clock(wall: ManualClock | None = None) -> JobClock:
    job = tg.Job("reminders", parallelism=2)
    rows = job.source("rows", tg.testing.frame("k string, ts timestamp"), event_time="ts")
    rows.key_by("k").process("remind", Remind(), schema="k string, at bigint").sink("out", tg.CollectSink())
    graph = job.graph()
    return JobClock(graph, plan(graph), ProcessingClock(wall or ManualClock(wall_ms=1_000)))


def accept(clock: JobClock, *, stands: bool = False, **reported) -> None:
    clock.accept(clock.begin_epoch(final=False, stands=stands), [msgspec.structs.replace(ACK, **reported)])


@pytest.mark.feature("B1")
def test_a_timer_is_due_once_the_watermark_has_passed_it():
    clock = job_clock()
    accept(clock, timers=(600, None), event_times={"rows": 500})
    assert clock.timers_pending()
    assert not clock.timers_due()
    accept(clock, event_times={"rows": 601})
    assert clock.timers_due()


@pytest.mark.feature("B1")
def test_a_processing_time_timer_is_due_without_an_epoch():
    wall = ManualClock(wall_ms=1_000)
    clock = job_clock(wall)
    accept(clock, timers=(None, 1_050))
    assert not clock.timers_pending()
    assert not clock.timers_due()
    wall.advance(50)
    assert clock.timers_due()


@pytest.mark.feature("B1")
def test_an_epoch_with_frozen_time_fires_no_timer_and_advances_no_clock():
    clock = job_clock()
    accept(clock, timers=(600, None), event_times={"rows": 1_000})
    before = clock.clocks
    time = clock.begin_epoch(final=False, stands=True)
    assert time.watermark_ms == MIN_WATERMARK
    assert clock.wake(1, time, [True, False]) == (False, False)
    accept(clock, stands=True, event_times={"rows": 9_000})
    assert clock.clocks == before


@pytest.mark.feature("L1")
def test_a_final_epoch_passes_all_event_time():
    assert job_clock().begin_epoch(final=True, stands=False).watermark_ms == MAX_WATERMARK


@pytest.mark.feature("B1", "B2")
def test_a_task_that_has_not_reported_its_timers_looks_at_them_if_it_has_state():
    clock = job_clock()
    time = clock.begin_epoch(final=False, stands=False)
    assert clock.wake(1, time, [True, False]) == (True, False)
    accept(clock, timers=(600, None))
    assert clock.wake(1, time, [True, True]) == (False, True)
    clock.forget_timers()
    assert clock.wake(1, time, [True, True]) == (True, True)


def test_a_level_without_timers_checks_none():
    clock = job_clock()
    assert clock.has_timers
    assert clock.wake(0, clock.begin_epoch(final=False, stands=False), [True, True]) == ()


@pytest.mark.feature("B2")
def test_a_clock_continues_from_the_time_of_a_checkpoint_and_does_not_move_back():
    clock = job_clock()
    clock.reset(Clocks(clock_ms=5_000, watermark_ms=700, greatest={Uid("rows"): 701}))
    assert (clock.clocks.clock_ms, clock.clocks.watermark_ms) == (5_000, 700)
    clock.reset(Clocks(clock_ms=10, watermark_ms=20))
    assert (clock.clocks.clock_ms, clock.clocks.watermark_ms) == (5_000, 20)
