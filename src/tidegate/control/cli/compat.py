"""`tidegate compat`: the verdict that a start would reach, without starting."""

from __future__ import annotations

import click

from tidegate.control.cli.flink_flags import FlinkNamed
from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import NO, Line, Output, OutputTable
from tidegate.control.cli.recovery_flags import recovery_flags, recovery_options

_CONVERT = "To convert state by a rule of your own, write a savepoint with tg.SavepointWriter: `tidegate explain STATE_CHANGED`."


@click.command("compat")
@click.argument("job_file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-s",
    "--from-savepoint",
    "--from",
    "path",
    cls=FlinkNamed,
    flink=["--fromSavepoint"],
    help="A checkpoint or savepoint. Default: the one that the next start of the job would use.",
)
@recovery_flags
@with_output
def command(
    out: Output,
    job_file: str,
    path: str | None,
    allow: bool,
    uids: tuple[str, ...],
    renamed: tuple[str, ...],
    drops: tuple[str, ...],
) -> int:
    """Check whether the job in JOB_FILE can start from the snapshot --from, or from its latest one. Exit code 0: yes; 1: no.

    JOB_FILE is imported, not run: it must hold a Job, or a function build() or build(spark) that creates one.
    """
    from tidegate.control.jobs.checkpoint_place import place_of, recovery_of
    from tidegate.control.jobs.job_file import declared, load_job
    from tidegate.savepoint.compatibility import VerdictKind, judge
    from tidegate.savepoint.renames import DeclaredNames, carried_over
    from tidegate.savepoint.restore_compatibility import check_names, translated
    from tidegate.savepoint.snapshot import StoredSnapshot

    snapshot = place_of(job_file).latest() if path is None else StoredSnapshot.open(path)
    job = load_job(job_file)
    recovery = recovery_of(job_file, recovery_options(allow, uids, renamed, drops))

    # The same steps as a start: the snapshot gets the uids that the user maps, then the names that the job declares, and is
    # judged under those.
    metadata = carried_over(translated(snapshot.metadata, recovery.uids), DeclaredNames.of(job.graph()))
    now = declared(job, metadata, renames=recovery.renamed_fields, drops=recovery.dropped_states)
    check_names(metadata, now)
    verdict = judge(metadata, now, recovery.allow_non_restored_state)
    verdicts = [
        {"operator": v.uid, "state": v.state, "verdict": str(v.outcome), "reason": v.reason, "advice": v.advice}
        for v in verdict.verdicts
    ]
    rows = [(v["operator"], v["state"] or "", v["verdict"], v["reason"]) for v in verdicts]

    # As keys, so that advice that several states share is printed once, in order.
    advice = dict.fromkeys(f"{v.uid}{'/' + v.state if v.state else ''}: {v.advice}" for v in verdict.refusals)
    if any(v.outcome is VerdictKind.INCOMPATIBLE for v in verdict.refusals):
        advice[_CONVERT] = None
    out.show(
        {"compatible": verdict.compatible, "path": snapshot.url, "verdicts": verdicts},
        OutputTable("", ("Operator", "State", "Verdict", "Reason"), rows),
        *(Line(text, "yellow") for text in advice),
        Line(
            "The job can start from this snapshot."
            if verdict.compatible
            else "The job cannot start from this snapshot."
        ),
    )
    return 0 if verdict.compatible else NO
