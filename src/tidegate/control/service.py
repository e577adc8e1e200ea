"""What the command line and REST can ask of a running job.

Answers are `messages` under Flink's names (flink's REST `rest_v1_dispatcher`), spellings included.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.checkpoint.statistics import CheckpointStatistics, CheckpointStats
from tidegate.control.checkpoint_report import (
    checkpoint_statistics,
    checkpointing_statistics,
    statistics_by_level,
    statistics_with_subtasks,
)
from tidegate.control.messages.checkpoints import (
    AnyCheckpointStatistics,
    CheckpointConfigInfo,
    CheckpointingStatistics,
    ExternalizedCheckpointInfo,
    TaskCheckpointStatisticsWithSubtasks,
)
from tidegate.control.messages.job import (
    IOMetricsInfo,
    JobDetails,
    JobDetailsInfo,
    JobExceptionHistory,
    JobExceptionsInfo,
    JobPlan,
    JobStatusInfo,
    JobVertexDetailsInfo,
    RootExceptionInfo,
    TaskCounts,
)
from tidegate.control.messages.operation import (
    AsynchronousOperationResult,
    CheckpointInfo,
    DisposalInfo,
    FailureCause,
    QueueStatus,
    SavepointInfo,
)
from tidegate.core.clock import SYSTEM_CLOCK, Instant
from tidegate.core.errors import ControlError, TidegateError
from tidegate.core.redaction import redacted
from tidegate.runtime.driver.epoch_reports import added_rows

if TYPE_CHECKING:
    from tidegate.runtime.driver.job_run import JobRun

T = TypeVar("T")
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

    def status(
        self, trigger_id: str, describe: Callable[[Any], T], failed: Callable[[FailureCause], T]
    ) -> AsynchronousOperationResult[T]:
        found = self._known.get(trigger_id)
        if found is None:
            raise NotFound(f"There is no operation {trigger_id!r}: it was never triggered, or long ago.")
        if not found.done():
            return AsynchronousOperationResult(QueueStatus("IN_PROGRESS"), None)
        self._untold.discard(trigger_id)
        error = found.exception()
        operation = describe(found.result()) if error is None else failed(_cause(error))
        return AsynchronousOperationResult(QueueStatus("COMPLETED"), operation)


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

    def status(self) -> JobStatusInfo:
        return JobStatusInfo(self._run.status)

    def overview(self) -> JobDetails:
        now = SYSTEM_CLOCK.now()
        status = self._run.status
        if self._run.has_ended and self._ended is None:
            self._ended = now
        last = self._ended or now
        return JobDetails(
            jid=self.id,
            name=self._run.name,
            state=status,
            start_time=self._started.wall_ms,
            end_time=-1 if self._ended is None else self._ended.wall_ms,
            duration=last.since(self._started),
            last_modification=last.wall_ms,
            tasks=TaskCounts(len(self._run.tasks), 0 if self._run.has_ended else len(self._run.tasks)),
        )

    def details(self) -> JobDetailsInfo:
        shown = self.overview()
        rows = added_rows(report.operators for report in list(self._run.reports))
        vertices = [
            JobVertexDetailsInfo(
                id=name,
                name=name,
                parallelism=self._run.parallelism,
                max_parallelism=self._run.max_parallelism,
                status=shown.state,
                metrics=IOMetricsInfo(rows_in, rows_out),
            )
            for name, (rows_in, rows_out) in sorted(rows.items())
        ]
        return JobDetailsInfo(
            jid=self.id,
            name=self._run.name,
            state=shown.state,
            start_time=shown.start_time,
            end_time=shown.end_time,
            duration=shown.duration,
            max_parallelism=self._run.max_parallelism,
            now=SYSTEM_CLOCK.now().wall_ms,
            timestamps={"RUNNING": self._started.wall_ms},
            vertices=vertices,
            status_counts={shown.state: len(self._run.tasks)},
            plan=JobPlan(jid=self.id, name=self._run.name),
        )

    def exceptions(self, most: int = 20) -> JobExceptionsInfo:
        entries = [
            RootExceptionInfo(
                exception_name=failure.kind,
                stacktrace=redacted(failure.message),
                timestamp=failure.at_ms,
                failure_labels={"restarted": str(failure.restarted).lower()},
            )
            for failure in reversed(list(self._run.failures))
        ]
        return JobExceptionsInfo(JobExceptionHistory(entries[:most], len(entries) > most))

    def metrics(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        # Late, for start-up time: only a job whose metrics are read needs the client.
        from tidegate.metrics.exposition import exposition

        return exposition(self._run.name, self._run.samples())

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def checkpoints(self) -> CheckpointingStatistics:
        return checkpointing_statistics(self._statistics(), SYSTEM_CLOCK.now())

    def checkpoint(self, checkpoint_id: int) -> AnyCheckpointStatistics:
        stats = self._find(checkpoint_id)
        return checkpoint_statistics(stats, statistics_by_level(stats))

    def subtasks(self, checkpoint_id: int, vertex: str) -> TaskCheckpointStatisticsWithSubtasks:
        found = statistics_with_subtasks(self._find(checkpoint_id), vertex)
        if found is None:
            raise NotFound(f"Checkpoint {checkpoint_id} has no part {vertex!r}.")
        return found

    def config(self) -> CheckpointConfigInfo:
        config = self._run.checkpoint_config
        if config is None:
            raise NotFound("Checkpointing was not enabled for this job.")
        return CheckpointConfigInfo(
            mode=str(config.mode).lower(),
            interval=config.interval_ms,
            timeout=config.timeout_ms,
            min_pause=config.min_pause_ms,
            max_concurrent=config.max_concurrent,
            externalization=ExternalizedCheckpointInfo(
                enabled=str(config.retention) != "NO_EXTERNALIZED_CHECKPOINTS",
                delete_on_cancellation=str(config.retention) != "RETAIN_ON_CANCELLATION",
            ),
            state_backend=self._run.state_backend,
            checkpoint_storage=None if config.dir is None else redacted(config.dir),
            unaligned_checkpoints=config.unaligned,
            tolerable_failed_checkpoints=config.tolerable_failures,
            aligned_checkpoint_timeout=config.aligned_timeout_ms,
        )

    # -- what it can be told to do -------------------------------------------------------------------------------------

    def trigger_checkpoint(self, trigger_id: str | None, full: bool | None) -> str:
        """`full`: whether all files are stored again; None for what is configured."""
        return self._checkpoints.begin(trigger_id, lambda: self._run.trigger_checkpoint(full=full))

    def checkpoint_status(self, trigger_id: str) -> AsynchronousOperationResult[CheckpointInfo]:
        return self._checkpoints.status(
            trigger_id,
            lambda ref: CheckpointInfo(checkpoint_id=ref.id),
            lambda cause: CheckpointInfo(failure_cause=cause),
        )

    def trigger_savepoint(self, target: str | None, cancel: bool, trigger_id: str | None, format: str) -> str:
        def start() -> Future[Any]:
            return self._stopping(target, False, format) if cancel else self._run.savepoint(target, format=format)

        return self._savepoints.begin(trigger_id, start)

    def trigger_stop(self, target: str | None, trigger_id: str | None, drain: bool, format: str) -> str:
        return self._savepoints.begin(trigger_id, lambda: self._stopping(target, drain, format))

    def savepoint_status(self, trigger_id: str) -> AsynchronousOperationResult[SavepointInfo]:
        return self._savepoints.status(
            trigger_id, lambda path: SavepointInfo(location=path), lambda cause: SavepointInfo(failure_cause=cause)
        )

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

    def disposal_status(self, trigger_id: str) -> AsynchronousOperationResult[DisposalInfo]:
        return self._disposals.status(
            trigger_id, lambda count: DisposalInfo(), lambda cause: DisposalInfo(failure_cause=cause)
        )

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


def _cause(error: BaseException) -> FailureCause:
    code = error.code if isinstance(error, TidegateError) else type(error).__name__
    return FailureCause(code, redacted(str(error)))


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
    """Wrap work for a separate thread: callers that wait for the job, or ask for its status, learn how it ended."""

    def run() -> None:
        try:
            act()
        except Exception:
            pass

    return run
