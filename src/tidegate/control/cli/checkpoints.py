"""`tidegate checkpoints`: the retained checkpoints of a job, read from its log and their metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import NO, Facts, Line, Output, OutputTable, moment, size
from tidegate.core.ids import ordinal

if TYPE_CHECKING:
    from tidegate.checkpoint.job_log.entry import CheckpointRef
    from tidegate.control.messages.checkpoints import StorageUse
    from tidegate.savepoint.snapshot import StoredSnapshot


@click.group("checkpoints")
def command() -> None:
    """List, show, verify and compare the checkpoints of a job."""


@command.command("list")
@click.argument("directory", required=False)
@with_output
def list_(out: Output, directory: str | None) -> int:
    """List the retained checkpoints of the job in DIRECTORY, or of all jobs of a checkpoint directory. Exit code 1 if a job
    or a checkpoint cannot be read; the others are listed all the same.

    DIRECTORY may be a job file: then it is the job's own. Without it, the directory of the file for all jobs is used.
    """
    from tidegate.control.jobs.checkpoint_place import place_of
    from tidegate.control.jobs.checkpoint_report import storage_of_checkpoints

    documents: list[dict[str, Any]] = []
    rows: list[tuple[Any, ...]] = []
    requests: list[tuple[Any, ...]] = []
    broken: list[tuple[str, str]] = []

    # One damaged job or checkpoint must not hide the others: a user lists them to find one that works.
    jobs = place_of(directory).jobs(on_broken=lambda name, error: broken.append((name, str(error))))
    for job in jobs:
        # What a checkpoint cost is in the records of runs, which are shorter than its life: some checkpoints have no such row.
        storage = storage_of_checkpoints(job)
        snapshots, unreadable = job.readable_snapshots()
        broken += [(job.name, problem) for problem in unreadable]
        for ref, snapshot in snapshots:
            is_base = ref == job.newest.base
            documents.append(_document(job.name, ref, snapshot, is_base, storage.get(ref.id)))
            rows.append(_row(job.name, ref, snapshot, is_base))
            if ref.id in storage:
                requests.append((job.name, ref.id, *_requests(storage[ref.id])))
    columns = (
        "Job",
        "ID",
        "Trigger time",
        "Duration",
        "Checkpointed data",
        "Full data",
        "Epoch",
        "Restarts from",
        "Path",
    )
    unread = [OutputTable("Not read", ("Job", "Why"), broken)] if broken else []
    problems = [{"job": job, "problem": problem} for job, problem in broken]
    if not rows:
        out.show({"checkpoints": [], "problems": problems}, Line("No checkpoint is retained."), *unread)
        return NO if broken else 0
    kinds = ("Job", "ID", "Writes", "Lists", "Reads", "Deletes", "Written", "Estimated cost")
    shown_requests = [OutputTable("Storage requests", kinds, requests)] if requests else []
    out.show({"checkpoints": documents, "problems": problems}, OutputTable("", columns, rows), *shown_requests, *unread)
    return NO if broken else 0


@command.command("show")
@click.argument("path")
@with_output
def show(out: Output, path: str) -> None:
    """Show the metadata of the checkpoint at PATH, or of the latest one of a job file."""
    from tidegate.control.cli.describe import blocks, document
    from tidegate.control.jobs.checkpoint_place import snapshot_of

    snapshot = snapshot_of(path)
    out.show(document(snapshot), *blocks(snapshot))


@command.command("verify")
@click.argument("paths", nargs=-1)
@click.option("--quick", is_flag=True, help="Check only the sizes of files, not their content.")
@with_output
def verify_(out: Output, paths: tuple[str, ...], quick: bool) -> int:
    """Check that every file of each PATH exists and is intact. Exit code 1 if one is not.

    A PATH may also be a job's directory or a job file: then all its retained checkpoints are checked. Without a PATH, those of
    all jobs are, in the directory of the file for all jobs.
    """
    from tidegate.savepoint.verify import verify

    results: list[dict[str, Any]] = []
    for snapshot in (s for path in paths or (None,) for s in _snapshots(path)):
        with out.progress(f"Verifying {snapshot.url}", snapshot.metadata.full_size_bytes) as done:
            problems = [(p.where, p.what) for p in verify(snapshot, checksums=not quick, progress=done)]
        files = sum(len(task.files) + len(task.inline) for task in snapshot.metadata.tasks)
        results.append({"path": snapshot.url, "files": files, "whole": not problems, "problems": problems})
    whole = all(item["whole"] for item in results)
    out.show(
        {"whole": whole, "checked": results},
        OutputTable(
            "", ("Path", "Files", "Whole"), [(f["path"], f["files"], "yes" if f["whole"] else "NO") for f in results]
        ),
        *(OutputTable(f"Problems of {f['path']}", ("Where", "What"), f["problems"]) for f in results if f["problems"]),
    )
    return 0 if whole else NO


@command.command("diff")
@click.argument("before")
@click.argument("after")
@with_output
def diff(out: Output, before: str, after: str) -> None:
    """Show what changed from the snapshot BEFORE to the snapshot AFTER: states, positions, files. Reads metadata only."""
    from tidegate.control.jobs.checkpoint_place import snapshot_of
    from tidegate.savepoint.diff import differences, files_between

    old = snapshot_of(before)
    new = snapshot_of(after)
    changes = list(differences(old.metadata, new.metadata))
    files = files_between(old, new)
    out.show(
        {
            "changes": [{"what": c.what, "before": c.before, "after": c.after} for c in changes],
            "files": {
                "shared": files.shared,
                "shared_bytes": files.shared_bytes,
                "gone": files.gone,
                "gone_bytes": files.gone_bytes,
                "new": files.new,
                "new_bytes": files.new_bytes,
            },
        },
        OutputTable("", ("What", "Before", "After"), [(c.what, c.before, c.after) for c in changes]),
        Facts(
            "Files",
            [
                ("Shared", f"{files.shared} ({size(files.shared_bytes)})"),
                ("Gone", f"{files.gone} ({size(files.gone_bytes)})"),
                ("New", f"{files.new} ({size(files.new_bytes)})"),
            ],
        ),
    )


def _document(
    job: str, ref: CheckpointRef, snapshot: StoredSnapshot, is_base: bool, storage: StorageUse | None
) -> dict[str, Any]:
    """A checkpoint for programs. Fields that Flink's REST has, too, are called as there."""
    m = snapshot.metadata
    return {
        "job": job,
        "id": ref.id,
        "status": "COMPLETED",
        "is_savepoint": m.kind == "savepoint",
        "external_path": snapshot.url,
        "trigger_timestamp": m.triggered_ms,
        "latest_ack_timestamp": m.completed_ms,
        "end_to_end_duration": m.completed_ms - m.triggered_ms,
        "checkpointed_size": m.delta_size_bytes,
        "state_size": m.full_size_bytes,
        "term": ordinal(ref.term),
        "epoch": str(ref.epoch),
        "restart_from": is_base,
        "storage": msgspec.to_builtins(storage),
    }


def _row(job: str, ref: CheckpointRef, snapshot: StoredSnapshot, is_base: bool) -> tuple[Any, ...]:
    m = snapshot.metadata
    return (
        job,
        ref.id,
        moment(m.triggered_ms),
        f"{m.completed_ms - m.triggered_ms} ms",
        size(m.delta_size_bytes),
        size(m.full_size_bytes),
        str(ref.epoch),
        "yes" if is_base else "",
        snapshot.url,
    )


def _requests(use: StorageUse) -> tuple[Any, ...]:
    requests = use.requests
    cost = use.estimated_cost_dollars
    shown = None if cost is None else f"${cost:.6f}"
    return requests.write, requests.list, requests.read, requests.delete, size(use.written_bytes), shown


def _snapshots(path: str | None) -> Any:
    from tidegate.checkpoint.completed.retained import SnapshotNotFound
    from tidegate.control.jobs.checkpoint_place import is_job_file, place_of
    from tidegate.control.jobs.stored_jobs import JobNotFound, jobs_in
    from tidegate.savepoint.snapshot import StoredSnapshot

    if path is None or is_job_file(path):
        return [snapshot for job in place_of(path).jobs() for _, snapshot in job.snapshots()]
    try:
        return [StoredSnapshot.open(path)]
    # The path may be a job's directory. If it is neither, the first error is the better one: it names what was looked for.
    except SnapshotNotFound as error:
        try:
            return [snapshot for job in jobs_in(path) for _, snapshot in job.snapshots()]
        except JobNotFound:
            raise error from None
