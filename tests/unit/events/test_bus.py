"""Events reach every listener in order and once, and no listener reaches the job."""

from __future__ import annotations

import logging
import threading

import pytest

from tests.speed import Limit
from tests.waiting import eventually
from tidegate.events.bus import EventBus
from tidegate.events.event import JobEvent, RescaleEvent
from tidegate.events.listener import JobListener


def event(number: int) -> RescaleEvent:
    return RescaleEvent(job="orders", at_ms=number, old_parallelism=1, new_parallelism=2)


class Recorder(JobListener):
    def __init__(self) -> None:
        self.heard: list[int] = []
        self.closed = 0

    def on_rescale(self, event: RescaleEvent) -> None:
        self.heard.append(event.at_ms)

    def close(self) -> None:
        self.closed += 1


class Broken(Recorder):
    def on_rescale(self, event: RescaleEvent) -> None:
        raise RuntimeError("no such dashboard")

    def close(self) -> None:
        raise RuntimeError("still not there")


class Stuck(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def on_rescale(self, event: RescaleEvent) -> None:
        self.released.wait(60)
        super().on_rescale(event)


def test_all_listeners_get_events_of_several_threads_once_and_in_the_same_order() -> None:
    first, second = Recorder(), Recorder()
    bus = EventBus([first, second])
    threads = [
        threading.Thread(target=lambda start=start: [bus.emit(event(n)) for n in range(start, start + 200)])
        for start in (0, 1000, 2000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bus.close()
    assert first.heard == second.heard
    assert sorted(first.heard) == [start + n for start in (0, 1000, 2000) for n in range(200)]
    for start in (0, 1000, 2000):
        assert [n for n in first.heard if start <= n < start + 1000] == list(range(start, start + 200))


def test_a_closed_listener_has_heard_everything_and_is_closed_once() -> None:
    listener = Recorder()
    bus = EventBus([listener])
    for number in range(500):
        bus.emit(event(number))
    bus.close()
    bus.close()
    bus.emit(event(500))
    assert listener.heard == list(range(500))
    assert listener.closed == 1


def test_a_listener_that_raises_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    listener = Recorder()
    bus = EventBus([Broken(), listener])
    for number in range(3):
        bus.emit(event(number))
    bus.close()
    assert listener.heard == [0, 1, 2]
    told = [record for record in caplog.records if "listener Broken raised an error" in record.message]
    assert ["RescaleEvent" in record.message for record in told] == [True, True, True, False]
    assert [record.exc_info is not None and record.exc_info[1] is not None for record in told] == [True] + [False] * 3


def test_a_listener_that_hangs_neither_slows_the_job_nor_its_end(caplog: pytest.LogCaptureFixture) -> None:
    stuck, listener = Stuck(), Recorder()
    bus = EventBus([stuck, listener], most_waiting=10)
    bus.emit(event(0))
    eventually(lambda: listener.heard and not bus._deliveries[0]._waiting.qsize(), "both listeners have the event")
    for number in range(1, 16):
        bus.emit(event(number))
    limit = Limit(5)
    bus.close(within_s=0.2)
    assert not limit.passed()
    assert listener.heard[0] == 0
    assert "listener Stuck has not finished in time: 10 events were not handled" in caplog.text
    assert "listener Stuck did not keep up: 5 events were dropped" in caplog.text
    stuck.released.set()


def test_drops_are_logged_at_powers_of_two_only(caplog: pytest.LogCaptureFixture) -> None:
    stuck = Stuck()
    bus = EventBus([stuck], most_waiting=0)
    for number in range(100):
        bus.emit(event(number))
    assert len([record for record in caplog.records if "does not keep up" in record.message]) == 7
    stuck.released.set()
    bus.close()


def test_an_event_is_a_line_of_the_log_with_its_attributes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidegate")
    EventBus().emit(event(0))
    (record,) = caplog.records
    assert record.message == "job orders is rescaled from 1 to 2"
    assert vars(record)["event"] == "RescaleEvent"
    assert vars(record)["attributes"] == {"oldParallelism": 1, "newParallelism": 2}


def test_every_event_has_a_method_of_the_listener() -> None:
    kinds = {kind.__name__ for kind in JobEvent.__subclasses__() if kind.__module__.startswith("tidegate.")}
    methods = [name for name in vars(JobListener) if name.startswith("on_")]
    assert len(kinds) == len(methods)
