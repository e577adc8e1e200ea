"""Where the time of a task goes."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import pyarrow as pa

from tidegate.runtime.exchange.messages import TaskMetrics
from tidegate.runtime.task.work_meter import WorkMeter, resident_bytes

BATCH = pa.RecordBatch.from_pydict({"x": [1, 2, 3, 4]})


def slowly(count: int) -> Iterator[pa.RecordBatch]:
    for _ in range(count):
        time.sleep(0.02)
        yield BATCH


def test_waiting_for_input_is_idle_time() -> None:
    meter = WorkMeter()
    assert list(meter.input(slowly(3))) == [BATCH] * 3
    found = meter.metrics(0)
    assert (found.bytes_in, found.bytes_out) == (3 * BATCH.nbytes, 0)
    assert found.idle_ms >= 60
    assert found.busy_ms < found.idle_ms


def test_time_until_output_is_taken_is_held_time() -> None:
    meter = WorkMeter()
    for _ in meter.output(batch for batch in [BATCH, BATCH]):
        time.sleep(0.02)
    found = meter.metrics(0)
    assert found.bytes_out == 2 * BATCH.nbytes
    assert found.held_ms >= 40


def test_sealing_and_restoring_are_timed_apart() -> None:
    meter = WorkMeter()
    with meter.restoring:
        time.sleep(0.02)
    with meter.sealing:
        time.sleep(0.01)
    found = meter.metrics(0)
    assert found.restore_ms >= 20
    assert 10 <= found.seal_ms < found.restore_ms


def test_output_that_is_abandoned_closes_the_attempt_at_once() -> None:
    closed = []

    def attempt() -> Generator[pa.RecordBatch, None, None]:
        try:
            yield BATCH
        finally:
            closed.append(True)

    taken = WorkMeter().output(attempt())
    next(taken)
    taken.close()
    assert closed == [True]


def test_a_meter_that_is_off_measures_nothing() -> None:
    meter = WorkMeter(enabled=False)
    assert list(meter.input([BATCH])) == [BATCH]
    assert list(meter.output(batch for batch in [BATCH])) == [BATCH]
    assert meter.metrics(0) == TaskMetrics()


def test_a_process_reports_its_memory() -> None:
    assert resident_bytes() > 10 * 1024 * 1024
