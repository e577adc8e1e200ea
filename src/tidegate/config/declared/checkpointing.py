"""When checkpoints are taken, where they go and how long they stay."""

from __future__ import annotations

from tidegate.config.choices import CheckpointingMode, Retention
from tidegate.config.option import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    SIZE,
    TEXT,
    Effect,
    Option,
    at_least,
    at_most,
    enum,
)

TITLE = "Checkpointing"
_P = "execution.checkpointing."

INTERVAL: Option[int | None] = Option(
    _P + "interval",
    DURATION,
    None,
    "Time from one periodic checkpoint to the next. Unset: checkpointing is off. A shorter one costs more while "
    "running and leaves less to repeat after a failure. Raised to min-pause if that is longer.",
    check=at_least(10, "10 ms"),
)
INTERVAL_DURING_BACKLOG: Option[int | None] = Option(
    _P + "interval-during-backlog",
    DURATION,
    None,
    "Interval while a source works off a backlog; 0 takes none meanwhile, otherwise at least `interval`.",
    effect=Effect.NONE,
    reason="Spark's sources do not say that they have a backlog. Bound the rows of an epoch at the source instead "
    "(maxOffsetsPerTrigger, maxFilesPerTrigger); checkpoint work travels with the epochs and do not slow them by an alignment.",
)
MODE: Option[CheckpointingMode] = Option(
    _P + "mode",
    enum(CheckpointingMode),
    CheckpointingMode.EXACTLY_ONCE,
    "EXACTLY_ONCE shows output when its checkpoint is complete; AT_LEAST_ONCE at the end of each epoch, which is "
    "sooner and may show rows twice after a failure. State is exact in both.",
)
TIMEOUT: Option[int] = Option(
    _P + "timeout",
    DURATION,
    600_000,
    "A checkpoint that is not complete after this is given up.",
    check=at_least(10, "10 ms"),
)
MIN_PAUSE: Option[int] = Option(
    _P + "min-pause",
    DURATION,
    0,
    "Least time from the end of a checkpoint to the start of the next periodic one. With it, one checkpoint runs at a "
    "time, whatever max-concurrent-checkpoints says.",
)
MAX_CONCURRENT: Option[int] = Option(
    _P + "max-concurrent-checkpoints",
    INT,
    1,
    "How many checkpoints may be under way at once. Savepoints do not count and hold back no checkpoint.",
    check=at_least(1),
)
TOLERABLE_FAILURES: Option[int] = Option(
    _P + "tolerable-failed-checkpoints",
    INT,
    0,
    "Failed checkpoints in a row that are let pass; one more fails the job, and the restart strategy decides.",
    check=at_least(0),
)
RETENTION: Option[Retention] = Option(
    _P + "externalized-checkpoint-retention",
    enum(Retention),
    Retention.RETAIN_ON_CANCELLATION,
    "What happens to checkpoints when the job ends. A job is found again by its name, so cancelling it must not "
    "destroy it: the default keeps them.",
    flink_default="NO_EXTERNALIZED_CHECKPOINTS",
)
NUM_RETAINED: Option[int] = Option(
    _P + "num-retained",
    INT,
    1,
    "Completed checkpoints to keep.",
    old_keys=("state.checkpoints.num-retained",),
    check=at_least(1),
)
DIR: Option[str | None] = Option(
    _P + "dir",
    TEXT,
    None,
    "Root of checkpoints: a path or URL that the driver and all executors reach. A job's are below it under its name.",
    old_keys=("state.checkpoints.dir",),
)
SAVEPOINT_DIR: Option[str | None] = Option(
    _P + "savepoint-dir", TEXT, None, "Where savepoints go if none is named.", old_keys=("state.savepoints.dir",)
)
STORAGE: Option[str | None] = Option(
    _P + "storage",
    TEXT,
    None,
    "`filesystem`, which `dir` implies.",
    old_keys=("state.checkpoint-storage",),
    effect=Effect.NONE,
    reason="Checkpoints always go to `dir`, which may be a directory or an object store. `jobmanager` would keep them "
    "in the driver's memory, where the failure they are for destroys them; factory classes are JVM code.",
)
CREATE_SUBDIR: Option[bool] = Option(
    _P + "create-subdir",
    BOOL,
    True,
    "Put a job's files below `dir` in a directory of its own.",
    old_keys=("state.checkpoints.create-subdir",),
    effect=Effect.NONE,
    reason="A job always has a directory of its own, named after it: its log there decides who owns the job, and two "
    "jobs in one directory would take each other's place.",
)
INCREMENTAL: Option[bool] = Option(
    _P + "incremental",
    BOOL,
    False,
    "Upload only files that the last completed checkpoint does not have.",
    old_keys=("state.backend.incremental",),
)
COMPRESSION: Option[bool] = Option(
    _P + "snapshot-compression",
    BOOL,
    False,
    "Compress full snapshots of the heap backend.",
    effect=Effect.LATER,
    reason="Files of the heap backend are not compressed yet; RocksDB compresses its own.",
)
INLINE_THRESHOLD: Option[int] = Option(
    _P + "data-inline-threshold",
    SIZE,
    20 << 10,
    "Smaller state files are put into `_metadata` instead of objects of their own.",
    old_keys=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
    check=at_most(1 << 20, "1 mb"),
)
WRITE_BUFFER: Option[int] = Option(
    _P + "write-buffer-size",
    INT,
    4096,
    "Buffer of checkpoint streams; in Flink the greater of this and data-inline-threshold.",
    old_keys=("state.storage.fs.write-buffer-size", "state.backend.fs.write-buffer-size"),
    check=at_least(1),
    effect=Effect.NONE,
    reason="State files are complete on local disk before their upload and are sent in parts of up to 8 MiB, so there "
    "is no stream that needs a buffer.",
)
PARALLEL_CLEANER: Option[bool] = Option(
    _P + "cleaner.parallel-mode",
    BOOL,
    True,
    "Delete files of dropped checkpoints in parallel.",
    old_keys=("state.checkpoint.cleaner.parallel-mode",),
    effect=Effect.NONE,
    reason="Files are deleted many at a time, by one thread beside the epochs.",
)
AFTER_TASKS_FINISH: Option[bool] = Option(
    _P + "checkpoints-after-tasks-finish",
    BOOL,
    True,
    "Go on with checkpoints when some tasks have finished.",
    old_keys=(_P + "checkpoints-after-tasks-finish.enabled",),
    effect=Effect.NONE,
    reason="Every epoch runs all tasks, also when a bounded source has no more rows, so none finishes before the job "
    "does; a job whose sources are exhausted ends with a last checkpoint, which commits its sinks.",
)
SYNC_PHASE_TIMEOUT: Option[int] = Option(
    _P + "sync-phase-timeout",
    DURATION,
    0,
    "Cancel a task whose synchronous phase hangs; 0: never.",
    effect=Effect.NONE,
    reason="A checkpoint has no synchronous phase: the version of the epoch exists already. A hanging task is ended by "
    "the deadline of its epoch.",
)
LOCAL_BACKUP: Option[bool] = Option(
    _P + "local-backup.enabled",
    BOOL,
    False,
    "Keep a local copy of what a checkpoint uploads.",
    effect=Effect.NONE,
    reason="State versions are files on local disk to begin with and stay there while they are needed. "
    "Recovery uses them where their checksums hold.",
)
LOCAL_DIRS: Option[str | None] = Option(
    _P + "local-backup.dirs",
    TEXT,
    None,
    "Local directory of state versions on the executors' hosts, outside Spark's own directories. A host's variable "
    "TIDEGATE_LOCAL_DIR wins over it. Without both: `tidegate-<user id>` in the directory for temporary files.",
    old_keys=("taskmanager.state.local.root-dirs",),
)
_PACKED = "Small files are uploaded one by one, unless data-inline-threshold puts them into `_metadata`."
_OWN = "A task writes objects of its own only, so tasks never share one or wait for it."
MERGING: Option[bool] = Option(
    _P + "file-merging.enabled",
    BOOL,
    False,
    "Pack small state files of a task into one object.",
    effect=Effect.LATER,
    reason=_PACKED,
)
MERGING_ACROSS: Option[bool] = Option(
    _P + "file-merging.across-checkpoint-boundary",
    BOOL,
    False,
    "Let one object hold files of several checkpoints.",
    effect=Effect.NONE,
    reason="An object is complete when its checkpoint is; appending later would change what was published.",
)
MERGING_MAX_SIZE: Option[int] = Option(
    _P + "file-merging.max-file-size",
    SIZE,
    32 << 20,
    "Greatest size of a packed object.",
    check=at_least(1, "1 byte"),
    effect=Effect.LATER,
    reason=_PACKED,
)
MERGING_MAX_AMPLIFICATION: Option[float] = Option(
    _P + "file-merging.max-space-amplification",
    FLOAT,
    2.0,
    "Pack anew when dead bytes make objects this many times larger than what is used; below 1: never.",
    effect=Effect.LATER,
    reason=_PACKED,
)
MERGING_BLOCKING: Option[bool] = Option(
    _P + "file-merging.pool-blocking", BOOL, False, "Wait for a shared file.", effect=Effect.NONE, reason=_OWN
)
MERGING_MAX_SUBTASKS: Option[int] = Option(
    _P + "file-merging.max-subtasks-per-file",
    INT,
    4,
    "Tasks that share a file.",
    check=at_least(1),
    effect=Effect.NONE,
    reason=_OWN,
)
