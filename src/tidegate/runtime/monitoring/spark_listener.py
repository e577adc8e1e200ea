"""Notifies listeners that were written for Spark's queries."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from tidegate.events.event import EpochEvent, JobFailureEvent, JobStatusChangeEvent
from tidegate.events.listener import JobListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener, StreamingQueryProgress


class ProgressView(Protocol):
    """What such a listener reads of a run."""

    @property
    def name(self) -> str: ...
    @property
    def recentProgress(self) -> Sequence[StreamingQueryProgress]: ...


class SparkProgressListener(JobListener):
    """Notifies a `StreamingQueryListener` of PySpark of the progress of a job.

        job.run(listeners=[tg.SparkProgressListener(MyListener())])

    A listener that is added to the session (`spark.streams.addListener`) is notified as well, by Spark, of the query that
    delivers the batches; it learns nothing of state and sinks. This one gets `run.recentProgress`, each report once, and the
    start and the end of the run. A report arrives when the next epoch, or the run, has ended. If the job restarts, reports have
    the ids of several queries.
    """

    def __init__(self, listener: StreamingQueryListener) -> None:
        """
        Args:
            listener: An instance of your listener.
        """
        self._listener = listener
        self._run: ProgressView | None = None
        self._reported: set[tuple[str, int]] = set()
        self._ids: tuple[str, str] | None = None
        """Of the query of the last report."""
        self._failure: str | None = None

    def watch(self, run: ProgressView) -> None:
        """Report the progress of `run`. The start of a job calls it."""
        self._run = run

    def on_epoch(self, event: EpochEvent) -> None:
        """Pass on what Spark has reported since the epoch before."""
        self._report()

    def on_failure(self, event: JobFailureEvent) -> None:
        """Keep the reason, in case the run ends with it."""
        self._failure = None if event.can_restart else event.message

    def on_status_change(self, event: JobStatusChangeEvent) -> None:
        """Forget the failure that a restart has repaired."""
        if event.new_status == "RUNNING":
            self._failure = None

    def close(self) -> None:
        """Pass on the last reports, and that the run has ended."""
        from pyspark.sql.streaming.listener import QueryTerminatedEvent  # noqa: PLC0415 start-up time

        self._report()
        if self._ids is not None:
            id, run_id = map(uuid.UUID, self._ids)
            self._listener.onQueryTerminated(QueryTerminatedEvent(id, run_id, self._failure, None))

    def _report(self) -> None:
        from pyspark.sql.streaming.listener import QueryProgressEvent  # noqa: PLC0415 start-up time

        recent = [] if self._run is None else self._run.recentProgress
        keys = {(each["runId"], each["batchId"]) for each in recent}
        for each in recent:
            if (each["runId"], each["batchId"]) not in self._reported:
                self._note_start(each)
                self._listener.onQueryProgress(QueryProgressEvent(each))
        self._reported = keys

    def _note_start(self, progress: StreamingQueryProgress) -> None:
        from pyspark.sql.streaming.listener import QueryStartedEvent  # noqa: PLC0415 start-up time

        is_first = self._ids is None
        self._ids = progress["id"], progress["runId"]
        if is_first:
            started = {
                "id": progress["id"],
                "runId": progress["runId"],
                "name": progress["name"],
                "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "jobTags": [],
            }
            self._listener.onQueryStarted(QueryStartedEvent.fromJson(started))
