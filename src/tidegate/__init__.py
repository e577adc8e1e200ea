"""Flink-like state, checkpoints and savepoints for PySpark jobs.

    import tidegate as tg

Importing this is quick: what needs Spark or Arrow is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate import errors
from tidegate.api.functions import (
    CheckpointedFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListCheckpointed,
    MapFunction,
)
from tidegate.api.job import Job
from tidegate.api.states import (
    AggregatingState,
    BroadcastState,
    ListState,
    MapState,
    ReducingState,
    SortedMapState,
    ValueState,
)
from tidegate.core.errors import TidegateError
from tidegate.graph.on_error import dead_letter
from tidegate.graph.ttl import StateTtlConfig

if TYPE_CHECKING:
    from tidegate import testing
    from tidegate.api.aggregates import AggregateFunction, ReduceFunction, approx_distinct, count, max, mean, min, sum
    from tidegate.api.evictors import CountEvictor, Evictor, TimeEvictor
    from tidegate.api.functions import KeyedCoProcessFunction
    from tidegate.api.joins import ProcessJoinFunction
    from tidegate.api.savepoint_writer import SavepointWriter
    from tidegate.api.savepoints import Savepoint
    from tidegate.api.triggers import (
        ContinuousEventTimeTrigger,
        ContinuousProcessingTimeTrigger,
        CountTrigger,
        EventTimeTrigger,
        NeverTrigger,
        ProcessingTimeTrigger,
        PurgingTrigger,
        Trigger,
        TriggerResult,
    )
    from tidegate.api.window_function import ProcessWindowFunction
    from tidegate.api.windows import (
        EventTimeSessionWindows,
        GlobalWindow,
        GlobalWindows,
        ProcessingTimeSessionWindows,
        SlidingEventTimeWindows,
        SlidingProcessingTimeWindows,
        TimeWindow,
        TumblingEventTimeWindows,
        TumblingProcessingTimeWindows,
        WindowAssigner,
    )
    from tidegate.config import Checkpointing
    from tidegate.connectors.files import FileSink
    from tidegate.connectors.kafka import KafkaSink
    from tidegate.connectors.lakehouse import DeltaSink, IcebergSink
    from tidegate.connectors.memory import CallbackSink, CollectSink, DiscardSink, PrintSink
    from tidegate.connectors.postgres import PostgresSink
    from tidegate.connectors.write_ahead import WriteAheadSink
    from tidegate.control.rest import serve
    from tidegate.core.times import TimeDomain
    from tidegate.runtime.driver.session import session
    from tidegate.runtime.sources.kafka_source import kafka_source

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "BroadcastState",
    "CallbackSink",
    "CheckpointedFunction",
    "Checkpointing",
    "CollectSink",
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
    "Job",
    "KafkaSink",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "ListCheckpointed",
    "ListState",
    "MapFunction",
    "MapState",
    "NeverTrigger",
    "PostgresSink",
    "PrintSink",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReduceFunction",
    "ReducingState",
    "Savepoint",
    "SavepointWriter",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "SortedMapState",
    "StateTtlConfig",
    "TidegateError",
    "TimeDomain",
    "TimeEvictor",
    "TimeWindow",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "ValueState",
    "WindowAssigner",
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
]

_LAZY = {
    "AggregateFunction": "tidegate.api.aggregates",
    "CallbackSink": "tidegate.connectors.memory",
    "Checkpointing": "tidegate.config",
    "CollectSink": "tidegate.connectors.memory",
    "ContinuousEventTimeTrigger": "tidegate.api.triggers",
    "ContinuousProcessingTimeTrigger": "tidegate.api.triggers",
    "CountEvictor": "tidegate.api.evictors",
    "CountTrigger": "tidegate.api.triggers",
    "DeltaSink": "tidegate.connectors.lakehouse",
    "DiscardSink": "tidegate.connectors.memory",
    "EventTimeSessionWindows": "tidegate.api.windows",
    "EventTimeTrigger": "tidegate.api.triggers",
    "Evictor": "tidegate.api.evictors",
    "FileSink": "tidegate.connectors.files",
    "GlobalWindow": "tidegate.api.windows",
    "GlobalWindows": "tidegate.api.windows",
    "IcebergSink": "tidegate.connectors.lakehouse",
    "KafkaSink": "tidegate.connectors.kafka",
    "KeyedCoProcessFunction": "tidegate.api.functions",
    "NeverTrigger": "tidegate.api.triggers",
    "PostgresSink": "tidegate.connectors.postgres",
    "PrintSink": "tidegate.connectors.memory",
    "ProcessJoinFunction": "tidegate.api.joins",
    "ProcessWindowFunction": "tidegate.api.window_function",
    "ProcessingTimeSessionWindows": "tidegate.api.windows",
    "ProcessingTimeTrigger": "tidegate.api.triggers",
    "PurgingTrigger": "tidegate.api.triggers",
    "ReduceFunction": "tidegate.api.aggregates",
    "Savepoint": "tidegate.api.savepoints",
    "SavepointWriter": "tidegate.api.savepoint_writer",
    "SlidingEventTimeWindows": "tidegate.api.windows",
    "SlidingProcessingTimeWindows": "tidegate.api.windows",
    "TimeDomain": "tidegate.core.times",
    "TimeEvictor": "tidegate.api.evictors",
    "TimeWindow": "tidegate.api.windows",
    "Trigger": "tidegate.api.triggers",
    "TriggerResult": "tidegate.api.triggers",
    "TumblingEventTimeWindows": "tidegate.api.windows",
    "TumblingProcessingTimeWindows": "tidegate.api.windows",
    "WindowAssigner": "tidegate.api.windows",
    "WriteAheadSink": "tidegate.connectors.write_ahead",
    "approx_distinct": "tidegate.api.aggregates",
    "count": "tidegate.api.aggregates",
    "kafka_source": "tidegate.runtime.sources.kafka_source",
    "max": "tidegate.api.aggregates",
    "mean": "tidegate.api.aggregates",
    "min": "tidegate.api.aggregates",
    "serve": "tidegate.control.rest",
    "session": "tidegate.runtime.driver.session",
    "sum": "tidegate.api.aggregates",
}
"""Where a name is found that is imported when first asked for. `testing` is a module of its own."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tidegate")
    if name == "testing":
        return import_module("tidegate.testing")
    if name not in _LAZY:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
