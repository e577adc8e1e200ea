"""Describes a run as it is now. Any thread may ask."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.ids import EpochId
from tidegate.core.processes import this_process
from tidegate.core.redaction import redacted
from tidegate.core.times import MIN_WATERMARK
from tidegate.graph import guarantee
from tidegate.graph.outline import outline
from tidegate.runtime.driver.run_figures import RunFigures
from tidegate.runtime.driver.running_job import RunningJob
from tidegate.runtime.driver.supervisor import Supervisor
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.monitoring.run_report import (
    BacklogSample,
    EpochLine,
    FailureLine,
    RunEnd,
    RunReport,
    SinkLine,
    SourceLine,
)

EPOCHS = 60
_BACKLOG = 12
"""Samples of the backlog that are kept."""
FAILURES = 20
"""How many of the last ones a report has."""
_LONGEST_MESSAGE = 20_000


class RunReporter:
    """`status` is the status of the run in Flink's terms."""

    def __init__(self, job: RunningJob, supervisor: Supervisor, figures: RunFigures, status: Callable[[], str]) -> None:
        self._job = job
        self._supervisor = supervisor
        self._figures = figures
        self._status = status
        self._started_ms = SYSTEM_CLOCK.now().wall_ms
        self._ended_ms: int | None = None
        self._backlog: tuple[BacklogSample, ...] = ()
        self._sampled: EpochId | None = None
        """The epoch of the last sample."""
        self._graph = outline(job.graph, job.runner.plan)
        self._config = None if job.durability is None else _without_credentials(job.durability.checkpoints)
        self._host = f"{socket.gethostname()} (process {os.getpid()})"
        self._versions = {
            "tidegate": version("tidegate"),
            "spark": job.spark.version,
            "python": platform.python_version(),
        }

    def report(self) -> RunReport:
        job, supervisor, now = self._job, self._supervisor, SYSTEM_CLOCK.now()
        if supervisor.ended.is_set() and self._ended_ms is None:
            # The first report after the end fixes the time; later ones must not move it.
            self._ended_ms = now.wall_ms

        # A copy: the thread that runs epochs appends meanwhile.
        epochs = list(job.reports)[-EPOCHS:]
        watermark_ms = epochs[-1].watermark_ms if epochs else MIN_WATERMARK
        held_by = job.held_by

        sources = self._sources(now.wall_ms)
        last = None if job.loop is None else job.loop.statistics.latest_completed
        unprotected_ms = job.metrics.ages.oldest_at_ms(None if last is None else last.epoch)

        return RunReport(
            job=job.name,
            lineage=job.runner.lineage,
            term=job.runner.term,
            status=self._status(),
            started_ms=self._started_ms,
            written_ms=now.wall_ms,
            ended_ms=self._ended_ms,
            host=self._host,
            process=this_process(),
            versions=self._versions,
            restarts=supervisor.restarts,
            parallelism=job.settings.parallelism,
            max_parallelism=job.settings.max_parallelism,
            state_backend=job.settings.state_backend,
            graph=self._graph,
            epochs=tuple(map(_epoch, epochs)),
            tasks=job.metrics.tasks(),
            sources=sources,
            sinks=self._sinks(),
            held_by=None if held_by is None else str(held_by.sink),
            watermark_ms=watermark_ms if watermark_ms > MIN_WATERMARK else None,
            failures=self._failures(),
            checkpoints=None if job.loop is None else job.loop.statistics.report(now),
            checkpoint_config=self._config,
            operators=job.metrics.operators,
            options=job.settings.effective,
            rescales=supervisor.rescaler.history.rescales,
            rescale_counts={str(state): count for state, count in supervisor.rescaler.history.counts.items()},
            hot_keys={operator: tuple(keys) for operator, keys in job.metrics.hot_keys.items()},
            spans=job.metrics.spans.lines(),
            states=job.metrics.states(),
            running_since_ms=job.metrics.times.running_since_ms,
            unprotected_since_ms=None if job.loop is None else unprotected_ms,
            backlog=self._sample(epochs, sources),
            end=self._end(),
            end_place=None if supervisor.last_savepoint is None else redacted(supervisor.last_savepoint),
        )

    def _sample(self, epochs: Sequence[EpochReport], sources: Sequence[SourceLine]) -> tuple[BacklogSample, ...]:
        """Add a sample for the last epoch, if it had rows and has none. Without rows the event time lag grows, too, and means
        nothing. Two threads that ask at once may add one sample twice, which ends a trend and begins none.
        """
        last = epochs[-1] if epochs else None
        if last is not None and last.rows_in and last.epoch != self._sampled:
            self._sampled = last.epoch
            pending = [each.pending_rows for each in sources if each.pending_rows is not None]
            lags = [each.event_time_lag_ms for each in sources if each.event_time_lag_ms is not None]
            sample = BacklogSample(pending_rows=sum(pending) if pending else None, lag_ms=max(lags, default=None))
            self._backlog = (*self._backlog, sample)[-_BACKLOG:]
        return self._backlog

    def _end(self) -> RunEnd | None:
        supervisor, stop = self._supervisor, self._job.stop
        if not supervisor.ended.is_set() or supervisor.outcome is not None:
            return None
        if supervisor.last_savepoint is not None:
            return RunEnd.SAVEPOINT
        if not stop.is_asked():
            return RunEnd.INPUT
        return RunEnd.CANCELED if stop.cancelled else RunEnd.STOPPED

    def notable(self) -> tuple[Any, Any]:
        """What a record must have at once, and what can wait for a moment."""
        failures, loop = self._supervisor.failures, self._job.loop
        newest = failures[-1] if failures else None
        rescaled = sum(self._supervisor.rescaler.history.counts.values())
        urgent = (self._status(), len(failures), newest, self._job.runner.term, rescaled)
        counts = None if loop is None else (loop.statistics.counts.completed, loop.statistics.counts.failed)
        return urgent, counts

    def _sources(self, now_ms: int) -> tuple[SourceLine, ...]:
        newest = self._job.metrics.event_times
        pending = self._figures.pending_rows
        return tuple(
            SourceLine(
                source=str(source.uid),
                event_time_lag_ms=now_ms - newest[source.uid] if source.uid in newest else None,
                pending_rows=pending.get(str(source.uid)),
            )
            for source in self._job.graph.sources
        )

    def _sinks(self) -> tuple[SinkLine, ...]:
        loop = self._job.loop
        waiting = {} if loop is None else {each.sink: each for each in loop.waiting_output}
        committed_up_to = {} if loop is None else loop.output.committed_up_to.copy()
        lines = []
        commits, now_ms = self._figures.sink_commits, SYSTEM_CLOCK.now().wall_ms
        for sink in self._job.graph.sinks:
            found, committed = waiting.get(sink.uid), committed_up_to.get(sink.uid)
            last = commits.last.get(sink.uid)
            lines.append(
                SinkLine(
                    sink=str(sink.uid),
                    guarantee=guarantee.of_sink(sink).name,
                    published_epoch=None if committed is None else str(committed),
                    waiting_epochs=0 if found is None else found.epochs,
                    waiting_bytes=0 if found is None else found.size_bytes,
                    waiting_since=None if found is None else str(found.since),
                    oldest_waiting_ms=None if found is None else now_ms - self._job.metrics.ages.age_ms(found.since),
                    last_commit_ms=None if last is None else last.ended_ms,
                    error=None if found is None or found.error is None else redacted(found.error),
                )
            )
        return tuple(lines)

    def _failures(self) -> tuple[FailureLine, ...]:
        last = list(self._supervisor.failures)[-FAILURES:]
        found = tuple(
            FailureLine(
                at_ms=each.at_ms,
                kind=each.kind,
                message=redacted(each.message)[:_LONGEST_MESSAGE],
                restarted=each.restarted,
            )
            for each in reversed(last)
        )
        # The oldest: it ended before this run began.
        lost = self._job.lost_driver
        return found if lost is None else (*found, lost)[:FAILURES]


def _without_credentials(config: CheckpointConfig) -> CheckpointConfig:
    """The configuration without credentials in its addresses."""
    places = [None if place is None else redacted(place) for place in (config.dir, config.savepoint_dir)]
    return replace(config, dir=places[0], savepoint_dir=places[1])


def _epoch(report: EpochReport) -> EpochLine:
    return EpochLine(
        epoch=str(report.epoch),
        ended_ms=report.ended_ms,
        duration_ms=report.duration_ms,
        rows_in=report.rows_in,
        tries=report.tries,
        phases=report.phases,
        operators=report.operators,
    )
