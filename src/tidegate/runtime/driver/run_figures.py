"""Figures of a run that are read where they arise, when someone asks: Spark's progress, storage, and commits of sinks."""

from __future__ import annotations

from tidegate.checkpoint.output.sink_commits import SinkCommits
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.driver.supervisor import Supervisor
from tidegate.runtime.sources.pending_rows import pending_rows
from tidegate.storage import RoutedStorage


class RunFigures:
    """Any thread may ask."""

    def __init__(self, job: RunningJob, supervisor: Supervisor) -> None:
        self._job = job
        self._supervisor = supervisor

    @property
    def sink_commits(self) -> SinkCommits:
        """How the commits of each sink went."""
        loop = self._job.loop
        return self._job.committers.done if loop is None or self._job.at_least_once else loop.statistics.sinks

    @property
    def pending_rows(self) -> dict[str, int]:
        """Rows that wait in Kafka, by source, as of the last batch."""
        if self._supervisor.ended.is_set():
            return {}
        try:
            progress = self._supervisor.attempt.query.lastProgress
        except Exception:  # The query, or its session, is gone.
            return {}
        sources = [] if progress is None else progress["sources"]
        found = {str(source.uid): pending_rows(each) for source, each in zip(self._job.graph.sources, sources)}
        return {uid: rows for uid, rows in found.items() if rows is not None}

    @property
    def split_watermarks(self) -> dict[tuple[str, str], int]:
        """The watermark of each split of a source that distinguishes them."""
        return self._job.runner.clocks.split_watermarks(self._job.graph.sources)

    @property
    def storage_traffic(self) -> dict[str, tuple[int, int]]:
        """Requests and bytes by kind that the driver has sent to the storage of checkpoints."""
        storage = None if self._job.loop is None else self._job.loop.ownership.history.storage
        return storage.traffic.total() if isinstance(storage, RoutedStorage) else {}
