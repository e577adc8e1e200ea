"""Docstrings of public functions: they describe every parameter, and their examples run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.described import Documented, reference
from tests.docstring_examples import examples, run

WITH_EXAMPLE = {
    "AggregateFunction",
    "AsyncFunction",
    "BroadcastConnectedStream.process",
    "CheckpointedFunction",
    "Checkpointing",
    "ConnectedStreams.process",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "EventTimeSessionWindows",
    "FileSink",
    "GlobalWindows",
    "Job",
    "Job.explain",
    "Job.run",
    "Job.side_output",
    "Job.source",
    "Job.start",
    "KafkaSink",
    "KeyedBatchFunction",
    "KeyedProcessFunction",
    "KeyedStream.aggregate",
    "KeyedStream.connect",
    "KeyedStream.deduplicate",
    "KeyedStream.interval_join",
    "KeyedStream.map_with_state",
    "KeyedStream.process",
    "KeyedStream.window",
    "KeyedStream.window_join",
    "ListState",
    "MapState",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "PurgingTrigger",
    "ReduceFunction",
    "Savepoint.state",
    "SavepointWriter.with_state",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "Stream.assign_timestamps",
    "Stream.async_map",
    "Stream.broadcast",
    "Stream.filter",
    "Stream.flat_map",
    "Stream.key_by",
    "Stream.map",
    "Stream.side_output",
    "Stream.sink",
    "Stream.union",
    "TimeEvictor",
    "Trigger",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "ValueState",
    "WindowAssigner",
    "WindowedStream.aggregate",
    "WindowedStream.process",
    "WindowedStream.reduce",
    "apply_in_pandas_with_state",
    "approx_distinct",
    "count",
    "dead_letter",
    "frame",
    "harness",
    "max",
    "mean",
    "min",
    "sum",
    "transform_with_state",
    "transform_with_state_in_pandas",
}
"""What users call most."""


@pytest.fixture(scope="module")
def documented() -> list[Documented]:
    return reference()


def test_every_parameter_of_a_public_function_is_described(documented: list[Documented]) -> None:
    missing = {each.name: each.undescribed() for each in documented if each.undescribed()}

    assert missing == {}


def test_most_used_methods_have_an_example(documented: list[Documented]) -> None:
    shown = {each.name for each in documented if each.has_example}

    assert sorted(WITH_EXAMPLE - shown) == []


@pytest.mark.parametrize("example", list(examples(with_spark=False)), ids=lambda example: example.name)
def test_docstring_example_prints_what_it_shows(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(example) == ""


def test_wrong_example_is_reported() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> job.name\n'another'\n", {}, "wrong", None, None)

    assert "Got:\n    'shop'" in run(wrong)


def test_undescribed_parameter_is_reported() -> None:
    text = "Send a `row`.\n\nArgs:\n    tag: Where it goes.\n"
    function = Documented(name="output", module="m", parameters=("tag", "row", "time"), text=text)

    assert function.undescribed() == ["time"]
