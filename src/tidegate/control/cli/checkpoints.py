"""`tidegate checkpoints`: the retained checkpoints of a job, read from its log and their metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from tidegate.control.cli.main import speaks
from tidegate.control.cli.output import NO, Facts, Line, Output, OutputTable, moment, size
from tidegate.core.ids import ordinal

if TYPE_CHECKING:
    from tidegate.control.messages.checkpoints import StorageUse


@click.group("checkpoints")
def command() -> None:
    """List, show, verify and compare the checkpoints of a job."""


@command.command("list")
@click.argument("directory", required=False)
@speaks
def list_(out: Output, directory: str | None) -> int:
    """List the retained checkpoints of the job in DIRECTORY, or of all jobs of a checkpoint directory. Exit code 1 if a job
    or a checkpoint cannot be read; the others are listed all the same.

    DIRECTORY may be a job file: then it is the job's own. Without it, the directory of the file for all jobs is used.
    """
    from tidegate.control.jobs.checkpoint_place import place_of
    from tidegate.control.jobs.checkpoint_report import storage_of_checkpoints

    documents: list[dict[str, Any]] = []
    rows, requests = [], list[tuple[Any, ...]]()
    broken: list[tuple[str, str]] = []
    jobs = place_of(directory).jobs(on_broken=lambda name, error: broken.append((name, str(error))))
    for job in jobs:
        used = storage_of_checkpoints(job)
        snapshots, unreadable = job.readable_snapshots()
        broken += [(job.name, problem) for problem in unreadable]
        for ref, snapshot in snapshots:
            m, base = snapshot.metadata, ref == job.newest.base
            documents.append(
                {
                    "job": job.name,
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
                    "restart_from": base,
                    "storage": msgspec.to_builtins(used.get(ref.id)),
                }
            )
            rows.append(
                (
                    job.name,
                    ref.id,
                    moment(m.triggered_ms),
                    f"{m.completed_ms - m.triggered_ms} ms",
                    size(m.delta_size_bytes),
                    size(m.full_size_bytes),
                    str(ref.epoch),
                    "yes" if base else "",
                    snapshot.url,
                )
            )
            requests += [] if ref.id not in used else [(job.name, ref.id, *_requests(used[ref.id]))]
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
    told = [OutputTable("Storage requests", kinds, requests)] if requests else []
    out.show({"checkpoints": documents, "problems": problems}, OutputTable("", columns, rows), *told, *unread)
    return NO if broken else 0


@command.command("show")
@click.argument("path")
@speaks
def show(out: Output, path: str) -> None:
    """Show the metadata of the checkpoint at PATH, or of the latest one of a job file."""
    from tidegate.control.cli.describe import blocks, document
    from tidegate.control.jobs.checkpoint_place import snapshot_of

    snapshot = snapshot_of(path)
    out.show(document(snapshot), *blocks(snapshot))


@command.command("verify")
@click.argument("paths", nargs=-1)
@click.option("--quick", is_flag=True, help="Check only the sizes of files, not their content.")
@speaks
def verify_(out: Output, paths: tuple[str, ...], quick: bool) -> int:
    """Check that every file of each PATH exists and is intact. Exit code 1 if one is not.

    A PATH may also be a job's directory or a job file: then all its retained checkpoints are checked. Without a PATH, those of
    all jobs are, in the directory of the file for all jobs.
    """
    from tidegate.savepoint.verify import verify

    found: list[dict[str, Any]] = []
    for snapshot in (s for path in paths or (None,) for s in _snapshots(path)):
        with out.progress(f"Verifying {snapshot.url}", snapshot.metadata.full_size_bytes) as done:
            problems = [(p.where, p.what) for p in verify(snapshot, checksums=not quick, progress=done)]
        files = sum(len(task.files) + len(task.inline) for task in snapshot.metadata.tasks)
        found.append({"path": snapshot.url, "files": files, "whole": not problems, "problems": problems})
    whole = all(item["whole"] for item in found)
    out.show(
        {"whole": whole, "checked": found},
        OutputTable(
            "", ("Path", "Files", "Whole"), [(f["path"], f["files"], "yes" if f["whole"] else "NO") for f in found]
        ),
        *(OutputTable(f"Problems of {f['path']}", ("Where", "What"), f["problems"]) for f in found if f["problems"]),
    )
    return 0 if whole else NO


@command.command("diff")
@click.argument("before")
@click.argument("after")
@speaks
def diff(out: Output, before: str, after: str) -> None:
    """Show what changed from the snapshot BEFORE to the snapshot AFTER: states, positions, files. Reads metadata only."""
    from tidegate.control.jobs.checkpoint_place import snapshot_of
    from tidegate.savepoint.diff import differences, files_between

    old, new = snapshot_of(before), snapshot_of(after)
    changes, files = list(differences(old.metadata, new.metadata)), files_between(old, new)
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


def _requests(used: StorageUse) -> tuple[Any, ...]:
    made, cost = used.requests, used.estimated_cost_dollars
    shown = None if cost is None else f"${cost:.6f}"
    return made.write, made.list, made.read, made.delete, size(used.written_bytes), shown


def _snapshots(path: str | None) -> Any:
    from tidegate.checkpoint.completed.retained import SnapshotNotFound
    from tidegate.control.jobs.checkpoint_place import is_job_file, place_of
    from tidegate.control.jobs.stored_jobs import JobNotFound, jobs_in
    from tidegate.savepoint.snapshot import StoredSnapshot

    if path is None or is_job_file(path):
        return [snapshot for job in place_of(path).jobs() for _, snapshot in job.snapshots()]
    try:
        return [StoredSnapshot.open(path)]
    except SnapshotNotFound as error:
        try:
            return [snapshot for job in jobs_in(path) for _, snapshot in job.snapshots()]
        except JobNotFound:
            raise error from None
