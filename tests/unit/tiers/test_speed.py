"""A limit of time is stretched for a machine that is slow when it has passed, and only then."""

from __future__ import annotations

import pytest

from tests import speed
from tests.speed import MOST, Limit, slowness
from tests.waiting import eventually


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets, and a machine that is as slow as it says."""
    state = {"now": 100.0, "slowness": 1.0, "samples": 0}

    def measured():
        state["samples"] += 1
        return state["slowness"]

    monkeypatch.setattr(speed.time, "monotonic", lambda: state["now"])
    monkeypatch.setattr(speed, "slowness", measured)
    return state


def test_an_idle_machine_gets_the_limit_as_it_is(clock):
    limit = Limit(10)
    clock["now"] += 10
    assert not limit.passed()
    clock["now"] += 0.1
    assert limit.passed()


def test_a_loaded_machine_gets_more_time_up_to_a_limit(clock):
    limit = Limit(10)
    clock.update(now=clock["now"] + 29, slowness=3.0)
    assert not limit.passed()
    clock["now"] += 2
    assert limit.passed()


def test_nothing_is_measured_before_the_limit(clock):
    limit = Limit(10)
    clock["now"] += 9
    assert not limit.passed()
    assert clock["samples"] == 0


def test_slowness_is_a_factor_within_bounds():
    assert 1.0 <= slowness() <= MOST


def test_the_failure_says_what_was_waited_for(clock, monkeypatch):
    def sleep(seconds):
        clock["now"] += 5

    monkeypatch.setattr(speed.time, "sleep", sleep)
    with pytest.raises(AssertionError, match="not within 10 s: the kettle"):
        eventually(lambda: False, "the kettle", timeout_s=10)
