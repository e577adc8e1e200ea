"""Every metric there is. `docs/operations/metrics.md` is generated from this list."""

from __future__ import annotations

from tidegate.metrics.metric import Kind, Metric, Scope
from tidegate.metrics.native import NATIVE
from tidegate.metrics.state_access import MEASURED, MEASURED_TOTAL, STATE_ACCESS

_ALL: list[Metric] = []


def _gauge(scope: Scope, name: str, unit: str, help: str, *labels: str) -> Metric:
    _ALL.append(Metric(name, scope, Kind.GAUGE, unit=unit, help=help, labels=labels))
    return _ALL[-1]


def _counter(scope: Scope, name: str, unit: str, help: str, *labels: str) -> Metric:
    _ALL.append(Metric(name, scope, Kind.COUNTER, unit=unit, help=help, labels=labels))
    return _ALL[-1]


# In the order of the enum.
_job, _task, _operator, _source, _sink, _epoch, *_ = Scope

# -- job ---------------------------------------------------------------------------------------------------------------

LAST_CHECKPOINT_DURATION = _gauge(
    _job,
    "lastCheckpointDuration",
    "ms",
    "Time that the last completed checkpoint took, from its trigger to its log entry.",
)
LAST_CHECKPOINT_SIZE = _gauge(
    _job, "lastCheckpointSize", "bytes", "Bytes that the last completed checkpoint added to storage."
)
LAST_CHECKPOINT_FULL_SIZE = _gauge(
    _job,
    "lastCheckpointFullSize",
    "bytes",
    "Bytes of the last completed checkpoint with the files it shares with older ones.",
)
LAST_CHECKPOINT_METADATA_SIZE = _gauge(
    _job, "lastCheckpointMetadataSize", "bytes", "Bytes of the file `_metadata` of the last completed checkpoint."
)
LAST_CHECKPOINT_PATH = _gauge(
    _job,
    "lastCheckpointExternalPath",
    "info",
    "Always 1; the label `path` says where the last completed checkpoint is.",
    "path",
)
LAST_CHECKPOINT_REQUESTS = _gauge(
    _job,
    "lastCheckpointStorageRequests",
    "",
    "Requests to storage for the last completed checkpoint, by kind (write, read, list, delete): of tasks, and of the driver "
    "with its clean-up.",
    "kind",
)
LAST_CHECKPOINT_COST = _gauge(
    _job,
    "lastCheckpointStorageCost",
    "dollars",
    "Estimated cost of those requests (metrics.storage-price.*). Absent for directories.",
)
CHECKPOINT_INTERVAL = _gauge(
    _job, "checkpointInterval", "ms", "The configured interval (execution.checkpointing.interval)."
)
LAST_COMPLETED_CHECKPOINT_ID = _gauge(_job, "lastCompletedCheckpointId", "", "Id of the last completed checkpoint.")
LAST_CHECKPOINT_COMPLETED = _gauge(
    _job, "lastCheckpointCompletedTimestamp", "ms since 1970", "When the last checkpoint completed."
)
LAST_CHECKPOINT_RESTORED = _gauge(
    _job,
    "lastCheckpointRestoreTimestamp",
    "ms since 1970",
    "When this run was restored from a checkpoint or savepoint.",
)
UNPROTECTED_AGE = _gauge(
    _job,
    "uncheckpointedAge",
    "ms",
    "Age of the oldest finished epoch that no checkpoint contains; 0 if there is none. A job without new rows takes no "
    "checkpoints, and its last one may be old.",
)
CHECKPOINTS_IN_PROGRESS = _gauge(_job, "numberOfInProgressCheckpoints", "", "Checkpoints in progress.")
CHECKPOINTS_COMPLETED = _counter(_job, "numberOfCompletedCheckpoints", "", "Checkpoints completed by this run.")
CHECKPOINTS_FAILED = _counter(_job, "numberOfFailedCheckpoints", "", "Checkpoints that failed in this run.")
CHECKPOINTS_TOTAL = _counter(_job, "totalNumberOfCheckpoints", "", "Checkpoints triggered by this run.")
RESTARTS = _counter(_job, "numRestarts", "", "Restarts from a checkpoint within this run.")
RESCALES = _counter(
    _job,
    "numRescales",
    "",
    "Rescales of this run, and a start from a snapshot that was taken with another parallelism.",
)
STATE = _gauge(_job, "state", "", "1 for the status that the job has, 0 for the others.", "status")
STATUS_TIME = _gauge(
    _job, "statusTime", "ms", "How long the job has had its current status; 0 for the other statuses.", "status"
)
STATUS_TIME_TOTAL = _counter(_job, "statusTimeTotal", "ms", "How long the job has had a status, in all.", "status")
UPTIME = _gauge(_job, "uptime", "ms", "Time since this run started.")
DOWNTIME = _gauge(_job, "downtime", "ms", "How long the current outage has lasted; 0 while the job runs.")
STORAGE_REQUESTS = _counter(
    _job,
    "numStorageRequests",
    "",
    "Requests to the storage of checkpoints, by kind (write, read, list, delete). A repeated request counts once.",
    "kind",
)
STORAGE_BYTES = _counter(
    _job, "storageTransferred", "bytes", "Bytes written to and read from the storage of checkpoints.", "kind"
)
STORAGE_COST = _gauge(
    _job,
    "storageCostPerDay",
    "dollars",
    "Estimated cost of requests and of stored bytes for a day at the rate of this run (metrics.storage-price.*). Absent for "
    "directories.",
)

# -- tasks -------------------------------------------------------------------------------------------------------------

BUSY = _gauge(
    _task, "busyTimeMsPerSecond", "ms per s", "Share of the time since the epoch before in which the task worked."
)
IDLE = _gauge(
    _task,
    "idleTimeMsPerSecond",
    "ms per s",
    "Share of that time in which the task waited for input, or for the next epoch.",
)
HELD = _gauge(
    _task,
    "backPressuredTimeMsPerSecond",
    "ms per s",
    "Share of that time in which the task waited for its output to be read.",
)
TOTAL_BUSY = _counter(_task, "accumulateBusyTimeMs", "ms", "Time in which the task worked.")
TOTAL_IDLE = _counter(_task, "accumulateIdleTimeMs", "ms", "Time in which the task waited for input.")
TOTAL_HELD = _counter(
    _task, "accumulateBackPressuredTimeMs", "ms", "Time in which the task waited for its output to be read."
)
TASK_RECORDS_IN = _counter(_task, "numRecordsIn", "", "Rows that the task received.")
TASK_RECORDS_OUT = _counter(
    _task, "numRecordsOut", "", "Rows that the task sent to later levels or wrote to its sinks."
)
TASK_RECORDS_IN_RATE = _gauge(
    _task, "numRecordsInPerSecond", "", "Rows per second that the task received in the last epoch."
)
TASK_RECORDS_OUT_RATE = _gauge(
    _task,
    "numRecordsOutPerSecond",
    "",
    "Rows per second that the task sent to later levels or wrote to its sinks in the last epoch.",
)
TASK_BYTES_IN = _counter(_task, "numBytesIn", "bytes", "Bytes of the Arrow batches that the task received.")
TASK_BYTES_OUT = _counter(_task, "numBytesOut", "bytes", "Bytes of the Arrow batches that the task sent.")
FIRED_TIMERS = _counter(_task, "numFiredTimers", "", "Timers that fired.")
LATE_DROPPED = _counter(
    _task,
    "numLateRecordsDropped",
    "",
    "Rows that came too late for all their windows and had no side output, or too late for an interval join.",
)
STATE_SIZE = _gauge(_task, "stateSize", "bytes", "Bytes of the task's state on local disk after its last change.")
SNAPSHOT_DURATION = _gauge(_task, "snapshotDuration", "ms", "Time to seal the state version of the last epoch.")
INITIALIZATION_TIME = _gauge(_task, "initializationTime", "ms", "Time the task took to restore its state.")
START_DELAY = _gauge(
    _task,
    "checkpointStartDelayNanos",
    "ns",
    "Time from the trigger of the last checkpoint to the start of the task's upload.",
)
ALIGNMENT_TIME = _gauge(
    _task, "checkpointAlignmentTime", "ns", "Always 0: a checkpoint takes a finished epoch and waits for no barrier."
)
RESIDENT = _gauge(_task, "residentMemory", "bytes", "Resident memory of the Python worker that ran the task.")
BLOCK_CACHE_USAGE = _gauge(
    _task, "blockCacheUsage", "bytes", "Bytes in RocksDB's block cache, which all tasks of a Python worker share."
)
BLOCK_CACHE_CAPACITY = _gauge(_task, "blockCacheCapacity", "bytes", "Capacity of that cache, with its write buffers.")
BLOCK_CACHE_HIT_RATIO = _gauge(
    _task,
    "blockCacheHitRatio",
    "",
    "Share of block reads that the cache answered, in the last epoch that counted them: one in ten.",
)
WRITE_BUFFER_USAGE = _gauge(
    _task,
    "writeBufferUsage",
    "bytes",
    "Bytes in RocksDB's write buffers at the end of the last epoch, before they were flushed.",
)
WRITE_CACHE_USAGE = _gauge(
    _task,
    "writeCacheUsage",
    "bytes",
    "The most that state which was read or changed took as Python objects, estimated.",
)
MEMORY_USED = _gauge(
    _task,
    "memoryUsed",
    "bytes",
    "Memory in use within the tightest limit around the task: its worker's (spark.executor.pyspark.memory), its "
    "container's, or that of the host.",
)
MEMORY_BUDGET = _gauge(_task, "memoryBudget", "bytes", "That limit.")
DISK_FREE = _gauge(_task, "localDiskFree", "bytes", "Free space on the disk on which the task keeps its state.")
DISK_SIZE = _gauge(_task, "localDiskSize", "bytes", "Size of the disk on which the task keeps its state.")
RECORDS_IN_ERRORS = _counter(
    _task, "numRecordsInErrors", "", "Rows on which a function raised and that `on_error` skipped or set aside."
)
TASK_INPUT_WATERMARK = _gauge(
    _task,
    "currentInputWatermark",
    "ms since 1970",
    "The watermark while the task processed the rows of the last epoch: the same in all tasks.",
)
TASK_OUTPUT_WATERMARK = _gauge(
    _task,
    "currentOutputWatermark",
    "ms since 1970",
    "The watermark that the task applied at the end of the last epoch: the same in all tasks.",
)
TASK_WATERMARK_LAG = _gauge(
    _task, "watermarkLag", "ms", "Wall time minus the watermark that the task applied at the end of the last epoch."
)
UPLOAD_REQUESTS = _counter(
    _task, "numberOfUploadRequests", "", "Uploads of the task's state that were started, again after a failure too."
)
UPLOAD_FAILURES = _counter(_task, "numberOfUploadFailures", "", "Uploads of the task's state that failed.")
UPLOAD_QUEUE = _gauge(
    _task, "uploadQueueSize", "", "Uploads that were not finished when the task of the last epoch ended."
)
UPLOAD_LATENCY = _gauge(
    _task, "uploadLatenciesNanos", "ns", "Time of the task's upload for the last completed checkpoint."
)
UPLOAD_SIZE = _gauge(_task, "uploadSizes", "bytes", "Bytes that the task uploaded for the last completed checkpoint.")

# -- operators, sources, sinks -----------------------------------------------------------------------------------------

RECORDS_IN = _counter(_operator, "numRecordsIn", "", "Rows that the operator received, over all tasks.")
RECORDS_OUT = _counter(_operator, "numRecordsOut", "", "Rows that the operator emitted, over all tasks.")
RECORDS_IN_RATE = _gauge(_operator, "numRecordsInPerSecond", "", "Rows per second received in the last epoch.")
RECORDS_OUT_RATE = _gauge(_operator, "numRecordsOutPerSecond", "", "Rows per second emitted in the last epoch.")
SPANS = _counter(_operator, "numSpans", "", "How often functions used `ctx.span` of a name, over all tasks.", "span")
SPAN_TIME = _counter(
    _operator, "spanTime", "ms", "Time that functions spent in `ctx.span` of a name, over all tasks.", "span"
)
SPAN_TIME_MAX = _gauge(
    _operator, "spanTimeMax", "ms", "The longest use of `ctx.span` of a name in the last epoch that used it.", "span"
)
ASYNC_CALLS = _counter(
    _operator,
    "numAsyncCalls",
    "",
    "Rows for which an async function was called. A row counts once, with all its tries.",
)
ASYNC_RETRIES = _counter(_operator, "numAsyncRetries", "", "Calls of an async function that were tried again.")
ASYNC_TIMEOUTS = _counter(_operator, "numAsyncTimeouts", "", "Rows whose call took longer than its timeout.")
ASYNC_FAILURES = _counter(
    _operator,
    "numAsyncFailures",
    "",
    "Rows whose call failed after its last try, or took too long. Those of an epoch that failed are not counted.",
)
ASYNC_IN_FLIGHT = _gauge(
    _operator,
    "asyncCallsInFlight",
    "",
    "The most rows whose calls were in progress at once in a task of the last epoch.",
)
ASYNC_TIME = _counter(
    _operator, "asyncCallTime", "ms", "Time of all calls with their tries. Divided by `numAsyncCalls` it is the mean."
)
ASYNC_LATENCY = _gauge(
    _operator,
    "asyncCallLatency",
    "ms",
    "Time of a call with all its tries, in the slowest task of the last epoch that made calls.",
    "quantile",
)
ESTIMATED_STATE_SIZE = _gauge(
    _operator,
    "estimatedStateSize",
    "bytes",
    "Bytes of one state on local disk, over all tasks. An estimate; a task makes one at most once a second.",
    "state",
)
PENDING_TIMERS = _gauge(
    _operator,
    "numPendingTimers",
    "",
    "Timers that have not fired. Counted in one epoch out of ten, up to 10,000 in each task.",
)
HOT_KEY_SHARE = _gauge(
    _operator, "hotKeyShare", "", "Share of the rows of the last epochs that the key with the most rows had, estimated."
)
WATERMARK = _gauge(
    _job, "currentInputWatermark", "ms since 1970", "The watermark of the last epoch; absent before the first."
)
OUTPUT_WATERMARK = _gauge(
    _job, "currentOutputWatermark", "ms since 1970", "The same as the input watermark: an epoch has one watermark."
)
WATERMARK_LAG = _gauge(_job, "watermarkLag", "ms", "Wall time minus the watermark.")
SOURCE_RECORDS = _counter(_source, "numRecordsIn", "", "Rows read from the source.")
PENDING_RECORDS = _gauge(
    _source, "pendingRecords", "", "Rows that Kafka has and the last batch had not reached; absent for other sources."
)
EVENT_TIME_LAG = _gauge(
    _source, "currentEmitEventTimeLag", "ms", "Wall time minus the greatest event time read from the source."
)
FETCH_EVENT_TIME_LAG = _gauge(
    _source,
    "currentFetchEventTimeLag",
    "ms",
    "Wall time at which the last batch with rows was read, minus the greatest event time in it.",
)
SPLIT_WATERMARK = _gauge(
    _source,
    "watermark.currentWatermark",
    "ms since 1970",
    "The watermark of one split, such as a partition, for the hundred that are furthest behind. `split` is the value of its "
    "column. Only for sources that distinguish splits and have no watermark function.",
    "split",
)
OUTPUT_WAITING = _gauge(_sink, "committablesWaiting", "", "Epochs whose output waits for the target.")
OUTPUT_WAITING_BYTES = _gauge(_sink, "stagedBytes", "bytes", "Bytes of output that wait for the target.")
SEND_ERRORS = _gauge(_sink, "numRecordsSendErrors", "", "1 while the target does not accept output, else 0.")
RECORDS_SEND = _counter(_sink, "numRecordsSend", "", "Rows that were written to the sink.")
SEND_TIME = _gauge(
    _sink,
    "currentSendTime",
    "ms",
    "Time that the target took for each part (one task of one epoch) of the last commit.",
)
COMMIT_DURATION = _gauge(_sink, "commitDuration", "ms", "Time that the last commit took.")
OLDEST_WAITING = _gauge(
    _sink, "oldestWaitingAge", "ms", "Age of the oldest epoch whose output waits for the target; 0 if none waits."
)
PUBLISHED_EPOCH = _gauge(
    _sink, "publishedEpoch", "", "The number, within its term, of the epoch up to which all output is committed."
)
COMMITS = _counter(_job, "numCommits", "", "Commits by outcome.", "outcome")

# -- epochs ------------------------------------------------------------------------------------------------------------

EPOCHS = _counter(_epoch, "numEpochs", "", "Epochs accepted by this run.")
EPOCH_DURATION = _gauge(_epoch, "duration", "ms", "Time the last epoch took.")
EPOCH_PHASE = _gauge(
    _epoch,
    "phaseDuration",
    "ms",
    "Time that a phase of the last epoch took: `repeat` (tries that were discarded, and placing tasks), `plan`, `source` (up to "
    "the first task of level 1), `level N`, `collect`; and `streaming`, what Structured Streaming takes between epochs.",
    "phase",
)
EPOCHS_REPEATED = _counter(
    _epoch,
    "numRepeated",
    "",
    "Tries of an epoch that were discarded and repeated: because tasks ran away from their state (`misplaced`), the Spark job "
    "failed (`interrupted`), acknowledgements were missing or did not match (`incomplete`), or a function raised "
    "(`user_error`).",
    "reason",
)
TASKS_AWAY = _counter(_epoch, "numTasksAwayFromState", "", "Tasks that Spark ran on a host without their state.")
REWINDS = _counter(_epoch, "numRewinds", "", "Returns to a checkpoint because state was lost.")
CONTROL_BYTES = _gauge(
    _epoch, "controlSize", "bytes", "Bytes of acknowledgements that the driver read in the last epoch."
)
HELD_BATCHES = _gauge(_epoch, "held", "", "1 while no batch is read because too much output waits for a sink.")
HELD_BY = _gauge(
    _epoch, "heldBy", "", "1 for the sink whose waiting output keeps the job from reading a batch, else 0.", "sink"
)
HELD_BATCHES_TOTAL = _counter(_epoch, "numHeld", "", "Batches that waited for a sink before they were read.", "sink")
HELD_TIME = _counter(_epoch, "heldTime", "ms", "Time in which batches waited for a sink.", "sink")

# -- autoscaler --------------------------------------------------------------------------------------------------------

SCALINGS = _counter(Scope.AUTOSCALER, "scalings", "", "Changes of parallelism that the autoscaler started.")
SCALING_ERRORS = _counter(
    Scope.AUTOSCALER,
    "errors",
    "",
    "How often it could not decide because of an error, or the job could not be rescaled.",
)
BALANCED = _counter(Scope.AUTOSCALER, "balanced", "", "How often it found that the parallelism is right.")


def _vertex(name: str, help: str) -> Metric:
    return _gauge(Scope.AUTOSCALER, name, "", help, "vertex")


LOAD = _vertex(
    "LOAD.Average", "The share of the time in which the tasks were busy. That of the job is the sum of its levels."
)
TRUE_PROCESSING_RATE = _vertex(
    "TRUE_PROCESSING_RATE.Average", "Rows per second that it can process at most. Absent if nothing arrived."
)
TARGET_DATA_RATE = _vertex("TARGET_DATA_RATE.Average", "Rows per second that arrived.")
CATCH_UP_DATA_RATE = _vertex(
    "CATCH_UP_DATA_RATE.Current",
    "Rows per second that have to be processed in addition, to finish the backlog in time.",
)
LAG = _vertex("LAG.Current", "Rows of backlog.")
PARALLELISM = _vertex("PARALLELISM.Current", "The parallelism of the job.")
RECOMMENDED_PARALLELISM = _vertex(
    "RECOMMENDED_PARALLELISM.Current", "The parallelism that it recommends. Absent until the window is full."
)
MAX_PARALLELISM = _vertex("MAX_PARALLELISM.Current", "The number of key groups.")
SCALE_UP_RATE_THRESHOLD = _vertex(
    "SCALE_UP_RATE_THRESHOLD.Current", "If it can process fewer rows per second than this, it is too small."
)
SCALE_DOWN_RATE_THRESHOLD = _vertex(
    "SCALE_DOWN_RATE_THRESHOLD.Current", "If it can process more rows per second than this, it is too large."
)
EXPECTED_PROCESSING_RATE = _vertex(
    "EXPECTED_PROCESSING_RATE.Current",
    "Rows per second that it is expected to process with the recommended parallelism.",
)

METRICS: tuple[Metric, ...] = (*_ALL, *STATE_ACCESS.values(), MEASURED, MEASURED_TOTAL, *NATIVE.values())
