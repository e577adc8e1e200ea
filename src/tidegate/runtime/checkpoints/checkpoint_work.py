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


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadState:
    """What is stored, what is being stored, and what may still be, when an epoch begins."""

    uploading: Sequence[PendingUpload] = ()
    snapshots: Iterable[EpochSnapshot] = ()
    """Those of which a checkpoint may still be taken."""
    kept: Mapping[TaskId, VersionId] = field(default_factory=dict)
    """The versions of the latest checkpoint: a rewind finds them on local disk."""
    latest: tuple[CheckpointRef | None, Mapping[TaskId, bytes]] = (None, {})
    """The latest checkpoint, and a digest of each task's files in it."""
    early: Announced | None = None
    """The checkpoint that is announced to this epoch."""
    announced: int = 0
    """The checkpoint that was announced last, if it is not known yet what became of it."""
    changelog: ChangelogPlan = field(default_factory=ChangelogPlan)

    def in_latest(self, task: TaskId) -> Stored | None:
        """Return the files of a task in the latest checkpoint; None: it has none there."""
        latest, digests = self.latest
        digest = digests.get(task)
        if latest is None or digest is None:
            return None
        return Stored(latest.term, latest.id, digest)


def plan_checkpoint_work(
    job: JobDescription,
    term: Term,
    state: UploadState,
    *,
    inline_bytes: int,
    is_empty: bool,
    publications: Sequence[CommitBatch] = (),
) -> dict[int, CheckpointWork]:
    """Return the work by level. `is_empty`: the epoch has no rows. `publications` is output that tasks commit, each belonging
    to one task."""
    early, truncated = state.early, state.changelog.truncated
    total = min(_INLINE_TASK_BYTES, _INLINE_JOB_BYTES // max(1, len(job.tasks)))

    # Whatever is not listed here is removed on the hosts, and its upload would begin again.
    records = _records(term, state)
    orders = _orders(state, inline_bytes, total)

    # The first task on a host starts those of tasks that wait for a core or a level.
    everything = tuple((task, one) for task, some in orders.items() for one in some)
    # Uploads in progress read versions of earlier epochs: local clean-up must spare them.
    standing = [*(each.snapshot for each in state.uploading), *state.snapshots]
    wait_ms = upload_wait_ms(is_empty=is_empty, early_wait_ms=None if early is None else early.wait_ms)

    work: dict[int, CheckpointWork] = {}
    for level in range(1, job.levels + 1):
        tasks = [TaskId(level, Slot(slot)) for slot in range(job.parallelism)]
        uploads = tuple(tuple(orders.get(task, ())) for task in tasks)
        commits = _commit_orders(job, level, publications)
        # Tasks wait for nothing if they have nothing to store and to commit: rows would wait, too.
        waits = any(uploads) or any(commits) or early is not None
        work[level] = CheckpointWork(
            uploads=uploads,
            every_upload=everything,
            keep=tuple(_kept_versions(task, standing, state.kept) for task in tasks),
            records=records,
            restores=(),
            wait_ms=wait_ms if waits else 0,
            commits=commits,
            early=None if early is None else _early_upload(early, tasks, state, inline_bytes, total),
            announced=state.announced,
            truncated=tuple(truncated.get(task) for task in tasks) if truncated else (),
        )
    return work


def _records(term: Term, state: UploadState) -> tuple[tuple[Term, int], ...]:
    """Return term and id of the checkpoints whose upload records are still needed."""
    latest, _ = state.latest
    records = [(term, each.id) for each in state.uploading]
    if latest is not None:
        records.append((latest.term, latest.id))
    if state.announced:
        records.append((term, state.announced))
    offered = [state.changelog.materialized, *(each.materialized for each in state.uploading)]
    if state.early is not None:
        offered.append(state.early.materialized)
    needed = [made.stored for each in offered for made in each.values()]
    needed += [stored for each in state.uploading for stored in each.base.values()]
    records += dict.fromkeys((stored.term, stored.checkpoint_id) for stored in needed)
    return tuple(records)


def _orders(state: UploadState, inline_bytes: int, total: int) -> dict[TaskId, list[UploadOrder]]:
    """Return what each task that has not acknowledged is asked for."""
    orders: dict[TaskId, list[UploadOrder]] = {}
    for each in state.uploading:
        for task in sorted(each.missing):
            # Not the latest checkpoint: another one may have completed since this one began, and clean-up spares this base.
            base = each.base.get(task)
            orders.setdefault(task, []).append(_order(each, task, base, inline_bytes, total))
    return orders


def _order(each: PendingUpload, task: TaskId, base: Stored | None, inline_bytes: int, total: int) -> UploadOrder:
    materialized = each.materialized.get(task)
    return UploadOrder(
        checkpoint_id=each.id,
        version=each.snapshot.versions[task],
        base=base,
        inline_threshold=inline_bytes,
        inline_total=total,
        folder=each.folder,
        tables=None if each.tables is None else tuple(table for table in each.tables if table.level == task.level),
        changelog=each.changelog,
        materialized=None if materialized is None else materialized.stored,
    )


def _early_upload(
    early: Announced, tasks: Sequence[TaskId], state: UploadState, inline_bytes: int, total: int
) -> EarlyUpload:
    """Return what the tasks of a level need to store what they seal, as soon as they have sealed it."""
    materialized = [early.materialized.get(task) for task in tasks]
    return EarlyUpload(
        checkpoint_id=early.id,
        bases=tuple(state.in_latest(task) if early.incremental else None for task in tasks),
        inline_threshold=inline_bytes,
        inline_total=total,
        changelog=early.changelog,
        materialized=tuple(None if each is None else each.stored for each in materialized),
    )


def _kept_versions(
    task: TaskId, standing: Sequence[EpochSnapshot], kept: Mapping[TaskId, VersionId]
) -> tuple[VersionId, ...]:
    versions = {snapshot.versions[task] for snapshot in standing if task in snapshot.versions}
    if task in kept:
        versions.add(kept[task])
    return tuple(versions)


def _commit_orders(
    job: JobDescription, level: int, publications: Sequence[CommitBatch]
) -> tuple[tuple[CommitOrder, ...], ...]:
    """Return the orders for each slot. Output of slots that the job no longer has is distributed over the existing ones,
    and so are sinks for which one task commits everything.
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
