"""Flink's options that change nothing here, each with its reason.

They are accepted so that one configuration can serve both systems, and the job's log states the reason for each one that is
set to something other than Flink's default. Their values are neither parsed nor checked: a value that Flink would refuse
passes with the same note. A default that is spelled differently (`600 s` for `10 min`) counts as another value.

Seven of them are declared as options as well, because their values are read before a job starts: Flink refuses some
combinations of them, REST reports two, and three are arguments of `tg.Checkpointing`. Those are checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidegate.config.declared import checkpointing, unaligned
from tidegate.config.option import Option

_C = "execution.checkpointing."
_R = "execution.state-recovery."


@dataclass(frozen=True, slots=True, kw_only=True)
class WithoutEffect:
    """A key of Flink's that changes nothing here."""

    key: str
    default: str | None
    """Flink's, as text. None: unset."""
    text: str
    """What it does in Flink."""
    reason: str
    old_keys: tuple[str, ...] = ()
    later: bool = False
    """Whether it is to act in a later version. If not, it has no meaning on Spark."""

    def parse(self, text: str) -> str:
        """The text as it is, and the default whatever the case of its letters."""
        value = text.strip()
        return self.default if self.default is not None and value.lower() == self.default.lower() else value

    @property
    def note(self) -> str:
        """What the log says to a user who sets it."""
        said = "This is accepted and not acted on yet." if self.later else "This has no effect on Spark."
        return f"{said} {self.reason}"


def _because(
    reason: str, *rows: tuple[str, ...], prefix: str = "", old_prefix: str = "", later: bool = False
) -> Iterator[WithoutEffect]:
    """Keys that share a reason: (key, default, what it does in Flink, old keys …). An empty default means unset."""
    for name, default, text, *old in rows:
        old_keys = tuple(old) + ((old_prefix + name,) if old_prefix else ())
        yield WithoutEffect(
            key=prefix + name, default=default or None, text=text, reason=reason, old_keys=old_keys, later=later
        )


def _declared(reason: str, *options: Option[Any], later: bool = False) -> Iterator[WithoutEffect]:
    for option in options:
        default = None if option.default is None else option.shown_default()
        yield WithoutEffect(
            key=option.key, default=default, text=option.text, reason=reason, old_keys=option.old_keys, later=later
        )


WITHOUT_EFFECT: tuple[WithoutEffect, ...] = (
    *_declared(
        "Spark's sources do not say that they have a backlog. Bound the rows of an epoch at the source instead "
        "(maxOffsetsPerTrigger, maxFilesPerTrigger); checkpoints need no alignment, so they do not slow the epochs down.",
        checkpointing.INTERVAL_DURING_BACKLOG,
    ),
    *_because(
        "Checkpoints always go to `dir`, which may be a directory, an object store or HDFS. `jobmanager` would keep them in the "
        "driver's memory, where the failure they are for destroys them; factory classes are JVM code.",
        (_C + "storage", "", "`filesystem`, which `dir` implies, or `jobmanager`.", "state.checkpoint-storage"),
    ),
    *_because(
        "A job always has a directory of its own, named after it: its log there decides who owns the job, and two jobs in "
        "one directory would take each other's place.",
        (_C + "create-subdir", "true", "Give each job a directory below `dir`.", "state.checkpoints.create-subdir"),
    ),
    *_declared(
        "Files of the heap backend are not compressed yet; RocksDB compresses its own.",
        checkpointing.COMPRESSION,
        later=True,
    ),
    *_because(
        "State files are complete on local disk before their upload and are sent in parts of up to 8 MiB, so there is no "
        "stream that needs a buffer.",
        (
            *(_C + "write-buffer-size", "4096", "Buffer of checkpoint streams, at least data-inline-threshold."),
            *("state.storage.fs.write-buffer-size", "state.backend.fs.write-buffer-size"),
        ),
    ),
    *_because(
        "Every epoch runs all tasks, also when a bounded source has no more rows, so none finishes before the job does; a "
        "job whose sources are exhausted ends with a last checkpoint, which commits its sinks.",
        (
            *(
                _C + "checkpoints-after-tasks-finish",
                "true",
                "Continue to take checkpoints after some tasks have finished.",
            ),
            _C + "checkpoints-after-tasks-finish.enabled",
        ),
    ),
    *_because(
        "A checkpoint has no synchronous phase: the version of the epoch exists already. A hanging task is ended by the "
        "deadline of its epoch.",
        (_C + "sync-phase-timeout", "0 ms", "Cancel a task whose synchronous phase hangs; 0: never."),
    ),
    *_because(
        "State versions are files on local disk to begin with and stay there while they are needed. Recovery uses them "
        "where their checksums hold.",
        (_C + "local-backup.enabled", "false", "Keep a local copy of what a checkpoint uploads."),
    ),
    *_because(
        "Always done where it pays: small files go into `_metadata` (data-inline-threshold), and with a changelog, what a task "
        "changed since the last checkpoint is one object of up to 32 MB. Tables of RocksDB stay as they are, so that the next "
        "checkpoint can share them. Objects are not shared by tasks, which would wait for each other.",
        ("enabled", "false", "Pack the small state files of a task into one object."),
        ("max-file-size", "32 mb", "Maximum size of a packed object."),
        ("max-space-amplification", "2.0", "Repack when objects are this many times larger than their live data."),
        prefix=_C + "file-merging.",
    ),
    *_because(
        "An object is complete when its checkpoint is; appending later would change what was published.",
        (_C + "file-merging.across-checkpoint-boundary", "false", "Let one object hold files of several checkpoints."),
    ),
    *_because(
        "A task writes objects of its own only, so tasks never share one or wait for it.",
        (_C + "file-merging.pool-blocking", "false", "Wait for a shared file that is in use."),
        (_C + "file-merging.max-subtasks-per-file", "4", "Tasks that share a file."),
    ),
    *_declared(
        "A checkpoint takes the last finished epoch and completes while the next one runs: no barrier has to overtake rows.",
        unaligned.UNALIGNED,
        unaligned.ALIGNED_TIMEOUT,
    ),
    *_because(
        "Graphs have no cycles here, so there is no job that needs to be forced.",
        (
            *(_C + "unaligned.forced", "false", "Allow unaligned checkpoints in iterative jobs."),
            _C + "force-unaligned",
        ),
    ),
    *_because(
        "Between epochs no row is on its way, so a checkpoint holds no channel state.",
        (
            *(_C + "unaligned.max-subtasks-per-channel-state-file", "5", "Tasks that share a file of channel state."),
            _C + "unaligned.max-subTasks-per-channel-state-file",
        ),
    ),
    *_because(
        "Timers fire inside an epoch, and a checkpoint takes a finished epoch, so it never meets timers that are firing.",
        ("enabled", "false", "Let a checkpoint interrupt the firing of timers."),
        ("emit-intermediate-watermarks", "true", "Send watermarks between interrupted timers."),
        prefix=_C + "unaligned.interruptible-timers.",
    ),
    *_declared(
        "Between epochs no row is on its way, so there are no output buffers to restore.",
        unaligned.RECOVER_ON_DOWNSTREAM,
    ),
    *_declared(
        "Between epochs no row is on its way, so there is no in-flight data to restore.", unaligned.DURING_RECOVERY
    ),
    *_because(
        "A version that is on local disk is always used if it is what the checkpoint has, and fetched if not: there "
        "is nothing to keep in addition, and nothing to gain by fetching.",
        (_R + "from-local", "false", "Restore keyed state from local copies.", "state.backend.local-recovery"),
    ),
    *_because(
        "Between epochs no row is on its way, so a checkpoint holds no in-flight rows.",
        (
            *(
                _R + "without-channel-state.checkpoint-id",
                "-1",
                "Drop the in-flight rows of this checkpoint at restore.",
            ),
            _R + "without-channel-state.checkpointId",
        ),
        later=True,
    ),
    *_because(
        "Changes are stored in the job's checkpoint directory, whatever the value: one folder holds all that a restore needs.",
        ("storage", "memory", "`filesystem`, or `memory` for tests.", "state.backend.changelog.storage"),
        prefix="state.changelog.",
    ),
    *_because(
        "Changes are stored in the job's checkpoint directory: one folder holds all that a restore needs.",
        ("base-path", "", "Root directory of the log files."),
        prefix="state.changelog.dstl.dfs.",
        old_prefix="dstl.dfs.",
    ),
    *_because(
        "Changes are uploaded as other files of checkpoints are: a task's own thread begins when the epoch has ended, in parts "
        "of up to 8 MiB, and the storage client repeats what fails.",
        ("batch.persist-delay", "10 ms", "Wait for more changes before an upload."),
        ("batch.persist-size-threshold", "10 mb", "Upload immediately from this size on."),
        ("preemptive-persist-threshold", "5 mb", "Upload before a checkpoint is triggered, from this size on."),
        ("upload.num-threads", "5", "Threads that upload."),
        ("upload.max-attempts", "3", "Attempts at an upload."),
        ("upload.timeout", "1 s", "Time limit of one attempt."),
        ("upload.retry-policy", "fixed", "`fixed` or `none`."),
        ("upload.next-attempt-delay", "500 ms", "Wait before the next attempt."),
        ("upload.max-in-flight", "100 mb", "Maximum size of concurrent uploads."),
        ("upload.buffer-size", "1 mb", "Buffer of an upload."),
        ("discard.num-threads", "1", "Threads that delete."),
        ("download.local-cache.idle-timeout-ms", "10 min", "How long downloaded segments are cached."),
        prefix="state.changelog.dstl.dfs.",
        old_prefix="dstl.dfs.",
    ),
    *_because(
        "Changes are not compressed yet.",
        ("compression.enabled", "false", "Compress the log."),
        prefix="state.changelog.dstl.dfs.",
        old_prefix="dstl.dfs.",
        later=True,
    ),
    *_because(
        "A job always takes a checkpoint before its first batch, with the start positions in it.",
        ("pipeline.sources.pause-until-first-checkpoint", "false", "Read nothing before the first checkpoint."),
    ),
    *_because(
        "Whatever has state, positions or output is declared with its uid; there is nothing to make up.",
        ("pipeline.auto-generate-uids", "true", "Generate the uids that the user did not set."),
    ),
    *_because(
        "Spark reruns the tasks that were lost, and the epoch is repeated as a whole where that is not enough.",
        ("jobmanager.execution.failover-strategy", "region", "Restart the affected `region` or the `full` job."),
    ),
    *_because(
        "Spark ends cancelled tasks: spark.task.reaper.enabled and spark.task.reaper.killTimeout.",
        ("task.cancellation.timeout", "3 min", "End the process of a cancelled task that does not stop."),
    ),
    *_because(
        "Output is offered until its target takes it, with pauses that grow from one second to 30.",
        ("sink.committer.retries", "10", "Attempts to commit the output of a checkpoint."),
    ),
    *_because(
        "Ten are kept.",
        ("web.checkpoints.history", "10", "Checkpoints whose statistics are kept for display."),
        later=True,
    ),
    *_because(
        "A thousand are kept, and REST shows twenty unless asked for more.",
        ("web.exception-history-size", "16", "Failures kept for display."),
        later=True,
    ),
    *_because(
        "The last thousand are kept, whatever their age.",
        ("rest.async.store-duration", "5 min", "How long the result of an asynchronous request is kept."),
    ),
    *_because(
        "A request may take 60 s; a command waits for a savepoint or a stop until it has ended.",
        ("client.timeout", "1 min", "How long a command waits for its answer."),
    ),
    *_because(
        "The reporter `otel` is built in and starts if its endpoint is set; reporters of other names would be Java classes.",
        ("metrics.reporter.otel.factory.class", "", "The Java class of the reporter `otel`."),
        ("traces.reporter.otel.factory.class", "", "The Java class of the reporter `otel`."),
        ("events.reporter.otel.factory.class", "", "The Java class of the reporter `otel`."),
    ),
    *_because(
        "All operators of a job have the same parallelism, so none can be left out.",
        ("job.autoscaler.vertex.exclude.ids", "", "Vertices that the autoscaler does not scale."),
    ),
    *_because(
        "The autoscaler runs in the driver and asks no other process.",
        ("job.autoscaler.flink.rest-client.timeout", "10 s", "How long the autoscaler waits for the job's answer."),
    ),
    *_because(
        "The current decision can be read at any time; no event repeats it.",
        ("job.autoscaler.scaling.event.interval", "30 min", "How often an event about the same decision is sent."),
    ),
    *_because(
        "Decisions do not depend on the time of day.",
        ("job.autoscaler.excluded.periods", "", "Times at which the autoscaler does not act."),
        later=True,
    ),
)

FAMILIES: dict[str, str] = {
    "jobmanager.": "Flink's JobManager process is not there: the Spark driver coordinates the job.",
    "taskmanager.": "Flink's TaskManager processes are not there: give memory, cores and disks to Spark's executors.",
    "process.": "Flink's processes are not there: their working directories are Spark's.",
    "parallelism.": "Parallelism is given to the job, as `-p` or `tg.Job(name, parallelism=…)`.",
    "high-availability.": "The log in the checkpoint directory decides who owns a job; no other service is needed.",
    "blob.": "Code is distributed by Spark.",
    "kubernetes.": "Deployment is Spark's.",
    "yarn.": "Deployment is Spark's.",
    "env.": "The environment of processes is Spark's.",
    "io.tmp.dirs": "Local directories are Spark's, and execution.checkpointing.local-backup.dirs for state.",
    "job.autoscaler.memory.": "The autoscaler chooses a parallelism; memory is given to Spark's executors.",
    "job.autoscaler.quota.": "`job.autoscaler.vertex.max-parallelism` limits what the autoscaler may ask for.",
    "job.autoscaler.observed-scalability.": "Capacity is taken to grow with parallelism; scaling that did not help is noticed.",
    "job.autoscaler.metrics.custom-evaluator": "Evaluators would be Java classes.",
    "job.autoscaler.scaling.custom-executor": "Executors would be Java classes.",
    "state.backend.forst.": "The ForSt backend is not offered; `rocksdb` is the backend for state beyond memory.",
}
"""Prefixes of keys, none of which means anything here."""
