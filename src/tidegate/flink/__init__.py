"""PyFlink's names, for functions written for PyFlink: `from tidegate.flink import KeyedProcessFunction, Types`.

Functions keep their code; only their imports change. How streams are made and connected is tidegate's: see
docs/migrate/from-flink.md.
"""

from __future__ import annotations

from typing import NoReturn

from tidegate.api.aggregates import AggregateFunction, ReduceFunction
from tidegate.api.context import ProcessContext, TimerService
from tidegate.api.state_access import (
    AppendAccess as AggregatingState,
)
from tidegate.api.state_access import (
    AppendAccess as ReducingState,
)
from tidegate.api.state_access import (
    BroadcastAccess as BroadcastState,
)
from tidegate.api.state_access import (
    BroadcastAccess as ReadOnlyBroadcastState,
)
from tidegate.api.state_access import (
    ListAccess as ListState,
)
from tidegate.api.state_access import (
    MapAccess as MapState,
)
from tidegate.api.state_access import (
    ValueAccess as ValueState,
)
from tidegate.api.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TriggerResult,
)
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
)
from tidegate.core.times import TimeDomain
from tidegate.flink.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from tidegate.flink.functions import (
    FlinkFilterFunction as FilterFunction,
)
from tidegate.flink.functions import (
    FlinkFlatMapFunction as FlatMapFunction,
)
from tidegate.flink.functions import (
    FlinkKeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
)
from tidegate.flink.functions import (
    FlinkKeyedCoProcessFunction as KeyedCoProcessFunction,
)
from tidegate.flink.functions import (
    FlinkKeyedProcessFunction as KeyedProcessFunction,
)
from tidegate.flink.functions import (
    FlinkMapFunction as MapFunction,
)
from tidegate.flink.functions import (
    FlinkProcessWindowFunction as ProcessWindowFunction,
)
from tidegate.flink.functions import (
    FlinkWindowFunction as WindowFunction,
)
from tidegate.flink.lengths_of_time import Duration, Time
from tidegate.flink.not_mapped import NOT_MAPPED
from tidegate.flink.output_tag import OutputTag
from tidegate.flink.row import Row
from tidegate.flink.runtime_context import FlinkRuntimeContext as RuntimeContext
from tidegate.flink.type_information import TypeInformation, Types
from tidegate.graph.ttl import StateTtlConfig

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "BroadcastState",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "Duration",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "FilterFunction",
    "FlatMapFunction",
    "GlobalWindow",
    "GlobalWindows",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "ListState",
    "ListStateDescriptor",
    "MapFunction",
    "MapState",
    "MapStateDescriptor",
    "NeverTrigger",
    "OutputTag",
    "ProcessContext",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReadOnlyBroadcastState",
    "ReduceFunction",
    "ReducingState",
    "ReducingStateDescriptor",
    "Row",
    "RuntimeContext",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "StateDescriptor",
    "StateTtlConfig",
    "Time",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "TypeInformation",
    "Types",
    "ValueState",
    "ValueStateDescriptor",
    "WindowFunction",
]


def __getattr__(name: str) -> NoReturn:
    if name in NOT_MAPPED:
        raise ImportError(f"tidegate.flink has no {name}. {NOT_MAPPED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
