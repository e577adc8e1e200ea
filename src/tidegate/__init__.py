"""Flink-like state, checkpoints and savepoints for PySpark jobs.

    import tidegate as tg

Importing this is quick: what needs Spark or Arrow is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.api.functions import (
    AggregateFunction,
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
from tidegate.core import errors
from tidegate.core.errors import TidegateError
from tidegate.graph.on_error import dead_letter
from tidegate.graph.ttl import StateTtlConfig

if TYPE_CHECKING:
    from tidegate import testing
    from tidegate.api.savepoints import Savepoint, SavepointWriter
    from tidegate.checkpoint.options import Checkpointing
    from tidegate.connectors.files import FileSink
    from tidegate.connectors.memory import CallbackSink, CollectSink, DiscardSink, PrintSink
    from tidegate.runtime.session import session

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "BroadcastState",
    "CallbackSink",
    "CheckpointedFunction",
    "Checkpointing",
    "CollectSink",
    "DiscardSink",
    "FileSink",
    "FilterFunction",
    "FlatMapFunction",
    "Job",
    "KeyedBroadcastProcessFunction",
    "KeyedProcessFunction",
    "ListCheckpointed",
    "ListState",
    "MapFunction",
    "MapState",
    "PrintSink",
    "ReducingState",
    "Savepoint",
    "SavepointWriter",
    "SortedMapState",
    "StateTtlConfig",
    "TidegateError",
    "ValueState",
    "dead_letter",
    "errors",
    "session",
    "testing",
]

_LAZY = {
    "CallbackSink": "tidegate.connectors.memory",
    "Checkpointing": "tidegate.checkpoint.options",
    "DiscardSink": "tidegate.connectors.memory",
    "CollectSink": "tidegate.connectors.memory",
    "FileSink": "tidegate.connectors.files",
    "PrintSink": "tidegate.connectors.memory",
    "Savepoint": "tidegate.api.savepoints",
    "SavepointWriter": "tidegate.api.savepoints",
    "session": "tidegate.runtime.session",
}
"""Where a name is found that is imported when first asked for. `testing` is a module of its own."""


def __getattr__(name: str) -> Any:
    if name == "testing":
        return import_module("tidegate.testing")
    if name not in _LAZY:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
