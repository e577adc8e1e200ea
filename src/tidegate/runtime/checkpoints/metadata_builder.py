"""Builds the metadata of a checkpoint or savepoint, once all its files are stored."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version

from tidegate.checkpoint.coordination.pending import PendingCheckpoint
from tidegate.checkpoint.effects import Steps
from tidegate.checkpoint.files.output_objects import OutputParts
from tidegate.checkpoint.layout import JobLayout
from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind, SplitTime, StateNumber, operators
from tidegate.core.clock import Instant
from tidegate.core.ids import Lineage, Term, Uid
from tidegate.core.times import MIN_WATERMARK
from tidegate.graph.event_times import of_split_name
from tidegate.runtime.checkpoints.epoch_snapshot import PendingUpload
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.sources.source_notes import note_steps
from tidegate.savepoint.snapshot import CANONICAL_BACKEND


def build_metadata(  # noqa: PLR0913 a pure function of all it depends on
    pending: PendingCheckpoint,
    upload: PendingUpload,
    *,
    job: JobDescription,
    before: CheckpointMetadata | None,
    lineage: Lineage,
    term: Term,
    output: OutputParts,
    now: Instant,
    shares: bool = False,
) -> Steps[CheckpointMetadata]:
    """Store the positions of the sources next to the files of the snapshot, and describe all of it. Raises `StorageError`.

    `before` is the snapshot that the job would return to until now: states in it that the job
    does not declare are carried over. `shares`: it is a checkpoint of this job, and the new one may have files of it. A savepoint
    never does.
    """
    layout, snapshot = JobLayout(job.job), upload.snapshot
    root = upload.folder or layout.root
    folder = upload.folder or layout.exclusive(pending.id, "")[:-1]

    positions, query = yield from note_steps(
        root=root,
        folder=folder,
        checkpoint_id=pending.id,
        epoch=snapshot.epoch,
        uids=job.sources,
        sources=upload.sources,
        batch="{}" if snapshot.positions is None else snapshot.positions.batch,
        before=before if shares and upload.folder is None else None,
    )

    # States that the job does not declare now are kept: a later version of the job may declare them again.
    described = operators.with_undeclared_states(job.operators, before, job.dropped_states)
    if upload.tables is not None:
        described = tuple(replace(operator, backend=CANONICAL_BACKEND) for operator in upload.tables)

    clocks = snapshot.clocks
    return CheckpointMetadata(
        job=job.job,
        lineage=lineage,
        checkpoint_id=pending.id,
        term=term,
        epoch=pending.epoch,
        kind=SnapshotKind.CHECKPOINT if upload.folder is None else SnapshotKind.SAVEPOINT,
        savepoint_format=pending.request.format,
        triggered_ms=pending.triggered.wall_ms,
        # Not the wall clock now, which may have been set meanwhile: `completed` would come before `triggered`.
        completed_ms=pending.triggered.wall_ms + now.since(pending.triggered),
        tidegate_version=version("tidegate"),
        spark_version=job.spark_version,
        max_parallelism=job.max_parallelism,
        parallelism=job.parallelism,
        clock_ms=clocks.clock_ms,
        watermark_ms=None if clocks.watermark_ms == MIN_WATERMARK else clocks.watermark_ms,
        splits=tuple(_split_time(name, ms) for name, ms in clocks.greatest.items()),
        operators=described,
        state_numbers=tuple(StateNumber(uid, name, id) for (uid, name), id in job.state_ids.items()),
        tasks=tuple(pending.states.values()),
        positions=positions,
        query=query,
        committables=output.inline,
        stored_output=output.refs,
    )


def _split_time(name: str, ms: int) -> SplitTime:
    uid, split = of_split_name(name)
    return SplitTime(Uid(uid), split, ms)
