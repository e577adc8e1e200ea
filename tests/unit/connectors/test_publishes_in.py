"""Where the committer of a sink runs."""

from __future__ import annotations

import pickle

import pytest

import tidegate as tg
from tidegate.connectors.lakehouse import DeltaSink, IcebergSink
from tidegate.connectors.sink import publishes_in
from tidegate.core.errors import GraphError


@pytest.mark.parametrize(
    ("sink", "where"),
    [
        (tg.KafkaSink("host:9092", "t"), "task"),
        (tg.PostgresSink("", "t"), "task"),
        (tg.FileSink("/files"), "task"),
        (tg.WriteAheadSink(print), "task"),
        (tg.WriteAheadSink(print, publishes_in="driver"), "driver"),
        (DeltaSink("/table"), "driver"),
        (IcebergSink("lake", "db.t"), "driver"),
        (tg.CollectSink(), "driver"),
        (object(), "driver"),
    ],
)
def test_a_sink_declares_where_its_committer_runs(sink, where):
    assert publishes_in(sink) == where


def test_an_unknown_commit_location_is_refused():
    with pytest.raises(GraphError, match="'task' or in the 'driver', not in 'cloud'"):
        tg.WriteAheadSink(print, publishes_in="cloud")


@pytest.mark.feature("J17", "J18")
def test_a_function_travels_to_tasks_unless_it_is_called_in_the_driver():
    sink = tg.WriteAheadSink(print, form="arrow", idempotent=True)
    assert pickle.loads(pickle.dumps(sink)) == sink
    assert (
        pickle.loads(pickle.dumps(tg.WriteAheadSink(lambda rows, token: None, publishes_in="driver"))).function is None
    )
