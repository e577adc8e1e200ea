"""What `transform_with_state` refuses, with a sentence, when a job is declared."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StructField, StructType

import tidegate as tg
from tidegate.core.types import codec_of, schema_of
from tidegate.errors import GraphError
from tidegate.savepoint.evolution import AsIs, compare
from tidegate.savepoint.schema_codec import schema_codec, show_schema
from tidegate.testing import frame, harness


class Plain(StatefulProcessor):
    def __init__(self, init=lambda handle: None):
        self.prepare = init

    def init(self, handle):
        self.kept = self.prepare(handle)

    def handleInputRows(self, key, rows, timerValues):
        return iter([])

    def close(self):
        pass


def declared(processor=None, **others):
    arguments = {"uid": "op", "outputStructType": "n bigint", "outputMode": "Update", "timeMode": "None", **others}
    keyed = tg.Job("job").source("in", frame("k string, t timestamp")).key_by("k")
    return tg.transform_with_state(keyed, processor or Plain(), **arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"outputMode": "Complete"}, "Spark refuses it as well"),
        ({"outputMode": "Often"}, "'Update' or 'Append'"),
        ({"timeMode": "Sometimes"}, "'ProcessingTime' or 'EventTime'"),
        ({"timeMode": "EventTime"}, "have no event time"),
        ({"outputStructType": LongType()}, "outputStructType is a StructType or DDL"),
        ({"outputStructType": 3}, "outputStructType is a StructType or DDL"),
        ({"eventTimeColumnName": "n"}, "not a timestamp"),
        ({"initialState": "text"}, "keyed stream"),
        ({"processor": Plain}, "takes an instance"),
        ({"processor": object()}, "has no init"),
    ],
)
def test_wrong_arguments_are_refused(arguments, says):
    with pytest.raises(GraphError, match=says):
        declared(**arguments)


@pytest.mark.parametrize(
    ("init", "says"),
    [
        (lambda handle: handle.getValueState("n", "n int").get(), "init has none"),
        (lambda handle: handle.registerTimer(1), "init has none"),
        (lambda handle: handle.listTimers(), "init has none"),
        (lambda handle: handle.getValueState("on_timer", "n int"), "taken by the timers"),
        (lambda handle: [handle.getValueState("n", "n int") for _ in range(2)], "twice"),
        (lambda handle: (handle.deleteIfExists("n"), handle.getValueState("n", "n int")), "Remove one of the two"),
        (lambda handle: (handle.getValueState("n", "n int"), handle.deleteIfExists("n")), "Remove one of the two"),
        (lambda handle: handle.getListState("n", "n int", 1000), "timeMode is 'None'"),
        (lambda handle: handle.getValueState("n", 7), "schema of state 'n'"),
    ],
)
def test_what_init_cannot_do_is_refused(init, says):
    with pytest.raises(GraphError, match=says):
        declared(Plain(init))


@pytest.mark.parametrize("ttl", [0, -1, 1.5, True])
def test_a_wrong_time_to_live_is_refused(ttl):
    with pytest.raises(GraphError, match="positive int"):
        declared(Plain(lambda handle: handle.getValueState("n", "n int", ttl)), timeMode="processingtime")


def test_a_stream_without_key_is_refused():
    stream = tg.Job("job").source("in", frame("k string"))

    with pytest.raises(GraphError, match="needs a keyed stream"):
        tg.transform_with_state(
            stream, Plain(), uid="op", outputStructType="n int", outputMode="Append", timeMode="None"
        )


def test_the_processor_itself_is_left_alone():
    processor = Plain(lambda handle: handle.getValueState("n", "n int"))
    declared(processor)

    assert not hasattr(processor, "kept")


def test_states_and_output_are_known_before_the_job_runs():
    schema = StructType([StructField("n", LongType())])
    stream = declared(Plain(lambda handle: handle.getMapState("m", "a string", schema)), outputStructType=schema)

    assert [str(state) for state in stream.node().states] == ["MapState[tuple[str | None], tuple[int | None]]"]
    assert str(stream.schema) == "n bigint"


def test_snapshots_name_the_fields_of_state():
    schema = "n bigint, items array<struct<`a b`:int>>, by map<string,struct<c:double>>"
    stream = declared(Plain(lambda handle: handle.getMapState("m", "a string", schema)))
    (state,) = stream.node().states
    described = state.describe()

    assert show_schema(described["value"]) == (
        "m(n: int | None, items: list[items(a b: int | None) | None] | None, "
        "by: dict[str, by(c: float | None) | None] | None)"
    )
    assert isinstance(compare(schema_of(state.value), described["value"]), AsIs)
    stored = codec_of(state.value).encode((1, [(2,)], {"x": (3.0,)}))
    assert schema_codec(described["value"]).decode(stored) == {"n": 1, "items": [{"a b": 2}], "by": {"x": {"c": 3.0}}}


def test_the_event_time_of_the_output_is_that_of_the_column():
    stream = declared(outputStructType="at timestamp", eventTimeColumnName="at")

    assert stream.event_time == "at"


def test_a_state_asked_for_after_init_is_refused():
    class Late(Plain):
        def init(self, handle):
            self.handle = handle

        def handleInputRows(self, key, rows, timerValues):
            self.handle.getValueState("late", "n int")
            return iter([])

    with harness(declared(Late())) as h, pytest.raises(GraphError, match="before it starts"):
        h.process(("a", None))


def test_two_calls_of_init_must_agree():
    class Moody(Plain):
        calls = 0

        def init(self, handle):
            Moody.calls += 1
            handle.getValueState(f"n{Moody.calls}", "n int")

    with pytest.raises(GraphError, match="every time"):
        harness(declared(Moody()))
