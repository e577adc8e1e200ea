"""What `apply_in_pandas_with_state` declares, and what it refuses, with a sentence."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import LongType, StructField, StructType

import tidegate as tg
from tidegate.errors import GraphError
from tidegate.graph.labels import name_of
from tidegate.savepoint.schema_codec import show_schema
from tidegate.testing import frame


def nothing(key, frames, state):
    return iter(())


def declared(func=nothing, **others):
    arguments = {
        "uid": "op",
        "outputStructType": "n bigint",
        "stateStructType": "n bigint",
        "outputMode": "Update",
        "timeoutConf": GroupStateTimeout.NoTimeout,
        **others,
    }
    keyed = tg.Job("job").source("in", frame("k string, t timestamp"), event_time=others.pop("event_time", None))
    arguments.pop("event_time", None)
    return tg.apply_in_pandas_with_state(keyed.key_by("k"), func, **arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"outputMode": "Complete"}, "Spark refuses it as well"),
        ({"outputMode": "Often"}, "'Update' or 'Append'"),
        ({"timeoutConf": "Sometimes"}, "'ProcessingTimeTimeout', 'EventTimeTimeout'"),
        ({"timeoutConf": "EventTimeTimeout"}, "have no event time"),
        ({"outputStructType": LongType()}, "outputStructType is a StructType or DDL"),
        ({"stateStructType": 3}, "stateStructType is a StructType or DDL"),
        ({"func": "text"}, "takes a function"),
        ({"func": dict}, "takes a function"),
    ],
)
def test_wrong_arguments_are_refused(arguments, says):
    with pytest.raises(GraphError, match=says):
        declared(**arguments)


def test_a_stream_without_key_is_refused():
    stream = tg.Job("job").source("in", frame("k string"))

    with pytest.raises(GraphError, match="needs a keyed stream"):
        tg.apply_in_pandas_with_state(
            stream, nothing, uid="op", outputStructType="n int", stateStructType="n int", outputMode="Append",
            timeoutConf="NoTimeout",
        )  # fmt: skip


def test_the_state_has_the_names_of_its_fields():
    schema = StructType([StructField("n", LongType())])
    node = declared(stateStructType=schema, outputStructType=schema).node()
    (state,) = node.states

    assert state.name == "groupState"
    assert show_schema(state.describe()["value"]) == "groupState(n: int | None)"
    assert str(node.schema) == "n bigint"
    assert name_of(node.function) == "nothing"


@pytest.mark.parametrize("conf", ["ProcessingTimeTimeout", "EventTimeTimeout"])
def test_timeouts_are_timers(conf):
    node = declared(timeoutConf=conf, event_time="t").node()

    assert [state.name for state in node.states] == ["groupState", "on_timer", "timers_of_key"]
