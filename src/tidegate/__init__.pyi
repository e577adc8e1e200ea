"""The public names and where they come from: the one list. Type checkers read it here, and `__init__` reads it to know what to
import when a name is first used."""

from tidegate import errors as errors, flink as flink, testing as testing
from tidegate.api.spark_functions.apply_in_pandas_with_state import (
    apply_in_pandas_with_state as apply_in_pandas_with_state,
)
from tidegate.api.aggregates import (
    AggregateFunction as AggregateFunction,
    ReduceFunction as ReduceFunction,
    approx_distinct as approx_distinct,
    count as count,
    max as max,
    mean as mean,
    min as min,
    sum as sum,
)
from tidegate.api.async_function import AsyncFunction as AsyncFunction
from tidegate.api.context import (
    BatchContext as BatchContext,
    BatchTimerService as BatchTimerService,
    BroadcastContext as BroadcastContext,
    InitializationContext as InitializationContext,
    OnTimerContext as OnTimerContext,
    OperatorStateStore as OperatorStateStore,
    ProcessContext as ProcessContext,
    RuntimeContext as RuntimeContext,
    SnapshotContext as SnapshotContext,
    TimerService as TimerService,
)
from tidegate.api.evictors import (
    CountEvictor as CountEvictor,
    Evictor as Evictor,
    TimeEvictor as TimeEvictor,
)
from tidegate.api.functions import (
    CheckpointListener as CheckpointListener,
    CheckpointedFunction as CheckpointedFunction,
    FilterFunction as FilterFunction,
    FlatMapFunction as FlatMapFunction,
    KeyedBatchFunction as KeyedBatchFunction,
    KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction as KeyedCoProcessFunction,
    KeyedProcessFunction as KeyedProcessFunction,
    ListCheckpointed as ListCheckpointed,
    MapFunction as MapFunction,
)
from tidegate.api.job import Job as Job
from tidegate.api.joins import ProcessJoinFunction as ProcessJoinFunction
from tidegate.api.savepoint_writer import SavepointWriter as SavepointWriter
from tidegate.api.savepoints import Savepoint as Savepoint
from tidegate.graph.renamed import Uid as Uid
from tidegate.api.states import (
    AggregatingState as AggregatingState,
    BroadcastState as BroadcastState,
    ListState as ListState,
    MapState as MapState,
    ReducingState as ReducingState,
    SortedMapState as SortedMapState,
    ValueState as ValueState,
)
from tidegate.api.spark_functions.transform_with_state import (
    transform_with_state as transform_with_state,
    transform_with_state_in_pandas as transform_with_state_in_pandas,
)
from tidegate.api.triggers import (
    ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
    CountTrigger as CountTrigger,
    EventTimeTrigger as EventTimeTrigger,
    NeverTrigger as NeverTrigger,
    ProcessingTimeTrigger as ProcessingTimeTrigger,
    PurgingTrigger as PurgingTrigger,
    Trigger as Trigger,
    TriggerContext as TriggerContext,
    TriggerResult as TriggerResult,
)
from tidegate.api.window_function import (
    ProcessWindowFunction as ProcessWindowFunction,
    WindowContext as WindowContext,
)
from tidegate.api.windows import (
    EventTimeSessionWindows as EventTimeSessionWindows,
    GlobalWindow as GlobalWindow,
    GlobalWindows as GlobalWindows,
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
    SlidingEventTimeWindows as SlidingEventTimeWindows,
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
    TimeWindow as TimeWindow,
    TumblingEventTimeWindows as TumblingEventTimeWindows,
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
    WindowAssigner as WindowAssigner,
)
from tidegate.config import Checkpointing as Checkpointing
from tidegate.connectors.files import FileSink as FileSink
from tidegate.connectors.kafka import KafkaSink as KafkaSink
from tidegate.connectors.kafka.formats import (
    AvroFormat as AvroFormat,
    JsonFormat as JsonFormat,
    JsonSchemaFormat as JsonSchemaFormat,
    ProtobufFormat as ProtobufFormat,
)
from tidegate.connectors.lakehouse import (
    DeltaSink as DeltaSink,
    IcebergSink as IcebergSink,
)
from tidegate.connectors.memory import (
    CallbackSink as CallbackSink,
    CollectSink as CollectSink,
    DiscardSink as DiscardSink,
    PrintSink as PrintSink,
)
from tidegate.connectors.postgres import PostgresSink as PostgresSink
from tidegate.connectors.sink import (
    Committer as Committer,
    Sink as Sink,
    SinkWriter as SinkWriter,
)
from tidegate.connectors.write_ahead import WriteAheadSink as WriteAheadSink
from tidegate.control.rest.server import serve as serve
from tidegate.control.spark_import.import_query import import_spark_query as import_spark_query

from tidegate.core.errors import TidegateError as TidegateError
from tidegate.core.times import TimeDomain as TimeDomain
from tidegate.events.event import (
    CheckpointEvent as CheckpointEvent,
    EpochEvent as EpochEvent,
    JobFailureEvent as JobFailureEvent,
    JobInitializationEvent as JobInitializationEvent,
    JobStatusChangeEvent as JobStatusChangeEvent,
    RescaleEvent as RescaleEvent,
)
from tidegate.events.listener import JobListener as JobListener
from tidegate.graph.on_error import dead_letter as dead_letter
from tidegate.graph.retry import (
    ExponentialBackoffDelayRetry as ExponentialBackoffDelayRetry,
    FixedDelayRetry as FixedDelayRetry,
)
from tidegate.graph.ttl import StateTtlConfig as StateTtlConfig
from tidegate.runtime.driver.job_run import JobRun as JobRun
from tidegate.runtime.monitoring.spark_listener import SparkProgressListener as SparkProgressListener
from tidegate.runtime.driver.session import session as session
from tidegate.runtime.sources.kafka_source import kafka_source as kafka_source
from tidegate.state.keys.key_index import KeyIndex as KeyIndex

__version__: str
