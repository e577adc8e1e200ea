"""The public names, frozen. Adding one is a decision, and removing one breaks somebody."""

from __future__ import annotations

import tidegate

PUBLIC = {
    "AggregateFunction",
    "AggregatingState",
    "BroadcastContext",
    "BroadcastState",
    "CallbackSink",
    "CheckpointedFunction",
    "Checkpointing",
    "CollectSink",
    "Committer",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountTrigger",
    "DeltaSink",
    "DiscardSink",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "FileSink",
    "FilterFunction",
    "FlatMapFunction",
    "GlobalWindow",
    "GlobalWindows",
    "IcebergSink",
    "InitializationContext",
    "Job",
    "JobRun",
    "KafkaSink",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "ListCheckpointed",
    "ListState",
    "MapFunction",
    "MapState",
    "NeverTrigger",
    "OnTimerContext",
    "OperatorStateStore",
    "PostgresSink",
    "PrintSink",
    "ProcessContext",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReduceFunction",
    "ReducingState",
    "RuntimeContext",
    "Savepoint",
    "SavepointWriter",
    "Sink",
    "SinkWriter",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SnapshotContext",
    "SortedMapState",
    "StateTtlConfig",
    "TidegateError",
    "TimeDomain",
    "TimeEvictor",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "ValueState",
    "WindowAssigner",
    "WindowContext",
    "WriteAheadSink",
    "approx_distinct",
    "count",
    "dead_letter",
    "errors",
    "kafka_source",
    "max",
    "mean",
    "min",
    "serve",
    "session",
    "sum",
    "testing",
}


def test_the_public_names_are_these() -> None:
    assert set(tidegate.__all__) == PUBLIC  # type: ignore[attr-defined]


def test_every_public_name_is_there() -> None:
    missing = [name for name in PUBLIC if not hasattr(tidegate, name)]
    assert not missing


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    assert not hasattr(tidegate, "no_such_name")
