"""Where the time of an epoch went."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.unit.runtime.monitoring.test_job_metrics import ack
from tidegate.runtime.epochs.phases import between_epochs_ms, epoch_phases
from tidegate.runtime.epochs.streaming_time import StreamingTime
from tidegate.runtime.exchange.messages import TaskAck, TaskMetrics


def task(level: int, slot: int, began_ms: int, took_ms: int) -> TaskAck:
    return ack(slot, level=level, metrics=TaskMetrics(started_ms=began_ms, busy_ms=took_ms - 10, idle_ms=10))


def phases(*acks: TaskAck) -> dict[str, int]:
    return epoch_phases(acks, before_ms=5, plan_ms=20, began_ms=1_000, run_ms=500)


def test_the_parts_of_a_run_add_up_to_it() -> None:
    found = phases(task(1, 0, 1_100, 150), task(1, 1, 1_110, 100), task(2, 0, 1_300, 100), task(2, 1, 1_310, 150))
    assert found == {
        "repeat": 5, "plan": 20, "run": 500, "source": 100, "level 1": 200, "level 2": 160, "collect": 40,
    }  # fmt: skip


def test_a_host_whose_clock_is_wrong_makes_no_phase_negative() -> None:
    found = phases(task(1, 0, 400, 150), task(2, 0, 9_000, 100))
    assert min(found.values()) == 0
    assert found["source"] + found["level 1"] + found["level 2"] + found["collect"] == 500


def test_tasks_that_measure_nothing_leave_the_run_undivided() -> None:
    assert phases(ack(0), ack(1)) == {"repeat": 5, "plan": 20, "run": 500}


def test_structured_streaming_takes_what_is_not_the_batch() -> None:
    assert between_epochs_ms({"triggerExecution": 900, "addBatch": 850, "walCommit": 20}) == 50
    assert between_epochs_ms({"latestOffset": 3}) is None


def test_progress_is_read_once_a_second() -> None:
    now, reads = [0.0], []

    class Query:
        @property
        def lastProgress(self) -> Any:
            reads.append(now[0])
            return {"durationMs": {"triggerExecution": 100 + len(reads), "addBatch": 100}} if len(reads) > 1 else None

    streaming = StreamingTime(lambda: now[0])
    found = []
    for now[0] in (0.0, 0.5, 1.1, 1.9, 2.2):
        found.append(streaming.ms(Query()))  # type: ignore[arg-type]
    assert reads == [0.0, 1.1, 2.2]
    assert found == [None, None, 2, 2, 3]
    assert StreamingTime().ms(SimpleNamespace(lastProgress=None)) is None  # type: ignore[arg-type]
