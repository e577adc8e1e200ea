"""What follows a discarded epoch, by its cause."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.core.ids import HostId, Slot, TaskId
from tidegate.runtime.epochs.check import Broken, Damaged, Missed
from tidegate.runtime.epochs.failover import (
    Counters,
    Fail,
    Interrupted,
    Repeat,
    RepeatCause,
    Rewind,
    count,
    decide,
    without_java,
)
from tidegate.runtime.exchange.messages import Fault, FaultKind, TaskAck

HOMES = {TaskId(1, Slot(0)): HostId("a"), TaskId(1, Slot(1)): HostId("b")}


def missed(slot: int, ran_on: str) -> TaskAck:
    return TaskAck(1, 1, 1, slot, slot, 9, ran_on, None, b"", 0, 0, Fault(FaultKind.MISS, "not here"))


@pytest.mark.feature("H1")
@pytest.mark.parametrize(
    ("cause", "action"),
    [
        (Missed((missed(0, "b"),)), Repeat),
        (Missed((missed(0, "b"), missed(1, "b"))), Rewind),
        (Missed((missed(1, "b"),)), Rewind),
        (Damaged((msgspec.structs.replace(missed(0, "a"), fault=Fault(FaultKind.CORRUPT, "short")),)), Rewind),
        (Broken("mixed"), Repeat),
        (Interrupted("executor lost"), Repeat),
    ],
)
def test_the_cause_of_a_failure_decides_the_action(cause, action):
    assert isinstance(decide(cause, HOMES, tries=1, max_tries=5), action)


@pytest.mark.feature("H1")
def test_tries_of_an_epoch_are_bounded():
    assert isinstance(decide(Broken("mixed"), HOMES, tries=5, max_tries=5), Fail)


def test_error_of_tasks_that_never_reach_their_host_says_what_to_do():
    action = decide(Missed((missed(0, "b"),)), HOMES, tries=5, max_tries=5)
    assert isinstance(action, Fail)
    assert "spark.locality.wait" in action.reason


def test_only_a_rewind_counts_as_a_restart():
    counters = Counters()
    away, broken = RepeatCause.MISPLACED, RepeatCause.INCOMPLETE
    for action in (Repeat("r", broken), Repeat("r", away, 2), Repeat("r", away, 1), Rewind("r")):
        counters = count(counters, action)
    assert counters == Counters(repeats=1, replacements=2, rewinds=1, misplaced_tasks=3)


def test_repeats_are_counted_by_their_cause():
    counters = Counters()
    for cause in (
        Interrupted("executor lost"),
        Interrupted("stage aborted"),
        Broken("mixed"),
        Missed((missed(0, "b"),)),
    ):
        action = decide(cause, HOMES, tries=1, max_tries=5)
        counters = count(counters, action)
    counters = count(counters, Repeat("raised", RepeatCause.USER_ERROR))
    assert counters == Counters(repeats=4, replacements=1, interrupted=2, user_errors=1, misplaced_tasks=1)


def test_the_stack_of_the_jvm_is_cut_from_an_error_of_spark():
    text = (
        "An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "/job/sink.py", line 3, in write\n'
        "OSError: no space left\n"
        "\n"
        "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:602)\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "Caused by: java.io.IOException: no space left\n"
        "\t... 9 more\n"
        "\n"
        "Driver stacktrace:\n"
        "\n"
        "JVM stacktrace:\n"
        "org.apache.spark.SparkException: Job aborted\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)"
    )
    assert without_java(text).splitlines() == [
        "An exception was thrown from the Python worker:",
        "Traceback (most recent call last):",
        '  File "/job/sink.py", line 3, in write',
        "OSError: no space left",
        "Caused by: java.io.IOException: no space left",
    ]


def test_a_text_without_a_java_stack_is_kept():
    assert without_java("Job 3 failed at 10:00 (twice)") == "Job 3 failed at 10:00 (twice)"
