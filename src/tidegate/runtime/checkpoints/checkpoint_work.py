"""The checkpoint work of tasks, besides their rows: what to store, what to keep, how long to wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from tidegate.checkpoint.coordination.announcements import Announced
from tidegate.checkpoint.coordination.timing import upload_wait_ms
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.output.release_plan import CommitBatch
from tidegate.checkpoint.task.version_upload import EarlyUpload, Materialized, Stored, UploadOrder
from tidegate.core.ids import Slot, TaskId, Term
from tidegate.runtime.checkpoints.epoch_snapshot import EpochSnapshot, PendingUpload
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.exchange.assignment import ALL_SLOTS, CheckpointWork, CommitOrder
from tidegate.state.version import VersionId

_INLINE_TASK_BYTES = 256 << 10
_INLINE_JOB_BYTES = 8 << 20
"""Small files go into the metadata, up to this many bytes per task and for all tasks together."""


@dataclass(frozen=True, slots=True)
class ChangelogPlan:
    """With a changelog: what tasks must know about changes."""

    materialized: Mapping[TaskId, Materialized] = field(default_factory=dict)
    """Stored versions that the next checkpoint may start from. Hosts keep the records of them."""
    truncated: Mapping[TaskId, VersionId] = field(default_factory=dict)
    """Versions up to which no checkpoint needs changes."""


def plan_checkpoint_work(  # noqa: PLR0913 a pure function of all it depends on
    job: JobDescription, term: Term, uploading: Sequence[PendingUpload], snapshots: Iterable[EpochSnapshot],
    kept: Mapping[TaskId, VersionId], stored: tuple[CheckpointRef | None, Mapping[TaskId, bytes]], inline_bytes: int,
    empty: bool, publications: Sequence[CommitBatch] = (), early: Announced | None = None, announced: int = 0,
    changelog: ChangelogPlan | None = None,
) -> dict[int, CheckpointWork]:  # fmt: skip
    """Return the work by level. `snapshots` are those of which a checkpoint may still be taken, `kept` the versions of the
    latest checkpoint, `stored` that checkpoint and a digest of each task's files in it; `empty`: the epoch has no other
    purpose; `publications` is output that tasks publish, each belonging to one task; `early` is the checkpoint that is announced
    to this epoch, and `announced` the one announced last, if it is not known yet what became of it.
    """
    newest, digests = stored
    records = [(term, each.id) for each in uploading] + ([] if newest is None else [(newest.term, newest.id)])
    records += [(term, announced)] if announced else []
    changes = ChangelogPlan() if changelog is None else changelog
    offered = [changes.materialized, *(each.materialized for each in uploading)]
    offered += [] if early is None else [early.materialized]
    needed = [made.stored for each in offered for made in each.values()]
    needed += [stored for each in uploading for stored in each.base.values()]
    records += dict.fromkeys((stored.term, stored.checkpoint_id) for stored in needed)
    total = min(_INLINE_TASK_BYTES, _INLINE_JOB_BYTES // max(1, len(job.tasks)))
    standing = [*(each.snapshot for each in uploading), *snapshots]

    def in_newest(task: TaskId) -> Stored | None:
        digest = digests.get(task)
        return None if newest is None or digest is None else Stored(newest.term, newest.id, digest)

    def order(each: PendingUpload, task: TaskId) -> UploadOrder:
        tables = None if each.tables is None else tuple(o for o in each.tables if o.level == task.level)
        return UploadOrder(
            checkpoint_id=each.id,
            version=each.snapshot.versions[task],
            base=each.base.get(task),
            inline_threshold=inline_bytes,
            inline_total=total,
            folder=each.folder,
            tables=tables,
            changelog=each.changelog,
            materialized=made.stored if (made := each.materialized.get(task)) is not None else None,
        )

    orders: dict[TaskId, list[UploadOrder]] = {}
    for each in uploading:
        for task in sorted(each.missing):
            orders.setdefault(task, []).append(order(each, task))
    everything = tuple((task, one) for task, some in orders.items() for one in some)
    work: dict[int, CheckpointWork] = {}
    for level in range(1, job.levels + 1):
        tasks = [TaskId(level, Slot(slot)) for slot in range(job.parallelism)]
        uploads = tuple(tuple(orders.get(task, ())) for task in tasks)
        keep = tuple(
            tuple({snapshot.versions[task] for snapshot in standing if task in snapshot.versions} | _one(kept, task))
            for task in tasks
        )
        commits = _publishes(job, level, publications)
        wait_ms = upload_wait_ms(is_empty=empty, early_wait_ms=None if early is None else early.wait_ms)
        waits = any(uploads) or any(commits) or early is not None
        work[level] = CheckpointWork(
            uploads=uploads,
            every_upload=everything,
            keep=keep,
            records=tuple(records),
            restores=(),
            wait_ms=wait_ms if waits else 0,
            commits=commits,
            early=None
            if early is None
            else EarlyUpload(
                checkpoint_id=early.id,
                bases=tuple(in_newest(task) if early.incremental else None for task in tasks),
                inline_threshold=inline_bytes,
                inline_total=total,
                changelog=early.changelog,
                materialized=tuple(
                    made.stored if (made := early.materialized.get(task)) is not None else None for task in tasks
                ),
            ),
            announced=announced,
            truncated=tuple(changes.truncated.get(task) for task in tasks) if changes.truncated else (),
        )
    return work


def _publishes(
    job: JobDescription, level: int, publications: Sequence[CommitBatch]
) -> tuple[tuple[CommitOrder, ...], ...]:
    """Return the orders for each slot. Output of slots that the job no longer has is distributed over the existing ones,
    and so are sinks for which one task publishes everything.
    """
    orders: list[list[CommitOrder]] = [[] for _ in range(job.parallelism)]
    for each in publications:
        sink = job.task_sinks.get(each.sink)
        if sink is not None and sink.level == level:
            lane = each.committables[0].slot if sink.stable else ALL_SLOTS
            place = lane if sink.stable else crc32(each.sink.encode())
            order = CommitOrder(each.sink, lane, each.committables, each.compare_with is not None)
            orders[place % job.parallelism].append(order)
    return tuple(map(tuple, orders)) if any(orders) else ()


def _one(kept: Mapping[TaskId, VersionId], task: TaskId) -> set[VersionId]:
    return {kept[task]} if task in kept else set()
