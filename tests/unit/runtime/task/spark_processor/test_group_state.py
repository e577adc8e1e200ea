"""A function of Spark's `applyInPandasWithState` on tidegate's state, on both backends, without a JVM.

What Spark does was read off Spark itself: `tests/integration/test_apply_in_pandas_with_state.py` runs both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

import tidegate as tg
from tidegate.core.times import MAX_WATERMARK
from tidegate.errors import SchemaError, WrongValue
from tidegate.testing import frame, harness

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def told(h):
    return [row.o for row in h.output()]


def said(*texts):
    return pd.DataFrame({"o": [str(text) for text in texts]})


@pytest.fixture(params=["hashmap", "rocksdb"])
def run(request):
    """Open a harness over a function."""
    open_ = []

    def start(
        func, conf="NoTimeout", columns="k string, v int", state="n bigint", out="o string", key=("k",), event_time=None,
        parallelism=1, restore=None,
    ):  # fmt: skip
        source = tg.Job("job").source("in", frame(columns), event_time=event_time)
        stream = tg.apply_in_pandas_with_state(
            source.key_by(*key), func, uid="op", outputStructType=out, stateStructType=state, outputMode="Update",
            timeoutConf=conf,
        )  # fmt: skip
        made = harness(stream, state_backend=request.param, parallelism=parallelism, restore=restore)
        open_.append(made)
        return made

    yield start
    for each in open_:
        each.close()


# -- rows and state --------------------------------------------------------------------------------------------------


def count(key, frames, state):
    before = state.getOption
    state.update(((0 if before is None else state.get[0]) + sum(len(part) for part in frames),))
    yield said(f"{key[0]} {before} {state.get} {state}")


def test_the_function_is_called_once_for_each_key_and_its_state_stays(run):
    h = run(count)

    h.process(("a", 1), ("b", 2), ("a", 3))
    h.snapshot()
    h.process(("a", 1))

    assert told(h) == ["a None (2,) GroupState((2,))", "b None (1,) GroupState((1,))", "a (2,) (3,) GroupState((3,))"]
    assert h.state("groupState", "a") == (3,)


def test_state_that_is_removed_does_not_exist(run):
    def forget(key, frames, state):
        yield said(f"{state.exists} {state.getOption}")
        if state.exists:
            state.remove()
            yield said(f"{state.exists} {state}")
        else:
            state.update((np.int64(1),))

    h = run(forget)
    for _ in range(3):
        h.process(("a", 1))
        h.snapshot()

    assert told(h) == ["False None", "True (1,)", "False GroupState(<undefined>)", "False None"]


def test_state_may_have_arrays_maps_and_structs(run):
    def function(key, frames, state):
        yield said(state.getOption)
        state.update(([1, None], {"x": 2}, ("y",)))

    h = run(function, state="a array<int>, m map<string,int>, s struct<b:string>")
    h.process(("a", 1))
    h.snapshot()
    h.process(("a", 1))

    assert told(h)[1].startswith("([1, None], {'x': 2}, ")


def test_a_function_may_return_a_list_and_read_no_frame(run):
    h = run(lambda key, frames, state: [said(key[0]), pd.DataFrame(), said()])

    h.process(("a", 1), ("b", 2))

    assert told(h) == ["a", "b"]


def test_a_null_does_not_change_the_type_of_the_other_keys(run):
    h = run(lambda key, frames, state: [said(part.v.tolist()) for part in frames])

    h.process(("a", 1), ("b", None), ("a", 3))

    assert told(h) == ["[1, 3]", "[nan]"]


def test_maps_are_dicts(run):
    h = run(lambda key, frames, state: [said(next(frames).m[0])], columns="k string, m map<string,int>")

    h.process(("a", {"x": 1}))

    assert told(h) == ["{'x': 1}"]


@pytest.mark.parametrize(
    ("type", "given", "expected"),
    [
        ("tinyint", 1, np.int8(1)),
        ("smallint", 1, np.int16(1)),
        ("int", 1, np.int32(1)),
        ("bigint", 1, np.int64(1)),
        ("double", 1.5, np.float64(1.5)),
        ("boolean", True, np.bool_(True)),
        ("string", "x", "x"),
        ("decimal(10,2)", Decimal("1.50"), Decimal("1.50")),
        ("date", NOON.date(), NOON.date()),
        ("timestamp", NOON, pd.Timestamp(NOON.replace(tzinfo=None))),
        ("timestamp_ntz", NOON.replace(tzinfo=None), pd.Timestamp(NOON.replace(tzinfo=None))),
    ],
)
def test_the_key_has_the_types_that_pandas_has(run, type, given, expected):
    found = []
    h = run(lambda key, frames, state: found.append(key) or [], columns=f"k {type}, l {type}", key=("k", "l"))

    h.process((given, given))
    h.process((given, None))

    assert found[0] == (expected, expected)
    assert [part.__class__ for part in found[0]] == [expected.__class__] * 2
    assert found[1][0] == expected
    assert pd.isna(found[1][1])


# -- timeouts in event time ------------------------------------------------------------------------------------------

EVENTS = {"conf": "EventTimeTimeout", "columns": "k string, v int, t timestamp", "event_time": "t"}


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def timed(*on_timeout, at_ms=NOON_MS + 1000, update=True):
    """Sets a timeout when the state is new. On a timeout, does what is asked for."""

    def function(key, frames, state):
        rows = sum(len(part) for part in frames)
        what = "timeout" if state.hasTimedOut else f"{rows} rows"
        yield said(f"{key[0]} {what} {state.getOption} at {state.getCurrentWatermarkMs() - NOON_MS}")
        if state.hasTimedOut:
            for act in on_timeout:
                act(state)
        elif not state.exists:
            state.update((1,))
            state.setTimeoutTimestamp(at_ms)
        elif update:
            state.update((state.get[0] + 1,))

    return function


def remove(state):
    state.remove()


def test_a_timeout_passes_when_sparks_watermark_is_later(run):
    h = run(timed(remove), **EVENTS)
    h.process(("a", 1, at(0)))
    h.advance_watermark(NOON_MS + 999)
    early, due = told(h), h.next_timers()[0]
    h.advance_watermark(NOON_MS + 1000)
    h.advance_watermark(NOON_MS + 9000)

    assert len(early) == 1
    assert due == NOON_MS + 1000
    assert told(h) == ["a timeout (1,) at 1001"]
    assert h.state("groupState", "a") is None


def test_a_timed_out_function_gets_one_empty_frame_with_the_columns(run):
    def function(key, frames, state):
        if state.hasTimedOut:
            yield said(*[(part.shape, list(part.columns)) for part in frames])
            state.remove()
        else:
            state.setTimeoutTimestamp(at(1))

    h = run(function, **EVENTS)
    h.process(("a", 1, at(0)))
    h.advance_watermark(at(5))

    assert told(h) == ["((0, 3), ['k', 'v', 't'])"]


def test_an_update_without_a_timeout_clears_it(run):
    h = run(timed(remove), **EVENTS)
    h.process(("a", 1, at(0)))
    h.process(("a", 1, at(0)))
    h.advance_watermark(at(5))

    assert [text.split(" at")[0] for text in told(h)] == ["a 1 rows None", "a 1 rows (1,)"]
    assert h.state("groupState", "a") == (2,)


def test_a_call_that_changes_nothing_keeps_the_timeout(run):
    h = run(timed(remove, update=False), **EVENTS)
    h.process(("a", 1, at(0)))
    h.process(("a", 1, at(0)))
    h.advance_watermark(at(5))

    assert told(h)[-1] == "a timeout (1,) at 5001"


def test_a_timed_out_function_that_changes_nothing_is_called_again_when_time_has_moved(run):
    """At the same watermark it is not: it would be called without end in a job without rows."""
    h = run(timed(), **EVENTS)
    h.process(("a", 1, at(0)))
    for seconds in (5, 5, 6, 6, 7):
        h.advance_watermark(at(seconds))
        h.snapshot()

    assert told(h)[1:] == [f"a timeout (1,) at {seconds}001" for seconds in (5, 6, 7)]


def test_the_end_of_event_time_is_the_last_call(run):
    h = run(timed(), **EVENTS)
    h.process(("a", 1, at(0)))
    h.advance_watermark(MAX_WATERMARK)

    assert len(told(h)) == 2


def test_at_the_end_of_event_time_timeouts_of_timeouts_pass(run):
    def again(state):
        (n,) = state.get
        if n < 3:
            state.update((n + 1,))
            state.setTimeoutTimestamp(at(10 * n))
        else:
            state.remove()
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 1000)

    h = run(timed(again), **EVENTS)
    h.process(("a", 1, at(0)))
    h.advance_watermark(MAX_WATERMARK)

    assert [text.split(" at")[0] for text in told(h)[1:]] == [f"a timeout ({n},)" for n in (1, 2, 3)]


def test_a_timeout_outlives_the_state_that_is_removed(run):
    def once_more(state):
        if state.exists:
            state.remove()
            state.setTimeoutTimestamp(state.getCurrentWatermarkMs())
        else:
            state.remove()

    h = run(timed(once_more), **EVENTS)
    h.process(("a", 1, at(0)))
    for seconds in (5, 6, 7):
        h.advance_watermark(at(seconds))

    assert told(h)[1:] == ["a timeout (1,) at 5001", "a timeout None at 6001"]


def test_each_timeout_replaces_the_one_before(run):
    def function(key, frames, state):
        if state.hasTimedOut:
            yield said(f"timeout {state.getCurrentWatermarkMs() - NOON_MS}")
            state.remove()
        for part in frames:
            for v in part.v:
                state.setTimeoutTimestamp(NOON_MS + v)

    h = run(function, **EVENTS)
    h.process(("a", 1000, at(0)), ("a", 9000, at(0)))
    h.process(("a", 3000, at(0)))
    for seconds in (2, 4, 6, 10):
        h.advance_watermark(at(seconds))

    assert told(h) == ["timeout 4001"]


def test_timeouts_move_with_their_keys(run):
    h = run(timed(remove), **EVENTS)
    h.process(*[(f"k{n}", 1, at(0)) for n in range(20)])
    restored = run(timed(remove), **EVENTS, restore=h.snapshot(), parallelism=3)
    restored.advance_watermark(at(5))

    assert sorted(told(restored)) == sorted(f"k{n} timeout (1,) at 5001" for n in range(20))


@pytest.mark.parametrize(("conf", "kept"), [("EventTimeTimeout", [3]), ("NoTimeout", [1, 3])])
def test_late_rows_are_dropped_only_with_an_event_time_timeout(run, conf, kept):
    h = run(lambda key, frames, state: [said(*part.v) for part in frames], **{**EVENTS, "conf": conf})
    h.advance_watermark(NOON_MS)
    h.process(("a", 1, at(0)), ("a", 3, at(1)))

    assert told(h) == list(map(str, kept))


# -- timeouts in processing time -------------------------------------------------------------------------------------


@pytest.mark.parametrize("duration", [1000, np.int64(1000), "1 second"])
def test_a_timeout_in_processing_time(run, duration):
    def function(key, frames, state):
        yield said(f"{state.hasTimedOut} {state.getCurrentProcessingTimeMs()}")
        if state.hasTimedOut:
            state.remove()
        else:
            state.setTimeoutDuration(duration)

    h = run(function, "ProcessingTimeTimeout")
    h.set_processing_time(5)
    h.process(("a", 1))
    for time in (1005, 1006, 9999):
        h.set_processing_time(time)

    assert told(h) == ["False 5", "True 1006"]


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "act", "error", "says"),
    [
        ("NoTimeout", lambda s: s.get, ValueError, "has no state"),
        ("NoTimeout", lambda s: s.update(None), TypeError, "not None"),
        ("NoTimeout", lambda s: s.update((1, 2)), WrongValue, "has 1 field"),
        ("NoTimeout", lambda s: s.getCurrentWatermarkMs(), RuntimeError, "no watermark"),
        ("NoTimeout", lambda s: s.setTimeoutDuration(1), RuntimeError, "ProcessingTimeTimeout"),
        ("ProcessingTimeTimeout", lambda s: s.setTimeoutTimestamp(1), RuntimeError, "EventTimeTimeout"),
        ("ProcessingTimeTimeout", lambda s: s.setTimeoutDuration(0), ValueError, "positive"),
        ("ProcessingTimeTimeout", lambda s: s.setTimeoutDuration("soon"), ValueError, "not a duration"),
        ("EventTimeTimeout", lambda s: s.setTimeoutTimestamp(0), ValueError, "positive"),
        ("EventTimeTimeout", lambda s: s.setTimeoutTimestamp(NOON_MS), ValueError, "earlier than the watermark"),
        ("EventTimeTimeout", lambda s: s.setTimeoutDuration(1), RuntimeError, "ProcessingTimeTimeout"),
    ],
)
def test_what_a_state_cannot_do_is_refused(run, conf, act, error, says):
    def function(key, frames, state):
        act(state)
        return []

    timed = conf == "EventTimeTimeout"
    h = run(function, conf, columns="k string, t timestamp", event_time="t" if timed else None)
    if timed:
        h.advance_watermark(NOON_MS)
    with pytest.raises(error, match=says):
        h.process(("a", at(9)))


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "a NoneType"),
        (said("x"), "a DataFrame"),
        ([pd.DataFrame({"o": ["x"], "more": [1]})], "outputStructType has 1"),
        ([pd.DataFrame({"other": ["x"]})], "also has o"),
        (["text"], "Emit pandas frames"),
    ],
)
def test_what_is_not_a_frame_of_the_schema_is_refused(run, result, says):
    with pytest.raises(SchemaError, match=says):
        run(lambda key, frames, state: result).process(("a", 1))
