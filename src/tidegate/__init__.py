"""Flink-like state, checkpoints and savepoints for PySpark jobs.

    import tidegate as tg

Importing this is quick: what needs Spark or Arrow is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.api.functions import FilterFunction, FlatMapFunction, KeyedProcessFunction, MapFunction
from tidegate.api.job import Job
from tidegate.api.states import ListState, MapState, ValueState
from tidegate.core import errors
from tidegate.core.errors import TidegateError

if TYPE_CHECKING:
    from tidegate import testing
    from tidegate.api.savepoints import Savepoint, SavepointWriter
    from tidegate.checkpoint.options import Checkpointing
    from tidegate.connectors.files import FileSink
    from tidegate.connectors.kafka import KafkaSink
    from tidegate.connectors.lakehouse import DeltaSink, IcebergSink
    from tidegate.connectors.memory import CallbackSink, CollectSink, DiscardSink, PrintSink
    from tidegate.connectors.postgres import PostgresSink
    from tidegate.connectors.write_ahead import WriteAheadSink
    from tidegate.control.rest import serve
    from tidegate.runtime.kafka_source import kafka_source
    from tidegate.runtime.session import session

__all__ = [
    "CallbackSink",
    "Checkpointing",
    "CollectSink",
    "DeltaSink",
    "DiscardSink",
    "FileSink",
    "FilterFunction",
    "FlatMapFunction",
    "IcebergSink",
    "Job",
    "KafkaSink",
    "KeyedProcessFunction",
    "ListState",
    "MapFunction",
    "MapState",
    "PostgresSink",
    "PrintSink",
    "Savepoint",
    "SavepointWriter",
    "TidegateError",
    "ValueState",
    "WriteAheadSink",
    "errors",
    "kafka_source",
    "serve",
    "session",
    "testing",
]

_LAZY = {
    "CallbackSink": "tidegate.connectors.memory",
    "Checkpointing": "tidegate.checkpoint.options",
    "DeltaSink": "tidegate.connectors.lakehouse",
    "DiscardSink": "tidegate.connectors.memory",
    "CollectSink": "tidegate.connectors.memory",
    "FileSink": "tidegate.connectors.files",
    "IcebergSink": "tidegate.connectors.lakehouse",
    "KafkaSink": "tidegate.connectors.kafka",
    "kafka_source": "tidegate.runtime.kafka_source",
    "PrintSink": "tidegate.connectors.memory",
    "serve": "tidegate.control.rest",
    "Savepoint": "tidegate.api.savepoints",
    "SavepointWriter": "tidegate.api.savepoints",
    "PostgresSink": "tidegate.connectors.postgres",
    "WriteAheadSink": "tidegate.connectors.write_ahead",
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
