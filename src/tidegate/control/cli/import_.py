"""`tidegate import`: state and positions of another engine as a savepoint."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from tidegate.control.cli.flink_flags import FlinkNamed
from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import Facts, Line, Output, OutputTable, size
from tidegate.core.times import moment

if TYPE_CHECKING:
    from tidegate.control.spark_import.import_query import SparkMove


@click.group("import")
def command() -> None:
    """Convert the state of another engine into a savepoint."""


@command.command("spark")
@click.argument("checkpoint")
@click.option(
    "--job", "job_file", required=True, type=click.Path(exists=True, dir_okay=False), help="The job that will continue."
)
@click.option("--to", "target", help="The empty directory for the savepoint.")
@click.option("--dry-run", is_flag=True, help="Show what would be carried over, count it, and write nothing.")
@click.option(
    "--operator", "operators", multiple=True, metavar="N=UID", help="Operator N of the query is UID in the job."
)
@click.option("--source", "sources", multiple=True, metavar="N=UID", help="Source N of the query is UID in the job.")
@click.option(
    "-n",
    "--allow-non-restored-state",
    "allow",
    cls=FlinkNamed,
    flink=["--allowNonRestoredState"],
    is_flag=True,
    help="Leave behind what cannot be carried over.",
)
@click.option(
    "--same-order", is_flag=True, help="The job declares its aggregates in the order of the query. Do not ask."
)
@with_output
def spark(  # noqa: PLR0913 one parameter for each option
    out: Output,
    checkpoint: str,
    job_file: str,
    target: str | None,
    dry_run: bool,
    operators: tuple[str, ...],
    sources: tuple[str, ...],
    allow: bool,
    same_order: bool,
) -> int:
    """Make a savepoint of a stopped Spark query, from its checkpointLocation CHECKPOINT.

    Started with `tidegate run JOB.PY -s SAVEPOINT`, the job continues at the offset where the query stopped, with its state,
    timers and watermark. Nothing in CHECKPOINT changes.
    """
    from tidegate.control.jobs.job_file import load_job
    from tidegate.control.spark_import.import_query import SparkMove
    from tidegate.runtime.driver.session import session

    if (target is None) != dry_run:
        raise click.UsageError("Give either --to SAVEPOINT or --dry-run.")

    # The job is built with the session that also reads the state of the query: one JVM for both.
    move = SparkMove(
        load_job(job_file, session("tidegate-import")),
        checkpoint,
        sources=_numbered(sources, "--source"),
        operators=_numbered(operators, "--operator"),
    )
    if target is None:
        return _dry_run(out, move)
    query = move.query
    plan = move.plan

    # Asked before the long work, not after it.
    same_order = same_order or _confirmed(move)
    began = time.monotonic()
    with out.counter("Carrying over") as show_count:
        done = move.write(
            target,
            allow,
            lambda state, count: show_count(f"{state.uid}/{state.spec.name}", count),
            same_order=same_order,
        )
    seconds = time.monotonic() - began
    written = done.metadata.full_size_bytes
    out.show(
        {
            "external_path": done.url,
            "batch": query.batch,
            "entries": done.entries,
            "state_size": written,
            "seconds": round(seconds, 3),
            "left": list(plan.notes),
        },
        *(Line(warning, "yellow") for warning in move.warnings()),
        Line(f"Carried over {done.entries:,} entries, {size(written)}, in {seconds:.1f} s."),
        Line(f"Savepoint completed. Path: {done.url}"),
    )
    return 0


def _confirmed(move: SparkMove) -> bool:
    """Ask what only the user can know. Without a terminal nobody can answer, and `move.write` refuses."""
    if not move.plan.questions or not sys.stdin.isatty():
        return False
    for question in move.plan.questions:
        click.echo(question, err=True)
    click.confirm("Does the job declare its aggregates in the order of the query?", abort=True, err=True)
    return True


def _dry_run(out: Output, move: SparkMove) -> int:
    from tidegate.runtime.sources.stopped_query import source_text

    query = move.query
    plan = move.plan

    # Counting reads all of Spark's state: the only part of a dry run that takes long.
    states = [
        {
            "operator": state.operator,
            "state": state.spark_name,
            "entries": count,
            "uid": str(state.uid),
            "becomes": state.spec.name,
        }
        for state, count in zip(plan.states, move.counts())
    ]
    sources = [
        {"source": match.place, "position": source_text(query.sources[match.place]), "uid": str(match.source.uid)}
        for match in plan.sources
    ]
    facts = [
        ("Query", f"{query.path}, after batch {query.batch}"),
        ("Watermark", None if query.next_watermark_ms is None else moment(query.next_watermark_ms).isoformat()),
        ("Job", move.job.name),
    ]
    out.show(
        {
            "path": query.path,
            "batch": query.batch,
            "watermark": query.next_watermark_ms,
            "sources": sources,
            "states": states,
            "left": list(plan.notes),
        },
        Facts("", facts),
        OutputTable("Sources", ("Source", "Position", "Becomes"), [list(each.values()) for each in sources]),
        OutputTable(
            "State", ("Operator", "Spark", "Entries", "Becomes", "State"), [list(each.values()) for each in states]
        ),
        *(Line(warning, "yellow") for warning in move.warnings()),
        Line("Nothing was written."),
    )
    return 0


def _numbered(texts: tuple[str, ...], option: str) -> dict[int, str]:
    uids: dict[int, str] = {}
    for text in texts:
        number, equals, uid = text.partition("=")
        if not (equals and uid and number.isdecimal()):
            raise click.UsageError(f"{option} takes N=UID, such as 0=orders, not {text!r}.")
        uids[int(number)] = uid
    return uids
