"""Spark's `StatefulProcessor` on tidegate's state: every method of the handle, on both backends, without a JVM."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import tidegate as tg
from tidegate.core.times import MAX_WATERMARK
from tidegate.errors import GraphError, SchemaError, WrongValue
from tidegate.runtime.task.operators import gathered_rows
from tidegate.runtime.task.spark_processor import stateful_processor_operator
from tidegate.testing import frame, harness

BACKENDS = ["hashmap", "rocksdb"]
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def declared(
    processor, time_mode="None", columns="k string, v int", out="o string", uid="op", pandas=False, event_time=None,
    key=("k",), **others,
):  # fmt: skip
    """The stream of a processor over rows of these columns."""
    call = tg.transform_with_state_in_pandas if pandas else tg.transform_with_state
    source = tg.Job("job").source("in", frame(columns), **({} if event_time is None else {"event_time": event_time}))
    modes = {"outputMode": "Update", **others}
    return call(source.key_by(*key), processor, uid=uid, outputStructType=out, timeMode=time_mode, **modes)


class Base(StatefulProcessor):
    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            yield from (Row(o=repr(each)) for each in self.step(row.v, timerValues))

    def step(self, v, timerValues):
        """What a row does to the state. Each result is emitted as text."""
        return ()

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(o=f"{key} fires {expiredTimerInfo.getExpiryTimeInMs()}")

    def close(self):
        pass


def told(h):
    return [row.o for row in h.output()]


@pytest.fixture(params=BACKENDS)
def run(request):
    """Open a harness over a processor; the same arguments as `declared`."""
    open_ = []

    def start(processor, *args, parallelism=1, restore=None, **others):
        made = harness(
            declared(processor, *args, **others), state_backend=request.param, parallelism=parallelism, restore=restore
        )
        open_.append(made)
        return made

    yield start
    for each in open_:
        each.close()


# -- state -----------------------------------------------------------------------------------------------------------


class Values(Base):
    def init(self, handle):
        self.state = handle.getValueState("n", "n int, s string")

    def step(self, v, timerValues):
        match v:
            case 0:
                yield self.state.exists(), self.state.get()
            case 1:
                self.state.update((5, None))
            case 2:
                self.state.update([np.int64(6), "x"])
            case 3:
                self.state.clear()
            case 4:
                self.state.update((1,))
            case 5:
                self.state.update(("text", "x"))


def test_value_state_reads_what_was_written_and_none_otherwise(run):
    h = run(Values())

    h.process(*[("a", v) for v in (0, 1, 0, 2, 0, 3, 0)], ("b", 0))

    assert told(h) == ["(False, None)", "(True, (5, None))", "(True, (6, 'x'))", "(False, None)", "(False, None)"]


def test_value_state_survives_an_epoch(run):
    h = run(Values())

    h.process(("a", 1))
    h.snapshot()
    h.process(("a", 0))

    assert told(h) == ["(True, (5, None))"]
    assert h.state("n", "a") == (5, None)


def test_a_value_with_too_few_fields_is_refused(run):
    with pytest.raises(WrongValue, match="has 2 fields"):
        run(Values()).process(("a", 4))


def test_a_value_of_another_type_is_refused(run):
    h = run(Values())
    with pytest.raises(WrongValue, match="'n'"):
        h.process(("a", 5))


class Lists(Base):
    def init(self, handle):
        self.state = handle.getListState("l", StructType([StructField("n", IntegerType())]))

    def step(self, v, timerValues):
        match v:
            case 0:
                yield self.state.exists(), list(self.state.get())
            case 1:
                self.state.put([(1,), (2,)])
            case 2:
                self.state.appendValue((3,))
            case 3:
                self.state.appendList([(4,), (5,)])
            case 4:
                self.state.clear()


def test_list_state_keeps_elements_in_order(run):
    h = run(Lists())

    h.process(*[("a", v) for v in (0, 1, 2)])
    h.snapshot()
    h.process(*[("a", v) for v in (3, 0, 1, 0, 4, 0)])

    everything = "(True, [(1,), (2,), (3,), (4,), (5,)])"
    assert told(h) == ["(False, [])", everything, "(True, [(1,), (2,)])", "(False, [])"]


class Maps(Base):
    def init(self, handle):
        key = StructType([StructField("a", StringType()), StructField("b", IntegerType())])
        self.state = handle.getMapState("m", key, "n int")

    def step(self, v, timerValues):
        match v:
            case 0:
                yield self.state.exists(), dict(self.state.iterator())
            case 1:
                self.state.updateValue(("x", 1), (10,))
                self.state.updateValue(("y", None), (20,))
            case 2:
                yield self.state.getValue(("x", 1)), self.state.getValue(("x", 2))
                yield self.state.containsKey(("y", None)), self.state.containsKey(("z", 0))
                yield sorted(self.state.values()), list(filter(lambda key: key[1], self.state.keys()))
            case 3:
                self.state.removeKey(("x", 1))
                self.state.removeKey(("never", 1))
            case 4:
                self.state.clear()


def test_map_state_has_entries_by_user_key(run):
    h = run(Maps())

    h.process(("a", 0), ("a", 1))
    h.snapshot()
    h.process(*[("a", v) for v in (2, 3, 0, 4, 0)])

    assert told(h) == [
        "(False, {})", "((10,), None)", "(True, False)", "([(10,), (20,)], [('x', 1)])", "(True, {('y', None): (20,)})",
        "(False, {})",
    ]  # fmt: skip


class Moments(Base):
    def init(self, handle):
        self.state = handle.getValueState("t", "t timestamp, items array<struct<a:int>>, m map<string,int>")

    def step(self, v, timerValues):
        if v == 1:
            self.state.update((NOON, [Row(a=1), (2,)], {"x": np.int32(3)}))
        else:
            t, items, m = self.state.get()
            yield t.tzinfo, t.astimezone(UTC) == NOON, [item.a for item in items], m


def test_times_come_back_in_local_time_and_structs_with_names(run):
    h = run(Moments())
    h.process(("a", 1))
    h.snapshot()
    h.process(("a", 2))

    assert told(h) == ["(None, True, [1, 2], {'x': 3})"]


class Ttl(Base):
    def init(self, handle):
        self.value = handle.getValueState("v", "n int", 1000)
        self.list = handle.getListState("l", "n int", ttlDurationMs=1000)
        self.map = handle.getMapState("m", "n int", "n int", 1000)

    def step(self, v, timerValues):
        if v:
            self.value.update((v,))
            self.list.appendValue((v,))
            self.map.updateValue((v,), (v,))
        yield self.value.get(), list(self.list.get()), list(self.map.keys())


def test_state_expires_after_its_time_to_live(run):
    h = run(Ttl(), "ProcessingTime")
    h.set_processing_time(NOON)
    h.process(("a", 1))
    h.set_processing_time(NOON + timedelta(milliseconds=999))
    h.process(("a", 2))
    h.snapshot()
    h.set_processing_time(NOON + timedelta(milliseconds=1000))
    h.process(("a", 0))
    h.set_processing_time(NOON + timedelta(milliseconds=1999))
    h.process(("a", 0))

    assert told(h) == [
        "((1,), [(1,)], [(1,)])", "((2,), [(1,), (2,)], [(1,), (2,)])", "((2,), [(2,)], [(2,)])", "(None, [], [])",
    ]  # fmt: skip


class Old(Base):
    def init(self, handle):
        handle.getValueState("gone", "n int")
        self.gone = handle.getValueState("kept", "n int")

    def step(self, v, timerValues):
        self.gone.update((v,))
        return ()


class Purging(Base):
    def init(self, handle):
        handle.getValueState("gone", "n int")
        handle.deleteIfExists("kept")
        handle.deleteIfExists("never there")

    def step(self, v, timerValues):
        return ()


class Again(Base):
    def init(self, handle):
        self.state = handle.getValueState("kept", "n int")

    def step(self, v, timerValues):
        yield self.state.get()


def test_delete_if_exists_purges_a_state(run):
    h = run(Old())
    h.process(("a", 7))
    before = h.snapshot()
    kept = run(Again(), restore=before)
    kept.process(("a", 0))
    after = run(Purging(), restore=before).snapshot()
    purged = run(Again(), restore=after)
    purged.process(("a", 0))

    assert told(kept) == ["(7,)"]
    assert told(purged) == ["None"]


# -- rows ------------------------------------------------------------------------------------------------------------


class Sees(Base):
    def handleInputRows(self, key, rows, timerValues):
        rows = list(rows)
        first = rows[0]
        yield Row(o=f"{key} {[row.v for row in rows]} {type(first).__mro__[1].__name__} {first['v']} {first.asDict()}")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        return iter([])


def test_one_call_per_key_with_all_its_rows_in_order(run):
    h = run(Sees())

    h.process(("a", 1), ("b", 2), ("a", 3), ("a", 2))

    assert told(h) == ["('a',) [1, 3, 2] Row 1 {'k': 'a', 'v': 1}", "('b',) [2] Row 2 {'k': 'b', 'v': 2}"]


def test_a_key_of_several_columns_is_a_tuple(run):
    h = run(Sees(), columns="k string, v int", key=("k", "v"))

    h.process(("a", 1), ("a", 2))

    assert [text.split(" [")[0] for text in told(h)] == ["('a', 1)", "('a', 2)"]


def test_a_key_with_many_rows_is_read_in_pieces(run, monkeypatch):
    monkeypatch.setattr(stateful_processor_operator, "_ROWS_AT_ONCE", 3)
    h = run(Sees())

    h.process(*[("a", n) for n in range(8)], *[("b", n) for n in range(2)], ("c", 0))

    assert [text.split(" Row")[0] for text in told(h)] == [f"('a',) {list(range(8))}", "('b',) [0, 1]", "('c',) [0]"]


def test_rows_beyond_the_limit_wait_on_disk(run, monkeypatch):
    monkeypatch.setattr(gathered_rows, "MEMORY_BYTES", 200)
    h = run(Sees())
    operator = h._subtasks[0].operator
    takes = operator.process_waiting
    monkeypatch.setattr(operator, "process_waiting", lambda: None)
    for n in range(30):
        h.process((f"k{n % 7}", n), (f"k{n % 3}", n))
    spilled = len(operator._waiting._files)
    takes()

    found = sorted(text.split(" Row")[0] for text in told(h))
    wanted = {f"k{n}": [] for n in range(7)}
    for n in range(30):
        wanted[f"k{n % 7}"].append(n)
        wanted[f"k{n % 3}"].append(n)
    assert spilled == gathered_rows.PARTS
    assert found == sorted(f"('{key}',) {rows}" for key, rows in wanted.items())


def test_rows_on_disk_may_have_a_column_with_any_name(run, monkeypatch):
    monkeypatch.setattr(gathered_rows, "MEMORY_BYTES", 0)
    h = run(Sees(), columns="`key group` int, v int", key=("key group",))

    h.process((1, 2), (3, 4))

    assert sorted(text.split(" Row")[0] for text in told(h)) == ["(1,) [2]", "(3,) [4]"]


class Impatient(Base):
    def handleInputRows(self, key, rows, timerValues):
        yield Row(o=f"{key[0]} {next(rows).v}")


def test_rows_that_the_processor_does_not_read_are_dropped(run):
    h = run(Impatient())

    h.process(("a", 1), ("b", 2), ("a", 3), ("b", 4))

    assert told(h) == ["a 1", "b 2"]


class Returns(Base):
    def handleInputRows(self, key, rows, timerValues):
        return None


def test_a_processor_may_return_nothing(run):
    h = run(Returns())

    h.process(("a", 1))

    assert told(h) == []


class Emits(Base):
    def __init__(self, *rows):
        self.rows = rows

    def handleInputRows(self, key, rows, timerValues):
        return iter(self.rows)


def test_columns_of_emitted_rows_are_found_by_name():
    point = Row("n", "k")
    rows = [Row(n=1, k="a"), Row(k="b", n=2), point(3, "c"), Row(k="d"), Row(k="e", n=5, more=1), ("f", np.int64(6))]
    with harness(declared(Emits(*rows), out="k string, n int")) as h:
        h.process(("x", 1))

        assert h.output() == [("a", 1), ("b", 2), ("c", 3), ("d", None), ("e", 5), ("f", 6)]


def test_nested_rows_and_times_without_zone_are_emitted_as_spark_does():
    row = Row(t=NOON.replace(tzinfo=None), s=Row(b=1, a="x"))
    with harness(declared(Emits(row), out="s struct<a:string,b:int>, t timestamp")) as h:
        h.process(("x", 1))

        assert h.output() == [(("x", 1), NOON)]


def test_what_is_not_a_row_is_refused():
    with harness(declared(Emits("text"))) as h, pytest.raises(SchemaError, match=r"pyspark\.sql\.Row"):
        h.process(("x", 1))


# -- timers ----------------------------------------------------------------------------------------------------------


class Timers(Base):
    def step(self, v, timerValues):
        now = timerValues.getCurrentProcessingTimeInMs()
        match v:
            case 0:
                yield list(self.handle.listTimers())
            case 1:
                self.handle.registerTimer(now + 20)
                self.handle.registerTimer(now + 10)
                self.handle.registerTimer(now + 10)
            case 2:
                self.handle.deleteTimer(now + 10)
                self.handle.deleteTimer(now + 999)
            case 3:
                for time in (30, 31, 32):
                    self.handle.registerTimer(time)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        at = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(o=f"{key[0]} {at} of {list(self.handle.listTimers())}")
        if at == 20:
            self.handle.registerTimer(15)
            self.handle.registerTimer(20)
        if at == 30:
            self.handle.deleteTimer(31)
            self.handle.deleteTimer(32)


def test_timers_are_listed_deleted_and_fire_in_order(run):
    h = run(Timers(), "ProcessingTime")

    h.process(("a", 1), ("a", 0), ("b", 0))
    h.set_processing_time(9)
    h.snapshot()
    h.set_processing_time(10)

    assert told(h) == ["[10, 20]", "[]", "a 10 of [10, 20]"]


def test_a_deleted_timer_does_not_fire(run):
    h = run(Timers(), "ProcessingTime")

    h.process(("a", 1), ("a", 2), ("a", 0))
    h.set_processing_time(19)

    assert told(h) == ["[20]"]


@pytest.mark.parametrize("at_once", [2, 3, 100])
def test_timers_fire_some_at_a_time(run, monkeypatch, at_once):
    h = run(Timers(), "ProcessingTime")
    monkeypatch.setattr(h._subtasks[0].operator, "FIRED_AT_ONCE", at_once)
    h.process(*[(f"k{n}", 1) for n in range(6)])
    h.set_processing_time(20)

    assert [text.split(" of")[0] for text in told(h)] == [f"k{n} {time}" for time in (10, 20) for n in range(6)]


def test_an_error_of_the_sink_while_timers_fire_is_not_that_of_the_processor(run, monkeypatch):
    h = run(Timers(), "ProcessingTime")
    operator = h._subtasks[0].operator
    h.process(*[(f"k{n}", 1) for n in range(6)])

    def full(rows):
        raise OSError("disk full")

    monkeypatch.setattr(operator, "FIRED_AT_ONCE", 2)
    monkeypatch.setattr(operator, "_emit", full)
    with pytest.raises(OSError, match="disk full"):
        operator.advance(replace(h.tested.time, clock_ms=20))


def test_a_timer_registered_while_timers_fire_waits_for_the_next_epoch(run):
    h = run(Timers(), "ProcessingTime")

    h.process(("a", 1))
    h.set_processing_time(20)
    first = told(h)
    h.set_processing_time(21)
    h.set_processing_time(22)

    assert first == ["a 10 of [10, 20]", "a 20 of [20]"]
    assert told(h) == ["a 15 of [15]"]


def test_a_timer_that_is_due_fires_although_another_deletes_it(run):
    """As in Spark, which reads all timers that are due before the first of them fires."""
    h = run(Timers(), "ProcessingTime")

    h.process(("a", 3))
    h.set_processing_time(31)
    h.set_processing_time(99)

    assert told(h) == ["a 30 of [30, 31, 32]", "a 31 of []"]


def test_timers_move_with_their_keys(run):
    h = run(Timers(), "ProcessingTime")
    h.process(*[(f"k{n}", 1) for n in range(20)])
    restored = run(Timers(), "ProcessingTime", restore=h.snapshot(), parallelism=3)
    restored.set_processing_time(10)

    assert sorted(told(restored)) == sorted(f"k{n} 10 of [10, 20]" for n in range(20))


class EventTimers(Base):
    def handleInputRows(self, key, rows, timerValues):
        yield Row(o=f"{[row.v for row in rows]} at {timerValues.getCurrentWatermarkInMs()}")
        self.handle.registerTimer(NOON_MS + 1000)


def at(seconds):
    return NOON + timedelta(seconds=seconds)


def event_timers(run):
    return run(EventTimers(), "EventTime", columns="k string, v int, t timestamp", event_time="t")


def test_event_time_timers_fire_when_sparks_watermark_reaches_them(run):
    h = event_timers(run)
    h.process(("a", 1, at(0)))
    h.advance_watermark(NOON_MS + 998)
    before = told(h)
    due = h.next_timers()[0]
    h.advance_watermark(NOON_MS + 999)

    assert before == ["[1] at 0"]
    assert due == NOON_MS + 999
    assert told(h) == [f"Row(k='a') fires {NOON_MS + 1000}"]


def test_late_rows_are_dropped_and_counted(run):
    h = event_timers(run)
    h.process(("a", 1, at(0)))
    h.advance_watermark(NOON_MS - 1)
    h.process(("a", 2, at(0)), ("a", 3, NOON + timedelta(microseconds=1)), ("a", 4, None), ("b", 5, at(-1)))

    assert told(h) == ["[1] at 0", f"[3, 4] at {NOON_MS}"]
    assert h._subtasks[0].operator.late_dropped == 2


class Chained(EventTimers):
    """Each timer registers the next, three times."""

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        time = expiredTimerInfo.getExpiryTimeInMs()
        if time < NOON_MS + 3_000:
            self.handle.registerTimer(time + 1_000)
        yield from super().handleExpiredTimer(key, timerValues, expiredTimerInfo)


def test_at_the_end_of_event_time_timers_of_timers_fire_at_once_and_all_rows_are_late(run):
    """In a later epoch, whatever reads their output would find it late."""
    h = run(Chained(), "EventTime", columns="k string, v int, t timestamp", event_time="t")
    h.process(("a", 1, NOON))
    h.output()
    h.advance_watermark(MAX_WATERMARK)
    assert [row.rpartition(" ")[2] for row in told(h)] == [str(NOON_MS + 1_000 * n) for n in (1, 2, 3)]
    h.process(("a", 1, NOON))
    assert told(h) == []


class Clocks(Base):
    def step(self, v, timerValues):
        yield timerValues.getCurrentProcessingTimeInMs(), timerValues.getCurrentWatermarkInMs()


def test_without_a_time_mode_there_are_no_clocks(run):
    h = run(Clocks())
    h.process(("a", 1))

    assert told(h) == ["(-1, -1)"]


@pytest.mark.parametrize("call", ["registerTimer", "deleteTimer"])
def test_without_a_time_mode_timers_are_refused(call):
    class Sets(Base):
        def step(self, v, timerValues):
            getattr(self.handle, call)(1)

    with harness(declared(Sets())) as h, pytest.raises(GraphError, match=f"{call} needs a clock"):
        h.process(("a", 1))


# -- life cycle ------------------------------------------------------------------------------------------------------


class Initial(Base):
    def init(self, handle):
        self.state = handle.getValueState("n", "n int")

    def handleInitialState(self, key, initialState, timerValues):
        (before,) = self.state.get() or (0,)
        self.state.update((before + initialState.start,))

    def step(self, v, timerValues):
        yield self.state.get()


def test_initial_state_reaches_the_key_it_belongs_to():
    job = tg.Job("job")
    rows = job.source("in", frame("k string, v int")).key_by("k")
    initial = job.source("initial", frame("name string, start int")).key_by("name")
    stream = tg.transform_with_state(
        rows,
        Initial(),
        uid="op",
        outputStructType="o string",
        outputMode="Append",
        timeMode="None",
        initialState=initial,
    )
    for backend in BACKENDS:
        with harness(stream, state_backend=backend) as h:
            h.process2(("a", 5), ("b", 6), ("a", 1))
            h.process(("a", 0), ("c", 0))

            assert told(h) == ["(6,)", "None"]
            assert h.state("n", "b") == (6,)


def test_the_processor_is_opened_and_closed_in_each_epoch(run):
    calls = []

    class Noisy(Base):
        def __deepcopy__(self, memo):
            return Noisy()

        def init(self, handle):
            calls.append("init")

        def step(self, v, timerValues):
            return ()

        def close(self):
            calls.append("close")

    h = run(Noisy())
    h.process(("a", 1))
    h.snapshot()

    assert calls == ["init", "close", "init", "close", "init"]


def test_an_error_is_the_processors_own(run):
    class Fails(Base):
        def step(self, v, timerValues):
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(Fails()).process(("a", 1))


# -- pandas ----------------------------------------------------------------------------------------------------------


class Frames(Base):
    def init(self, handle):
        self.handle = handle
        self.state = handle.getValueState("n", "n int")

    def handleInputRows(self, key, rows, timerValues):
        for part in rows:
            (before,) = self.state.get() or (0,)
            self.state.update((before + part["v"].sum(),))
            self.handle.registerTimer(10)
            yield pd.DataFrame({"n": [self.state.get()[0]], "o": [f"{key[0]} {list(part.columns)} {list(part.index)}"]})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield pd.DataFrame({"o": ["timer", key[0]], "n": [1.0, None]})


def test_frames_of_each_key(run):
    h = run(Frames(), "ProcessingTime", columns="k string, v int, t timestamp", out="o string, n bigint", pandas=True)
    h.process(("a", 1, NOON), ("b", 2, NOON), ("a", 3, None))
    h.set_processing_time(10)

    assert sorted(h.output(), key=lambda row: row.o) == [
        ("a", None), ("a ['k', 'v', 't'] [0, 1]", 4), ("b", None), ("b ['k', 'v', 't'] [0]", 2), ("timer", 1), ("timer", 1),
    ]  # fmt: skip
    assert h.state("n", "a") == (4,)


class Emitted(Base):
    def __init__(self, *frames):
        self.frames = frames

    def handleInputRows(self, key, rows, timerValues):
        return iter(self.frames)


def test_frames_without_names_are_read_by_position():
    stream = declared(Emitted(pd.DataFrame([["x", 1]]), pd.DataFrame()), out="o string, n int", pandas=True)
    with harness(stream) as h:
        h.process(("a", 1))

        assert h.output() == [("x", 1)]


def test_times_in_frames_without_zone_are_utc():
    with harness(
        declared(Emitted(pd.DataFrame({"t": [NOON.replace(tzinfo=None)]})), out="t timestamp", pandas=True)
    ) as h:
        h.process(("a", 1))

        assert h.output() == [(NOON,)]


@pytest.mark.parametrize(
    ("emitted", "says"),
    [
        (pd.DataFrame({"x": [1]}), "also has o"),
        (Row(o="x"), "Emit pandas frames"),
        (pd.DataFrame({"o": ["text"]}), "does not fit int"),
    ],
)
def test_frames_that_do_not_fit_are_refused(emitted, says):
    with harness(declared(Emitted(emitted), out="o int", pandas=True)) as h, pytest.raises(SchemaError, match=says):
        h.process(("a", 1))
