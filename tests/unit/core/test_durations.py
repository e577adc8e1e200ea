"""Durations as users write them in code, and as options have them."""

import re
from datetime import timedelta

import pytest

import tidegate as tg
from tidegate.config.option import DURATION
from tidegate.core.durations import argument_ms, duration_ms, option_ms
from tidegate.core.errors import GraphError
from tidegate.runtime.epochs.trigger import EpochTrigger


@pytest.mark.feature("D2")
@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        (30, ["30 s", "30 ms"]),
        (1, ["1 s", "1 ms"]),
        (0.5, ["0.5 s"]),
        (1e3, ["1000.0 s", "1000.0 ms"]),
        ("1e3", ["1000 s", "1000 ms"]),
        ("30", ["30 s", "30 ms"]),
        (" 30 ", ["30 s", "30 ms"]),
        (".5", ["0.5 s"]),
        ("-30", []),
        (-5, []),
        (1e-7, []),
    ],
)
def test_a_number_without_a_unit_is_refused(given, suggested):
    with pytest.raises(ValueError, match="has no unit") as caught:
        duration_ms(given)
    texts = suggested or ["500 ms", "10 s", "5 min", "1 h", "1 day"]
    assert re.findall("'([^']+)'", str(caught.value).partition("Write ")[2]) == texts
    assert all(duration_ms(text) > 0 for text in texts)


def test_nothing_is_suggested_that_is_too_short_for_an_argument():
    with pytest.raises(ValueError, match=r"Write '900 s'$"):
        duration_ms(900, least_ms=1000)


@pytest.mark.parametrize("given", [True, False, None, b"1 s", [1]])
def test_an_error_suggests_no_unit_for_text_that_is_no_duration(given):
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
def test_a_duration_with_a_unit_and_zero_are_accepted(given, ms):
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
    with pytest.raises(GraphError, match=r"^Windows\.of\(size=5\): 5 has no unit"):
        argument_ms("size", 5, of="Windows.of")


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
    with pytest.raises(GraphError, match=r"(lower='?-5'? has no unit. Write '-5 s'|upper=5 has no unit. Write '5 s')"):
        left.interval_join("join", right, lower=lower, upper=upper, function=lambda a, b: None, schema="k string")
