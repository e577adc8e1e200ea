"""Durations as users write them in code, and as options have them."""

from datetime import timedelta

import pytest

import tidegate as tg
from tidegate.config.option import DURATION
from tidegate.core.durations import argument_ms, duration_ms, option_ms
from tidegate.core.errors import GraphError
from tidegate.runtime.epochs.trigger import EpochTrigger


@pytest.mark.feature("D2")
@pytest.mark.parametrize("given", [30, 1, -5, 0.5, 1e3, 1e-7, "30", " 30 ", "0.5", "-30", ".5"])
def test_a_number_without_a_unit_is_refused(given):
    number = str(given).strip()
    with pytest.raises(ValueError, match="has no unit") as caught:
        duration_ms(given)
    assert f"Write '{number} s' or '{number} ms'" in str(caught.value)


@pytest.mark.parametrize("given", [True, False, None, b"1 s", [1]])
def test_what_is_no_duration_at_all_is_not_given_a_unit(given):
    with pytest.raises(ValueError, match="is not a duration such as"):
        duration_ms(given)


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        (0, 0),
        (0.0, 0),
        ("0", 0),
        ("0 s", 0),
        ("30 s", 30_000),
        ("30ms", 30),
        ("1.5 min", 90_000),
        (timedelta(seconds=2), 2000),
    ],
)
def test_a_duration_with_a_unit_and_nothing_at_all_are_clear(given, ms):
    assert duration_ms(given) == ms


def test_a_number_without_a_unit_is_milliseconds_in_an_option_as_in_flink():
    assert option_ms("30") == DURATION.read("30") == 30
    key = "execution.checkpointing.interval"
    assert tg.Checkpointing(options={"execution.checkpointing.dir": "d", key: 1000}).to_options()[key] == "1000"


def test_an_error_names_the_argument():
    with pytest.raises(GraphError, match=r"^gap=5 has no unit\. Write '5 s' or '5 ms'\.\n"):
        argument_ms("gap", 5)
    with pytest.raises(GraphError, match=r"^gap='soon' is not a duration such as"):
        argument_ms("gap", "soon")


@pytest.mark.parametrize("given", [5, "5"])
def test_a_trigger_without_a_unit_is_refused(given):
    with pytest.raises(GraphError, match=r"trigger='?5'? has no unit. Write '5 s' or '5 ms', or 'available-now'"):
        EpochTrigger.parse(given)


@pytest.mark.parametrize(("lower", "upper"), [(-5, "5 s"), ("-5", "5 s"), ("-5 s", 5)])
def test_an_interval_join_without_a_unit_is_refused(lower, upper):
    rows = tg.testing.frame("k string, at timestamp")
    job = tg.Job("joined")
    left = job.source("left", rows, event_time="at").key_by("k")
    right = job.source("right", rows, event_time="at").key_by("k")
    with pytest.raises(GraphError, match=r"(lower|upper)='?-?5'? has no unit"):
        left.interval_join("join", right, lower=lower, upper=upper, function=lambda a, b: None, schema="k string")
