"""`tidegate compat`: the verdict that a start would reach, without starting."""

from __future__ import annotations

import click

from tidegate.control.cli.main import speaks
from tidegate.control.cli.output import NO, Line, Output, OutputTable

_CONVERT = "To convert state by a rule of your own, write a savepoint with tg.SavepointWriter: `tidegate explain STATE_CHANGED`."


@click.command("compat")
@click.argument("job_file", type=click.Path(exists=True, dir_okay=False))
@click.option("-s", "--from", "--fromSavepoint", "path", required=True, help="A checkpoint or savepoint.")
@click.option("-n", "--allowNonRestoredState", "--allow-non-restored-state", "allow", is_flag=True,
              help="Allow dropping state that the job does not declare.")  # fmt: skip
@click.option("--map-uid", "uids", multiple=True, metavar="OLD=NEW", help="The operator OLD is now called NEW.")
@click.option("--renamed", multiple=True, metavar="UID/STATE:OLD=NEW", help="A field of a state was renamed.")
@speaks
def command(out: Output, job_file: str, path: str, allow: bool, uids: tuple[str, ...], renamed: tuple[str, ...]) -> int:
    """Check whether the job in JOB_FILE can start from the snapshot --from. Exit code 0: yes; 1: no.

    JOB_FILE is imported, not run: it must hold a Job, or a function build() or build(spark) that creates one.
    """
    from tidegate.control.job_file import declared, load_job
    from tidegate.savepoint.compatibility import VerdictKind, judge
    from tidegate.savepoint.restore_compatibility import translated
    from tidegate.savepoint.snapshot import StoredSnapshot

    snapshot = StoredSnapshot.open(path)
    metadata = translated(snapshot.metadata, dict(_pair(text) for text in uids))
    answer = judge(metadata, declared(load_job(job_file), metadata, renames=_fields(renamed)), allow)
    verdicts = [
        {"operator": v.uid, "state": v.state, "verdict": str(v.outcome), "reason": v.reason, "advice": v.advice}
        for v in answer.verdicts
    ]
    rows = [(v["operator"], v["state"] or "", v["verdict"], v["reason"]) for v in verdicts]
    advice = dict.fromkeys(f"{v.uid}{'/' + v.state if v.state else ''}: {v.advice}" for v in answer.refusals)
    if any(v.outcome is VerdictKind.INCOMPATIBLE for v in answer.refusals):
        advice[_CONVERT] = None
    out.show(
        {"compatible": answer.compatible, "path": snapshot.url, "verdicts": verdicts},
        OutputTable("", ("Operator", "State", "Verdict", "Reason"), rows),
        *(Line(text, "yellow") for text in advice),
        Line(
            "The job can start from this snapshot." if answer.compatible else "The job cannot start from this snapshot."
        ),
    )
    return 0 if answer.compatible else NO


def _fields(texts: tuple[str, ...]) -> dict[tuple[str, str], dict[str, str]]:
    found: dict[tuple[str, str], dict[str, str]] = {}
    for text in texts:
        where, colon, names = text.rpartition(":")
        uid, slash, state = where.rpartition("/")
        if not (colon and slash):
            raise click.UsageError(f"--renamed takes UID/STATE:OLD=NEW, not {text!r}.")
        old, new = _pair(names)
        found.setdefault((uid, state), {})[old] = new
    return found


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise click.UsageError(f"Expected OLD=NEW, not {text!r}.")
    return old, new
