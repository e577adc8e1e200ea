"""What a run starts from: the snapshot that its job's log points to, and the part of it that each part of the job needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind
from tidegate.checkpoint.task.assignment import RestoreTarget, TaskRestore, plan_restore
from tidegate.checkpoint.task.version_restore import RestoreOrder
from tidegate.core.ids import Lineage, TaskId, Term
from tidegate.core.times import MIN_WATERMARK
from tidegate.graph.event_times import split_name
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.sources.query_directory import SourceNotes
from tidegate.runtime.sources.source_notes import load_notes
from tidegate.savepoint.compatibility import JobNow
from tidegate.savepoint.evolution import Renames
from tidegate.savepoint.restore_compatibility import Fitted, fit
from tidegate.storage import Storage


@dataclass(frozen=True, slots=True)
class RestorePoint:
    """One point in the history of a job. Without a snapshot: its beginning."""

    lineage: Lineage
    term: Term
    snapshot: CheckpointMetadata | None
    root: str
    """The root of relative names in the snapshot."""
    stored: tuple[Term, int] | None
    """Term and id of the checkpoint, if the next one may reuse its files."""
    storage: Storage = field(repr=False)

    @property
    def checkpoint_id(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.checkpoint_id

    def orders(
        self, job: JobDescription, allow_non_restored_state: bool, renames: Mapping[tuple[str, str], Renames]
    ) -> dict[TaskId, RestoreOrder]:
        """Return what each task restores. Empty: there is no state. Raises `RestoreError` if it does not fit the job."""
        snapshot = self.snapshot
        if snapshot is None:
            return {}
        now = JobNow(job.operators, job.sources, renames=renames, drops=job.dropped_states)
        plans, fitted = plan_return(snapshot, now, job.parallelism, job.max_parallelism, allow_non_restored_state)
        old = {state.task: state for state in snapshot.tasks}
        orders: dict[TaskId, RestoreOrder] = {}
        for plan in plans:
            names = {*plan.sources, *(() if plan.as_is is None else (plan.as_is,))}
            sources = tuple(old[name] for name in sorted(names))
            # An old task without files has no state: its successor starts empty, and needs no order.
            if any(len(state.files) or state.inline for state in sources):
                taken = {id for share in plan.keyed for id in share.states}
                taken |= {item.state for part in (plan.split, plan.union, plan.broadcast) for item in part}
                # Only of states that this task takes over: the order travels to it.
                migrations = tuple(each for each in fitted.migrations if each.old.id in taken)
                orders[plan.task] = RestoreOrder(
                    plan=plan, sources=sources, root=self.root, stored=self.stored, migrations=migrations
                )
        return orders

    def sources(self, job: JobDescription, allow_unclaimed: bool) -> tuple[tuple[SourceNotes, ...], str]:
        """Return what each source resumes from, and Spark's line about the batch."""
        if self.snapshot is None:
            return tuple(SourceNotes(None, {}) for _ in job.sources), "{}"
        return load_notes(self.storage, self.root, self.snapshot, job.sources, allow_unclaimed)

    def clocks(self) -> Clocks:
        """Return the clocks stored in the snapshot."""
        snapshot = self.snapshot
        if snapshot is None:
            return Clocks()
        greatest = {split_name(split.source, split.split): split.event_time_ms for split in snapshot.splits}
        mark = MIN_WATERMARK if snapshot.watermark_ms is None else snapshot.watermark_ms
        return Clocks(snapshot.clock_ms, mark, greatest)


def plan_return(
    snapshot: CheckpointMetadata, now: JobNow, parallelism: int, max_parallelism: int, allow: bool
) -> tuple[tuple[TaskRestore, ...], Fitted]:
    """Return what each task of a job restores from a snapshot, and the verdict for every state. Raises `RestoreError` if
    the snapshot does not fit the job.
    """
    fitted = fit(snapshot, now, allow)
    levels = {operator.uid: operator.level for operator in now.operators}
    target = RestoreTarget(
        max_parallelism=max_parallelism,
        parallelism=parallelism,
        levels=levels,
        allow_non_restored_state=allow,
        rewritten=fitted.rewritten,
        dropped=fitted.dropped,
    )
    return plan_restore(snapshot, target), fitted


def root_of(path: str, snapshot: CheckpointMetadata | None) -> str:
    """Return the root of relative names in the snapshot with this `_metadata`: the job's folder, or a savepoint's own folder."""
    savepoint = snapshot is not None and snapshot.kind is SnapshotKind.SAVEPOINT
    return path.rsplit("/", 1 if savepoint else 2)[0]
