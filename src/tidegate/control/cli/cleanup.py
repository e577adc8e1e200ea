"""`tidegate cleanup`: leftovers of lineages that no job continues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import NO, BadOption, Block, Line, Output, OutputTable, moment, size

if TYPE_CHECKING:
    from tidegate.control.jobs.cleanup import Abandoned, Finding
    from tidegate.core.ids import Lineage


@click.command("cleanup")
@click.argument("job_or_dir", required=False)
@click.option("--delete", is_flag=True, help="End and delete what is listed. Without it, nothing is changed.")
@click.option(
    "--lineage",
    "lineages",
    multiple=True,
    metavar="LINEAGE",
    help="Search for leftovers of this lineage, instead of those that the records of runs name. Make sure that no copy of the "
    "directory continues it.",
)
@click.option(
    "--older-than",
    default="1 d",
    show_default=True,
    metavar="DURATION",
    help="Keep leftovers in targets that are younger than this.",
)
@with_output
def command(out: Output, job_or_dir: str | None, delete: bool, lineages: tuple[str, ...], older_than: str) -> int:
    """List leftovers of lineages that no job continues: prepared transactions, hidden files, multipart uploads, open Kafka
    transactions, data files that no table contains, and files in the checkpoint directory. Exit code 1 if a target cannot be
    searched.

    JOB_OR_DIR is a job file: its directory and the targets of its sinks are searched. Or it is a checkpoint directory, or that
    of one job: then targets are not known, and only files in the directory are found. A job that has not ended deletes those
    itself.
    """
    from tidegate.control.jobs.checkpoint_place import is_job_file, place_of
    from tidegate.control.jobs.cleanup import abandoned_lineages, all_jobs, delete_files, storage_findings, targets_of
    from tidegate.control.jobs.job_file import load_job
    from tidegate.control.jobs.stored_jobs import JobNotFound
    from tidegate.core.clock import SYSTEM_CLOCK
    from tidegate.core.durations import duration_ms
    from tidegate.core.ids import Lineage

    try:
        older_than_ms = duration_ms(older_than)
    except ValueError as error:
        raise BadOption(f"--older-than: {error}.") from None
    place = place_of(job_or_dir)
    named = [Lineage(each) for each in lineages]
    try:
        jobs = all_jobs(place)
    except JobNotFound:
        if not named:
            raise
        jobs = ()  # The directory is gone; what it left in targets is not.
    job = next((each for each in jobs if each.name == place.job), None)
    abandoned = abandoned_lineages(jobs, job, named)
    _refuse_kept(abandoned, named)
    if job_or_dir is not None and is_job_file(job_or_dir):
        targets, silent = targets_of(load_job(job_or_dir).graph())
        searched = []
        if job is not None:
            searched.append(job)
    else:
        # A directory does not say which targets its jobs write to.
        targets = []
        silent = []
        searched = [each for each in jobs if each.url.startswith(_normal(place.url))]

    now_ms = SYSTEM_CLOCK.now().wall_ms
    all_findings: list[Finding] = []
    problems: list[tuple[str, str]] = []
    for target in targets:
        try:
            findings = [*target.find(abandoned, now_ms, older_than_ms)]
            all_findings += findings
            if delete:
                target.end(findings)
        except Exception as error:
            # Whatever the client of the target raises. The others are cleaned up all the same.
            problems.append((f"sink {target.sink}", f"{type(error).__name__}: {error}"))
    for each in searched:
        findings = storage_findings(each)
        all_findings += findings
        if delete:
            delete_files(each, findings)
    _show(out, all_findings, abandoned, problems, delete, now_ms, _notes(targets, silent, searched, abandoned))
    return NO if problems else 0


def _normal(url: str) -> str:
    from tidegate.savepoint.snapshot import location

    return location(url)


def _refuse_kept(abandoned: Abandoned, named: Sequence[Lineage]) -> None:
    for lineage in named:
        if lineage in abandoned.kept:
            raise BadOption(f"--lineage {lineage} is not abandoned: {abandoned.kept[lineage]}. Nothing was changed.")


def _notes(targets: Sequence[Any], silent: Sequence[str], searched: Sequence[Any], abandoned: Abandoned) -> list[str]:
    notes = []
    if not targets and not silent:
        notes.append("Only the directory was searched. Name the job file to search the targets of its sinks, too.")
    if silent:
        notes.append(f"These sinks leave nothing in their targets, or offer no cleaner: {', '.join(silent)}.")
    if targets and not abandoned.lineages:
        notes.append(
            "No abandoned line of history is known. Records of the last runs are kept; name an older one: --lineage."
        )
    for job in searched:
        if job.newest.outcome is None:
            notes.append(
                f"The job {job.name!r} has not ended: it deletes files that it does not need itself, after a start."
            )
    return notes


def _show(
    out: Output,
    findings: Sequence[Finding],
    abandoned: Abandoned,
    problems: Sequence[tuple[str, str]],
    delete: bool,
    now_ms: int,
    notes: Sequence[str],
) -> None:
    # A target that raised may have ended a part of what was found there. None of it is reported as deleted: the next call
    # finds what is left.
    failed = {where for where, _ in problems}
    documents = [
        {
            "what": each.what,
            "where": each.where,
            "lineage": each.lineage,
            "sink": each.sink,
            "epoch": each.epoch,
            "timestamp": each.at_ms,
            "age": None if each.at_ms is None else now_ms - each.at_ms,
            "size": each.size_bytes,
            "kept": each.kept,
            "deleted": delete and each.kept is None and f"sink {each.sink}" not in failed,
        }
        for each in findings
    ]
    rows = [
        (
            each.what,
            each.where,
            each.lineage,
            each.sink,
            each.epoch,
            moment(each.at_ms),
            None if each.size_bytes is None else size(each.size_bytes),
            each.kept,
        )
        for each in findings
    ]

    # What is kept on purpose is listed, but --delete has nothing to do for it.
    ended = sum(each["deleted"] is True for each in documents)
    waiting = sum(each.kept is None for each in findings)
    kept = sorted(abandoned.kept.items())
    columns = ("What", "Where", "Lineage", "Sink", "Epoch", "Written", "Size", "Kept because")
    blocks: list[Block] = [OutputTable("Left", columns, rows)] if rows else [Line("Nothing is left.")]
    if kept:
        blocks.append(OutputTable("Lines of history that are kept", ("Lineage", "Why"), kept))
    if problems:
        blocks.append(OutputTable("Not cleaned up", ("Where", "Why"), problems))
    blocks += [Line(note, "yellow") for note in notes]
    if delete and rows:
        blocks.append(Line(f"{ended} of {len(rows)} ended and deleted."))
    elif waiting:
        blocks.append(Line(f"Nothing was changed. --delete ends and deletes {waiting} of {len(rows)}."))
    out.show(
        {
            "found": documents,
            "lineages": {"abandoned": sorted(abandoned.lineages), "kept": [{"lineage": k, "why": v} for k, v in kept]},
            "problems": [{"where": where, "problem": problem} for where, problem in problems],
            "notes": list(notes),
        },
        *blocks,
    )
