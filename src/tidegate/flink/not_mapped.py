"""Names of PyFlink that have no counterpart here, and what to write instead."""

from __future__ import annotations

_JOB = "Streams are made by tidegate: job = tidegate.Job(name); job.source(uid, spark.readStream…)."
_TIME = "Declare event time at the source: job.source(uid, df, event_time='ts', out_of_orderness='20 s')."
_SINK = "Use a sink of tidegate: stream.sink(uid, tidegate.FileSink(…)). A source is any Spark DataFrame."
_UNKEYED = "Functions without a key have neither state nor timers here. Use FlatMapFunction, or key_by(…) first."
_TWO = "Two streams are connected by key: KeyedCoProcessFunction, with first.key_by(…).connect(second.key_by(…))."
_WINDOW_ALL = "Windows belong to keys. Key the stream by a constant column for a single window over all rows."
_TABLE = "For tables and SQL, use Spark SQL on the DataFrame before it becomes a source."
_OPTIONS = "Pass options, with Flink's keys, when the job starts: job.run(options={…}), or tidegate run -Dkey=value."
_CHECKPOINTS = "Pass tidegate.Checkpointing(dir=…, interval=…) to job.run."
_BACKEND = "Choose the backend when the job starts: job.run(state_backend='hashmap') or 'rocksdb'."
_COUNT = "Use GlobalWindows with PurgingTrigger.of(CountTrigger.of(n))."

NOT_MAPPED = {
    "StreamExecutionEnvironment": _JOB,
    "RuntimeExecutionMode": "A job on spark.read… is bounded, a job on spark.readStream… is streaming.",
    "DataStream": _JOB,
    "KeyedStream": _JOB,
    "ConnectedStreams": _JOB,
    "BroadcastStream": _JOB,
    "WindowedStream": _JOB,
    "ExecutionConfig": _OPTIONS,
    "CheckpointConfig": _CHECKPOINTS,
    "RestartStrategies": _OPTIONS,
    "HashMapStateBackend": _BACKEND,
    "EmbeddedRocksDBStateBackend": _BACKEND,
    "Configuration": _OPTIONS,
    "CheckpointingMode": _CHECKPOINTS,
    "WatermarkStrategy": _TIME,
    "TimestampAssigner": _TIME,
    "KeySelector": "Keys are columns: stream.key_by('user'). Compute them in Spark SQL, or with map.",
    "ProcessFunction": _UNKEYED,
    "CoProcessFunction": _TWO,
    "CoMapFunction": _TWO,
    "CoFlatMapFunction": _TWO,
    "BroadcastProcessFunction": "Key the other stream, and use KeyedBroadcastProcessFunction.",
    "AllWindowFunction": _WINDOW_ALL,
    "ProcessAllWindowFunction": _WINDOW_ALL,
    "CountWindow": _COUNT,
    "CountTumblingWindowAssigner": _COUNT,
    "CountSlidingWindowAssigner": _COUNT,
    "Trigger": "Derive from tidegate.Trigger, which declares its state on the class.",
    "WindowAssigner": "Derive from tidegate.WindowAssigner.",
    "AsyncFunction": "Derive from tidegate.AsyncFunction, and call stream.async_map(uid, function, timeout=…).",
    "FileSource": _SINK,
    "FileSink": _SINK,
    "KafkaSource": _SINK,
    "KafkaSink": _SINK,
    "SourceFunction": _SINK,
    "SinkFunction": _SINK,
    "SimpleStringSchema": _SINK,
    "Instant": "Store a datetime, with Types.SQL_TIMESTAMP().",
    "RowKind": "Rows have no kind: there are no retractions.",
    "StreamTableEnvironment": _TABLE,
    "TableEnvironment": _TABLE,
    "EnvironmentSettings": _TABLE,
}
