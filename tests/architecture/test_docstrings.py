"""Docstrings of public functions: they describe every parameter, and their examples run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from tests.described import Documented, reference
from tests.docstring_examples import examples, run

OPEN = {
    "AggregateFunction",
    "AsyncFunction",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "GlobalWindows",
    "NeverTrigger",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReduceFunction",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeEvictor",
    "Trigger",
    "TriggerContext",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
    "WindowContext",
    "apply_in_pandas_with_state",
    "approx_distinct",
    "count",
    "max",
    "mean",
    "min",
    "sum",
    "transform_with_state",
    "transform_with_state_in_pandas",
}
"""Classes and functions with parameters that nobody has described yet. Nothing may be added."""

WITH_EXAMPLE = {
    "BroadcastConnectedStream.process",
    "Checkpointing",
    "CheckpointedFunction",
    "ConnectedStreams.process",
    "FileSink",
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
    "Savepoint.state",
    "SavepointWriter.with_state",
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
    "ValueState",
    "WindowedStream.aggregate",
    "WindowedStream.process",
    "WindowedStream.reduce",
    "dead_letter",
    "frame",
    "harness",
}
"""What users call most."""


@pytest.fixture(scope="module")
def documented() -> list[Documented]:
    return reference()


def owner(each: Documented) -> str:
    return each.name.partition(".")[0]


def test_every_parameter_of_a_public_function_is_described(documented: list[Documented]) -> None:
    missing = {each.name: each.undescribed() for each in documented if each.undescribed() and owner(each) not in OPEN}

    assert missing == {}


def test_what_is_described_leaves_the_list_of_what_is_open(documented: list[Documented]) -> None:
    still_open = {owner(each) for each in documented if each.undescribed()}

    assert sorted(OPEN - still_open) == []


def test_the_methods_that_users_call_most_have_an_example(documented: list[Documented]) -> None:
    shown = {each.name for each in documented if each.has_example}

    assert sorted(WITH_EXAMPLE - shown) == []


@pytest.mark.parametrize("example", list(examples(with_spark=False)), ids=lambda example: example.name)
def test_the_example_in_a_docstring_shows_what_happens(
    example: doctest.DocTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(example) == ""


def test_an_example_that_shows_something_else_is_noticed() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> job.name\n'another'\n", {}, "wrong", None, None)

    assert "Got:\n    'shop'" in run(wrong)


def test_a_parameter_without_a_word_is_noticed() -> None:
    text = "Send a `row`.\n\nArgs:\n    tag: Where it goes.\n"
    function = Documented(name="output", module="m", parameters=("tag", "row", "time"), text=text)

    assert function.undescribed() == ["time"]
