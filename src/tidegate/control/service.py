"""What can be asked of a running job, whoever asks: the command line or REST.

Answers are plain data under Flink's names (flink's REST `rest_v1_dispatcher`), spellings included.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint.statistics import CheckpointStatistics, CheckpointStats, CheckpointStatus, Spread
from tidegate.core.clock import SYSTEM_CLOCK, Instant
from tidegate.core.errors import ControlError, TidegateError
from tidegate.core.redaction import redacted

if TYPE_CHECKING:
    from tidegate.runtime.driver.job_run import JobRun

_NO_ALIGNMENT = {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0}
"""Nothing waits in a buffer for a barrier here."""
_REMEMBERED = 1000
"""Triggers whose outcome can still be asked for."""


class NotFound(ControlError):
    """There is no such job, checkpoint or trigger."""

    code = "NOT_FOUND"


class NotPossible(ControlError):
    """The job cannot do that now."""

    code = "NOT_POSSIBLE"


@dataclass
class Triggers:
    """Asynchronous operations by their id. An id given twice is one operation."""

    _known: OrderedDict[str, Future[Any]] = field(default_factory=OrderedDict)
    _untold: set[str] = field(default_factory=set)
    """Those whose outcome nobody has heard yet."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, trigger_id: str | None, start: Callable[[], Future[Any]]) -> str:
        with self._lock:
            name = trigger_id or uuid.uuid4().hex
            if name not in self._known:
                self._known[name] = start()
                self._untold.add(name)
                while len(self._known) > _REMEMBERED:
                    self._untold.discard(self._known.popitem(last=False)[0])
            return name

    @property
    def owing(self) -> bool:
        return bool(self._untold)

    def status(self, trigger_id: str, describe: Callable[[Any], dict[str, Any]], failure: str) -> dict[str, Any]:
        """Flink's form: `{"status": {"id": …}, "operation": {…}}`."""
        found = self._known.get(trigger_id)
        if found is None:
            raise NotFound(f"There is no operation {trigger_id!r}: it was never triggered, or long ago.")
        if not found.done():
            return {"status": {"id": "IN_PROGRESS"}, "operation": None}
        self._untold.discard(trigger_id)
        error = found.exception()
        operation = describe(found.result()) if error is None else {failure: _cause(error)}
        return {"status": {"id": "COMPLETED"}, "operation": operation}


class JobService:
    """One job. Its id is its lineage, 32 hexadecimal digits as Flink's."""

    def __init__(self, run: JobRun) -> None:
        self._run = run
        self._started = SYSTEM_CLOCK.now()
        self._ended: Instant | None = None
        self._checkpoints, self._savepoints, self._disposals = Triggers(), Triggers(), Triggers()

    @property
    def id(self) -> str:
        return str(self._run.lineage)

    def check(self, job: str) -> JobService:
        """Itself, if it is called by its id or its name."""
        if job not in (self.id, self._run.name):
            raise NotFound(f"Job {job} not found. This driver runs {self.id} ({self._run.name!r}).")
        return self

    # -- what it is ----------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        return {"status": self._run.status}

    def overview(self) -> dict[str, Any]:
        now = SYSTEM_CLOCK.now()
        status = self._run.status
        if self._run.has_ended and self._ended is None:
            self._ended = now
        last = self._ended or now
        return {
            "jid": self.id,
            "name": self._run.name,
            "state": status,
            "start-time": self._started.wall_ms,
            "end-time": -1 if self._ended is None else self._ended.wall_ms,
            "duration": last.since(self._started),
            "last-modification": last.wall_ms,
            "tasks": {"total": len(self._run.tasks), "running": 0 if self._run.has_ended else len(self._run.tasks)},
            "pending-operators": 0,
            "jobType": "STREAMING",
            "schedulerType": None,
        }

    def details(self) -> dict[str, Any]:
        shown = self.overview()
        reports = list(self._run.reports)
        rows: dict[str, tuple[int, int]] = {}
        for report in reports:
            for name, (rows_in, rows_out) in report.operators.items():
                before = rows.get(name, (0, 0))
                rows[name] = (before[0] + rows_in, before[1] + rows_out)
        vertices = [
            {"id": name, "name": name, "parallelism": self._run.parallelism, "maxParallelism": self._run.max_parallelism,
             "status": shown["state"], "metrics": {"read-records": rows_in, "write-records": rows_out}}
            for name, (rows_in, rows_out) in sorted(rows.items())
        ]  # fmt: skip
        return {
            "jid": self.id,
            "name": self._run.name,
            "isStoppable": True,
            "state": shown["state"],
            "start-time": shown["start-time"],
            "end-time": shown["end-time"],
            "duration": shown["duration"],
            "maxParallelism": self._run.max_parallelism,
            "now": SYSTEM_CLOCK.now().wall_ms,
            "timestamps": {"RUNNING": self._started.wall_ms},
            "vertices": vertices,
            "status-counts": {shown["state"]: len(self._run.tasks)},
            "plan": {"jid": self.id, "name": self._run.name, "type": "STREAMING", "nodes": []},
            "job-type": "STREAMING",
            "schedulerType": None,
            "application-id": None,
        }

    def exceptions(self, most: int = 20) -> dict[str, Any]:
        failures = list(self._run.failures)
        entries: list[dict[str, Any]] = [
            {"exceptionName": f.kind, "stacktrace": redacted(f.message), "timestamp": f.at_ms, "taskName": None, "endpoint": None,
             "taskManagerId": None, "failureLabels": {"restarted": str(f.restarted).lower()}, "concurrentExceptions": []}
            for f in reversed(failures)
        ]  # fmt: skip
        return {"exceptionHistory": {"entries": entries[:most], "truncated": len(entries) > most}}

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def checkpoints(self) -> dict[str, Any]:
        found = self._statistics()
        counts = found.counts
        restored = found.latest_restored
        return {
            "counts": {
                "restored": counts.restored, "total": counts.total, "in_progress": counts.in_progress,
                "completed": counts.completed, "failed": counts.failed,
            },
            "summary": {
                **{name: _spread(spread) for name, spread in found.summary().items()},
                **{name: _spread(None) for name in ("alignment_buffered", "processed_data", "persisted_data")},
            },
            "latest": {
                "completed": _stats(found.latest_completed),
                "savepoint": _stats(found.latest_savepoint),
                "failed": _stats(found.latest_failed),
                "restored": None if restored is None else {
                    "id": restored.id, "restore_timestamp": restored.restore_timestamp,
                    "is_savepoint": restored.is_savepoint, "external_path": _place(restored.external_path),
                },
            },
            "history": [_stats(stats) for stats in (*found.under_way(SYSTEM_CLOCK.now()), *found.history())],
        }  # fmt: skip

    def checkpoint(self, checkpoint_id: int) -> dict[str, Any]:
        stats = self._find(checkpoint_id)
        shown = _stats(stats)
        assert shown is not None
        shown["tasks"] = {
            f"level-{level.level}": {
                "id": stats.id, "status": str(stats.status), "latest_ack_timestamp": level.latest_ack_ms,
                "checkpointed_size": level.checkpointed_size_bytes, "state_size": level.state_size_bytes,
                "end_to_end_duration": level.end_to_end_ms, "num_subtasks": level.tasks,
                "num_acknowledged_subtasks": level.acknowledged, "alignment_buffered": 0, "processed_data": 0,
                "persisted_data": 0,
            }
            for level in stats.levels()
        }  # fmt: skip
        return shown

    def subtasks(self, checkpoint_id: int, vertex: str) -> dict[str, Any]:
        stats = self._find(checkpoint_id)
        mine = [task for task in stats.tasks if f"level-{task.task.level}" == vertex]
        waiting = [task for task in stats.waiting if f"level-{task.level}" == vertex]
        if not mine and not waiting:
            raise NotFound(f"Checkpoint {checkpoint_id} has no part {vertex!r}.")
        tasks = self.checkpoint(checkpoint_id)["tasks"][vertex]
        summary = {
            "state_size": _spread(Spread.of(t.state_size_bytes for t in mine)),
            "checkpointed_size": _spread(Spread.of(t.checkpointed_size_bytes for t in mine)),
            "end_to_end_duration": _spread(Spread.of(t.end_to_end_ms for t in mine)),
            "checkpoint_duration": {
                "sync": _spread(Spread.of(t.sync_ms for t in mine)),
                "async": _spread(Spread.of(t.async_ms for t in mine)),
            },
            "alignment": {name: _spread(None) for name in ("buffered", "processed", "persisted", "duration")},
            "start_delay": _spread(Spread.of(t.start_delay_ms for t in mine)),
        }
        done = [
            {"className": "completed", "index": int(t.task.slot), "status": "completed", "ack_timestamp": t.acked_ms,
             "end_to_end_duration": t.end_to_end_ms, "state_size": t.state_size_bytes,
             "checkpointed_size": t.checkpointed_size_bytes, "checkpoint": {"sync": t.sync_ms, "async": t.async_ms},
             "alignment": _NO_ALIGNMENT, "start_delay": t.start_delay_ms, "unaligned_checkpoint": False, "aborted": False}
            for t in mine
        ]  # fmt: skip
        pending = [{"className": "pending", "index": int(task.slot), "status": "pending_or_failed"} for task in waiting]
        return {**tasks, "summary": summary, "subtasks": sorted([*done, *pending], key=lambda one: one["index"])}

    def config(self) -> dict[str, Any]:
        config = self._run.checkpoint_config
        if config is None:
            raise NotFound("Checkpointing was not enabled for this job.")
        return {
            "mode": str(config.mode).lower(),
            "interval": config.interval_ms,
            "timeout": config.timeout_ms,
            "min_pause": config.min_pause_ms,
            "max_concurrent": config.max_concurrent,
            "externalization": {
                "enabled": str(config.retention) != "NO_EXTERNALIZED_CHECKPOINTS",
                "delete_on_cancellation": str(config.retention) != "RETAIN_ON_CANCELLATION",
            },
            "state_backend": self._run.state_backend,
            "checkpoint_storage": None if config.dir is None else redacted(config.dir),
            "unaligned_checkpoints": config.unaligned,
            "tolerable_failed_checkpoints": config.tolerable_failures,
            "aligned_checkpoint_timeout": config.aligned_timeout_ms,
            "checkpoints_after_tasks_finish": True,
            "state_changelog_enabled": False,
            "changelog_periodic_materialization_interval": None,
            "changelog_storage": None,
        }

    # -- what it can be told to do -------------------------------------------------------------------------------------

    def trigger_checkpoint(self, trigger_id: str | None, full: bool | None) -> str:
        """`full`: whether all files are stored anew; None for what is configured."""
        return self._checkpoints.begin(trigger_id, lambda: self._run.trigger_checkpoint(full=full))

    def checkpoint_status(self, trigger_id: str) -> dict[str, Any]:
        return self._checkpoints.status(trigger_id, lambda ref: {"checkpointId": ref.id}, "failureCause")

    def trigger_savepoint(self, target: str | None, cancel: bool, trigger_id: str | None, format: str) -> str:
        def start() -> Future[Any]:
            return self._stopping(target, False, format) if cancel else self._run.savepoint(target, format=format)

        return self._savepoints.begin(trigger_id, start)

    def trigger_stop(self, target: str | None, trigger_id: str | None, drain: bool, format: str) -> str:
        return self._savepoints.begin(trigger_id, lambda: self._stopping(target, drain, format))

    def savepoint_status(self, trigger_id: str) -> dict[str, Any]:
        return self._savepoints.status(trigger_id, lambda path: {"location": path}, "failure-cause")

    def cancel(self) -> None:
        if self._run.has_ended:
            raise NotPossible(f"Job {self.id} is {self._run.status} already.")
        threading.Thread(target=quietly(self._run.cancel), name="tidegate-cancel", daemon=True).start()

    def _stopping(self, target: str | None, drain: bool, format: str) -> Future[str]:
        stop = self._run.stop_with_savepoint
        return _in_thread(lambda: stop(target, drain=drain, format=format), "tidegate-stop")

    def trigger_disposal(self, path: str, trigger_id: str | None) -> str:
        """Delete a savepoint, of this job or of any other: the file's owner asks, not the job."""

        def work() -> int:
            from tidegate.savepoint.dispose import dispose
            from tidegate.savepoint.snapshot import StoredSnapshot

            return dispose(StoredSnapshot.open(path))

        return self._disposals.begin(trigger_id, lambda: _in_thread(work, "tidegate-dispose"))

    def disposal_status(self, trigger_id: str) -> dict[str, Any]:
        return self._disposals.status(trigger_id, lambda count: {}, "failure-cause")

    @property
    def owing(self) -> bool:
        """Whether someone has triggered an operation and not heard how it ended."""
        return any(each.owing for each in (self._checkpoints, self._savepoints, self._disposals))

    def _statistics(self) -> CheckpointStatistics:
        found = self._run.checkpoints
        if found is None:
            raise NotFound("Checkpointing was not enabled for this job.")
        return found

    def _find(self, checkpoint_id: int) -> CheckpointStats:
        found = self._statistics()
        for stats in (*found.under_way(SYSTEM_CLOCK.now()), *found.history()):
            if stats.id == checkpoint_id:
                return stats
        raise NotFound(f"Could not find checkpoint {checkpoint_id} among the last ones.")


def _stats(stats: CheckpointStats | None) -> dict[str, Any] | None:
    if stats is None:
        return None
    shown: dict[str, Any] = {
        "className": str(stats.status).lower(),
        "id": stats.id,
        "status": str(stats.status),
        "is_savepoint": stats.is_savepoint,
        "savepointFormat": stats.savepoint_format,
        "checkpoint_type": "SAVEPOINT" if stats.is_savepoint else "CHECKPOINT",
        "trigger_timestamp": stats.trigger_timestamp,
        "latest_ack_timestamp": stats.latest_ack_timestamp,
        "checkpointed_size": stats.checkpointed_size_bytes,
        "state_size": stats.state_size_bytes,
        "end_to_end_duration": stats.end_to_end_ms,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": stats.num_subtasks,
        "num_acknowledged_subtasks": stats.num_acknowledged_subtasks,
        "tasks": {},
    }
    if stats.status is CheckpointStatus.COMPLETED:
        shown |= {"external_path": _place(stats.external_path), "discarded": stats.discarded}
    if stats.status is CheckpointStatus.FAILED:
        message = None if stats.failure_message is None else redacted(stats.failure_message)
        shown |= {"failure_timestamp": stats.failure_timestamp, "failure_message": message}
    return shown


def _place(path: str | None) -> str | None:
    return None if path is None else redacted(path)


def _spread(spread: Spread | None) -> dict[str, Any]:
    names = ("min", "max", "avg", "p50", "p90", "p95", "p99", "p999")
    return {name: 0 if spread is None else getattr(spread, name) for name in names}


def _cause(error: BaseException) -> dict[str, str]:
    code = error.code if isinstance(error, TidegateError) else type(error).__name__
    return {"class": code, "stack-trace": redacted(str(error))}


def _in_thread(work: Callable[[], Any], name: str) -> Future[Any]:
    """Do something in a thread of its own. The answer is what it gives, or raises."""
    answer: Future[Any] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return answer


def quietly(act: Callable[[], object]) -> Callable[[], None]:
    """For a thread of its own: whoever waits for the job, or asks for its status, is told how it ended."""

    def run() -> None:
        try:
            act()
        except Exception:
            pass

    return run
