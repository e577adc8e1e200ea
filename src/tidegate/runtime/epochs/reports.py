"""The report of an epoch, and the reports of the last epochs of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, HostId, Lineage, Slot, TaskId, Uid
from tidegate.core.times import MIN_WATERMARK
from tidegate.runtime.exchange.messages import TaskAck, TaskCommitResult, Uploaded


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochReport:
    """What one accepted epoch did."""

    epoch: EpochId
    rows_in: int
    """Rows of the sources, however many operators read them."""
    tries: int
    duration_ms: int
    plan_ms: int
    job_ms: int
    operators: dict[str, tuple[int, int]]
    """Rows in and out by operator."""
    hosts: dict[TaskId, HostId] = field(repr=False)
    ended_ms: int = 0
    """When it was accepted, in milliseconds since 1970."""
    control_bytes: int = 0
    committables: tuple[Committable, ...] = field(default=(), repr=False)
    """What the sinks prepared. The caller decides when to commit it."""
    uploads: tuple[tuple[TaskId, Uploaded], ...] = field(default=(), repr=False)
    """What tasks reported about uploads for checkpoints."""
    watermark_ms: int = MIN_WATERMARK
    """Applied at the end of the epoch."""
    input_watermark_ms: int = MIN_WATERMARK
    """Applied while its rows were processed."""
    late_rows_dropped: int = 0
    """Rows that were too late for all their windows and had no side output."""
    commit_results: tuple[TaskCommitResult, ...] = field(default=(), repr=False)
    """What tasks reported about output that they commit."""
    acks: tuple[TaskAck, ...] = field(default=(), repr=False)
    """The acknowledgements of all tasks, for the metrics."""
    phases: Mapping[str, int] = field(default_factory=dict)
    """Where the time went, in milliseconds; see `epoch_phases`."""


def added_rows(counts: Iterable[Mapping[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """Add up rows in and out by operator: those of several tasks, or of several epochs."""
    total: dict[str, tuple[int, int]] = {}
    for each in counts:
        for name, (rows_in, rows_out) in each.items():
            before = total.get(name, (0, 0))
            total[name] = (before[0] + rows_in, before[1] + rows_out)
    return total


def committables_of(acks: Iterable[TaskAck], lineage: Lineage, epoch: EpochId) -> tuple[Committable, ...]:
    """What the sinks prepared in all tasks."""
    return tuple(
        Committable(
            lineage=lineage,
            sink=Uid(item.sink),
            epoch=epoch,
            slot=Slot(ack.sender),
            payload=item.payload,
            staged=item.staged,
            size_bytes=item.size_bytes,
        )
        for ack in acks
        for item in ack.committables
    )


class EpochReports(deque[EpochReport]):
    """Keeps only figures: neither the rows that sinks prepared, nor the files of state, nor what each task committed, and a
    single table of hosts as long as it does not change.
    """

    def __init__(self, most: int) -> None:
        super().__init__(maxlen=most)

    def append(self, report: EpochReport) -> None:
        same = bool(self) and self[-1].hosts == report.hosts
        hosts = self[-1].hosts if same else report.hosts
        super().append(replace(report, committables=(), uploads=(), commit_results=(), acks=(), hosts=hosts))
