"""The report of a run, as plain data: pages show it, and the run's record in storage contains it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from tidegate.checkpoint.coordination.statistics import CheckpointStatsSnapshot
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.effective import EffectiveOption
from tidegate.core.ids import Lineage, Term
from tidegate.graph.outline import Outline
from tidegate.runtime.monitoring.rescale_history import Rescale

FORMAT = 1
"""Grows when an older reader would misunderstand a record."""
_TASKS_OF_CHECKPOINTS = 10
"""A record keeps the tasks of so many checkpoints: with a thousand tasks, those of all would be megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochLine:
    """One epoch of the last ones."""

    epoch: str
    ended_ms: int
    duration_ms: int
    rows_in: int
    tries: int
    phases: Mapping[str, int]
    """Milliseconds by phase, in their order."""
    operators: Mapping[str, tuple[int, int]]
    """Rows in and out by operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """One task: totals of the run, and shares of the time since the epoch before the last one."""

    task: str
    level: int
    slot: int
    host: str
    """The id of the disk with its state, and of the boot of its machine."""
    busy: float
    idle: float
    held: float
    """Shares of that time, from 0 to 1."""
    rows_in: int
    rows_out: int
    bytes_in: int
    bytes_out: int
    fired_timers: int
    late_dropped: int
    state_bytes: int
    resident_bytes: int
    restore_ms: int
    seal_ms: int
    host_name: str = ""
    """How people call the host. Empty in the record of an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSizeLine:
    """The size of one state, over all tasks."""

    operator: str
    """The uid."""
    state: str
    bytes: int
    """Estimated. Sizes of the states of a level add up to about the state of its tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLine:
    """The output of one sink."""

    sink: str
    guarantee: str
    published_epoch: str | None = None
    """All output up to this epoch is known to be committed."""
    waiting_epochs: int = 0
    waiting_bytes: int = 0
    waiting_since: str | None = None
    """The first epoch whose output waits."""
    oldest_waiting_ms: int | None = None
    """When that epoch ended."""
    last_commit_ms: int | None = None
    """When the target last accepted output."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    source: str
    event_time_lag_ms: int | None = None
    pending_rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSample:
    """How far the sources were behind when an epoch had ended."""

    pending_rows: int | None
    lag_ms: int | None
    """The largest event time lag."""


class RunEnd(StrEnum):
    """How a run ended that did not fail."""

    SAVEPOINT = "SAVEPOINT"
    """A user stopped it with a savepoint."""
    STOPPED = "STOPPED"
    """A user stopped it; the next start continues where it ended."""
    CANCELED = "CANCELED"
    """A user ended it without a last checkpoint."""
    INPUT = "INPUT"
    """Its sources were exhausted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanLine:
    """A part of a function that `ctx.span` measures, over all tasks."""

    operator: str
    span: str
    uses: int
    total_ms: float
    longest_ms: float
    """All three of the run so far: a row that is slow once a minute must show beside the mean."""
    longest_key: str | None = None
    """The key that was processed then."""


DRIVER_LOST = "driver-lost"
"""The kind of the failure that a run reports when the driver before it had died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLine:
    """A failure that ended an attempt of the run, or the run before it."""

    at_ms: int
    kind: str
    message: str
    restarted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run at one moment. Times are milliseconds since 1970."""

    format: int = FORMAT
    job: str
    lineage: Lineage
    term: Term
    status: str
    started_ms: int
    written_ms: int
    ended_ms: int | None
    host: str
    process: str
    """By which another process of the same machine can tell whether the driver is alive."""
    versions: Mapping[str, str]
    restarts: int
    parallelism: int
    max_parallelism: int
    state_backend: str
    graph: Outline
    epochs: tuple[EpochLine, ...]
    """The last ones, oldest first."""
    tasks: tuple[TaskLine, ...]
    sources: tuple[SourceLine, ...]
    sinks: tuple[SinkLine, ...]
    held_by: str | None
    """The sink for which no batch is read."""
    watermark_ms: int | None
    failures: tuple[FailureLine, ...]
    """Newest first."""
    checkpoints: CheckpointStatsSnapshot | None
    """None: without checkpoints."""
    checkpoint_config: CheckpointConfig | None
    operators: Mapping[str, tuple[int, int]]
    """Rows in and out of the run so far, by operator."""
    options: tuple[EffectiveOption, ...]
    hot_keys: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)
    """By operator: the keys with most rows, and their share."""
    spans: tuple[SpanLine, ...] = ()
    """What functions measured, the most time first."""
    rescales: tuple[Rescale, ...] = ()
    """The last ones, newest first."""
    rescale_counts: Mapping[str, int] = field(default_factory=dict)
    """All of the run, by state."""
    running_since_ms: int | None = None
    """When the epoch that runs now began; None between two epochs."""
    unprotected_since_ms: int | None = None
    """When the oldest epoch ended whose work no checkpoint contains; None if there is no such work."""
    backlog: tuple[BacklogSample, ...] = ()
    """One for each of the last epochs with rows, oldest first."""
    states: tuple[StateSizeLine, ...] = ()
    """The largest first. Empty until a task has looked, and if the state backend does not report it."""
    end: RunEnd | None = None
    """None while it runs, and if it failed."""
    end_place: str | None = None
    """The savepoint that it ended with."""

    def to_bytes(self) -> bytes:
        """Encode for storage: without rows of users, and with the tasks of the last checkpoints only."""
        found = self.checkpoints
        if found is not None:
            kept, older = found.history[:_TASKS_OF_CHECKPOINTS], found.history[_TASKS_OF_CHECKPOINTS:]
            found = replace(found, history=(*kept, *(replace(each, tasks=(), waiting=()) for each in older)))
        spans = tuple(replace(span, longest_key=None) for span in self.spans)
        return _ENCODER.encode(replace(self, checkpoints=found, hot_keys={}, spans=spans))

    @staticmethod
    def from_bytes(data: bytes) -> RunReport:
        """Raises ValueError for anything that `to_bytes` of this version, or of an older one, did not write."""
        report = _DECODER.decode(data)
        if report.format > FORMAT:
            raise ValueError(f"format {report.format} is newer than {FORMAT}")
        return report


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(RunReport)
