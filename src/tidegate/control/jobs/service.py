"""What the command line and REST can ask of a running job.

Results are `messages` under Flink's names (flink's REST `rest_v1_dispatcher`), spellings included.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.config.choices import MetricNaming
from tidegate.control.jobs.job_errors import NotFound, NotPossible
from tidegate.control.jobs.reported_job import ReportedJob
from tidegate.control.jobs.rescale_report import Requirements, RescaleReport
from tidegate.control.jobs.stored_jobs import StoredJob
from tidegate.control.messages.job import JobStatusInfo
from tidegate.control.messages.operation import (
    AsynchronousOperationResult,
    CheckpointInfo,
    DisposalInfo,
    FailureCause,
    QueueStatus,
    SavepointInfo,
)
from tidegate.core.errors import PreconditionFailed, TidegateError, with_help
from tidegate.core.redaction import redacted
from tidegate.metrics.metric import Sample
from tidegate.runtime.driver.autoscaling import Autoscaler
from tidegate.runtime.monitoring.run_report import RunReport

if TYPE_CHECKING:
    from tidegate.runtime.driver.job_run import JobRun

T = TypeVar("T")
# Flink forgets an outcome after five minutes (`rest.async.store-duration`). A number bounds memory without a clock.
_REMEMBERED = 1000
"""Triggers whose outcome can still be asked for."""


@dataclass
class Triggers:
    """Asynchronous operations by their id. An id given twice is one operation."""

    _operations: OrderedDict[str, Future[Any]] = field(default_factory=OrderedDict)
    _unreported: set[str] = field(default_factory=set)
    """The ids of operations whose outcome no client has asked for yet."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, trigger_id: str | None, start: Callable[[], Future[Any]]) -> str:
        with self._lock:
            # A client that repeats a POST after a lost answer must not start the operation twice.
            name = trigger_id or uuid.uuid4().hex
            if name not in self._operations:
                self._operations[name] = start()
                self._unreported.add(name)
                while len(self._operations) > _REMEMBERED:
                    oldest, _ = self._operations.popitem(last=False)
                    self._unreported.discard(oldest)
            return name

    @property
    def has_unreported(self) -> bool:
        return bool(self._unreported)

    def status(
        self, trigger_id: str, describe: Callable[[Any], T], failed: Callable[[FailureCause], T]
    ) -> AsynchronousOperationResult[T]:
        outcome = self._operations.get(trigger_id)
        if outcome is None:
            raise NotFound(f"There is no operation {trigger_id!r}: it was never triggered, or long ago.")
        if not outcome.done():
            return AsynchronousOperationResult(QueueStatus("IN_PROGRESS"), None)
        self._unreported.discard(trigger_id)
        error = outcome.exception()
        operation = describe(outcome.result()) if error is None else failed(_cause(error))
        return AsynchronousOperationResult(QueueStatus("COMPLETED"), operation)


class JobService(ReportedJob):
    """A job that this process runs. Its id is its lineage, 32 hexadecimal digits as Flink's."""

    live = True

    def __init__(self, run: JobRun, show_values: bool = False) -> None:
        super().__init__(show_values)
        self._run = run
        self._checkpoints = Triggers()
        self._savepoints = Triggers()
        self._disposals = Triggers()

    @property
    def id(self) -> str:
        return str(self._run.lineage)

    @property
    def name(self) -> str:
        return self._run.name

    def report(self) -> RunReport:
        return self._run.report()

    def version(self) -> tuple[str | None, object]:
        """Read a few counters instead of making a report: every open page asks twice a second."""
        run = self._run
        counts = None if run.checkpoints is None else replace(run.checkpoints.counts)
        epoch = str(run.reports[-1].epoch) if run.reports else None
        return epoch, (run.status, len(run.failures), run.restarts, counts)

    def status(self) -> JobStatusInfo:
        return JobStatusInfo(self._run.status)

    def stored(self) -> StoredJob | None:
        place = self._run.place
        if place is None:
            return None  # a job without checkpoints stores nothing
        storage, layout = place
        return StoredJob.read(storage, layout)

    def samples(self) -> Sequence[Sample]:
        return self._run.samples()

    def scaling(self) -> Autoscaler:
        if self._run.autoscaler is None:
            raise NotFound("The autoscaler of this job is off. Start it with -Djob.autoscaler.enabled=true.")
        return self._run.autoscaler

    def metrics(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        # Late, for start-up time: only a job whose metrics are read needs the client.
        from tidegate.metrics.exposition import exposition

        flink_id = self.id if self._run.metric_naming is MetricNaming.FLINK else None
        return exposition(self._run.name, self._run.samples(), flink_id)

    # -- what it can be asked to do ------------------------------------------------------------------------------------

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
            # Flink's `cancel-job` is a stop with a savepoint that does not drain.
            return self._stopping(target, False, format) if cancel else self._run.savepoint(target, format=format)

        return self._savepoints.begin(trigger_id, start)

    def trigger_stop(self, target: str | None, trigger_id: str | None, drain: bool, format: str) -> str:
        return self._savepoints.begin(trigger_id, lambda: self._stopping(target, drain, format))

    def savepoint_status(self, trigger_id: str) -> AsynchronousOperationResult[SavepointInfo]:
        return self._savepoints.status(
            trigger_id, lambda path: SavepointInfo(location=path), lambda cause: SavepointInfo(failure_cause=cause)
        )

    def rescale(self, requirements: Requirements) -> None:
        """Begin to change the parallelism. `/rescales` reports the progress and the outcome."""
        parallelism = RescaleReport(self.report()).parallelism_in(requirements)
        try:
            self._run.rescale(parallelism)
        except PreconditionFailed as refused:
            raise NotPossible(str(refused)) from refused

    def cancel(self) -> None:
        if self._run.has_ended:
            raise NotPossible(f"Job {self.id} is {self._run.status} already.")
        # In a thread: cancelling waits for the query to end, and the client polls the status anyway.
        threading.Thread(target=quietly(self._run.cancel), name="tidegate-cancel", daemon=True).start()

    def _stopping(self, target: str | None, drain: bool, format: str) -> Future[str]:
        stop = self._run.stop_with_savepoint
        return _in_thread(lambda: stop(target, drain=drain, format=format), "tidegate-stop")

    def trigger_disposal(self, path: str, trigger_id: str | None) -> str:
        """Delete a savepoint, of this job or of any other: savepoints belong to the user, not to a job."""

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
    def has_unreported_results(self) -> bool:
        """Whether a client has triggered an operation and has not asked yet how it ended."""
        return any(each.has_unreported for each in (self._checkpoints, self._savepoints, self._disposals))


def _cause(error: BaseException) -> FailureCause:
    if isinstance(error, TidegateError):
        return FailureCause(error.code, redacted(with_help(error)))
    return FailureCause(type(error).__name__, redacted(str(error)))


def _in_thread(work: Callable[[], Any], name: str) -> Future[Any]:
    """Run `work` in a new thread. The future gets its result, or what it raises."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            # BaseException includes SystemExit: without a result, callers of the future would never return.
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future


def quietly(act: Callable[[], object]) -> Callable[[], None]:
    """Wrap work for a separate thread: callers that wait for the job, or ask for its status, learn how it ended."""

    def run() -> None:
        try:
            act()
        except Exception:
            pass

    return run
