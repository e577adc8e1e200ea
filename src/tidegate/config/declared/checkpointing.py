"""When checkpoints are taken, where they go and how long they stay."""

from __future__ import annotations

from tidegate.config.choices import CheckpointingMode, Retention
from tidegate.config.option import (
    BOOL,
    DURATION,
    INT,
    SIZE,
    TEXT,
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
PARALLEL_CLEANING: Option[bool] = Option(
    _P + "cleaner.parallel-mode",
    BOOL,
    True,
    "Delete the files of checkpoints that are no longer kept with several threads.",
    old_keys=("state.checkpoint.cleaner.parallel-mode",),
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
)
INLINE_THRESHOLD: Option[int] = Option(
    _P + "data-inline-threshold",
    SIZE,
    20 << 10,
    "Smaller state files are put into `_metadata` instead of objects of their own.",
    old_keys=("state.storage.fs.memory-threshold", "state.backend.fs.memory-threshold"),
    check=at_most(1 << 20, "1 mb"),
)
LOCAL_DIRS: Option[str | None] = Option(
    _P + "local-backup.dirs",
    TEXT,
    None,
    "Local directory of state versions on the executors' hosts, outside Spark's own directories. A host's variable "
    "TIDEGATE_LOCAL_DIR wins over it. Without both: `tidegate-<user id>` in the directory for temporary files.",
    old_keys=("taskmanager.state.local.root-dirs",),
)
LOCAL_RETENTION: Option[int] = Option(
    _P + "local-backup.retention-time",
    DURATION,
    86_400_000,
    "How long versions stay on local disk that no run uses: of jobs that ended or were killed, and of slots that moved to "
    "another host. The next job that is placed on the host removes them. Not in Flink.",
    check=at_least(3_600_000, "1 h"),
)
