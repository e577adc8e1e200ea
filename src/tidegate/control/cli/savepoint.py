"""`tidegate savepoint`: operations on savepoints without their job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tidegate.control.cli.flink_flags import FlinkNamed
from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import Line, Output, size

if TYPE_CHECKING:
    from tidegate.savepoint.snapshot import StoredSnapshot


class _OrJob(click.Group):
    """`savepoint JOB [TARGET]` takes a savepoint, as Flink's CLI does; any word that is not one of our commands is a job."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from tidegate.control.cli.jobs import take_savepoint

            # No word of the line names that command: with one, its help would say "savepoint savepoint JOB".
            return "", take_savepoint, args
        return super().resolve_command(ctx, args)


@click.group("savepoint", cls=_OrJob, invoke_without_command=True)
@click.option(
    "--dispose",
    "disposed",
    cls=FlinkNamed,
    flink=["-d"],
    metavar="PATH",
    help="Dispose of the savepoint at PATH, as Flink's CLI does.",
)
@click.pass_context
def command(ctx: click.Context, disposed: str | None) -> None:
    """Take a savepoint of a running job: `savepoint JOB [TARGET] [--type native|canonical] [--detached] [-m HOST:PORT]`.

    Or show, copy and dispose of savepoints that exist, with the commands below.
    """
    if disposed is not None:
        # Flink's CLI disposes without asking.
        ctx.invoke(dispose_, path=disposed, yes=True, form="text")
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.command("show")
@click.argument("path")
@with_output
def show(out: Output, path: str) -> None:
    """Show the metadata of the savepoint at PATH, or of the snapshot that the next start of a job file would use."""
    from tidegate.control.cli.describe import blocks, document
    from tidegate.control.jobs.checkpoint_place import snapshot_of

    snapshot = snapshot_of(path)
    out.show(document(snapshot), *blocks(snapshot))


@command.command("dispose")
@click.argument("path")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@with_output
def dispose_(out: Output, path: str, yes: bool) -> None:
    """Delete the savepoint at PATH. A checkpoint is rejected: it belongs to its job."""
    from tidegate.savepoint.dispose import NotASavepoint, dispose
    from tidegate.savepoint.snapshot import StoredSnapshot

    snapshot = StoredSnapshot.open(path)
    # Checked before the question: nobody should confirm what is refused.
    if snapshot.metadata.kind != "savepoint":
        raise NotASavepoint(snapshot)
    if not yes:
        amount = size(snapshot.metadata.full_size_bytes)
        click.confirm(
            f"Dispose of the savepoint of job {snapshot.metadata.job!r} at {snapshot.url} ({amount})?", abort=True
        )
    count = dispose(snapshot)
    out.show({"path": snapshot.url, "objects": count}, Line(f"Savepoint '{snapshot.url}' disposed."))


@command.command("copy")
@click.argument("origin")
@click.argument("target")
@click.option(
    "--type",
    "form_of_state",
    cls=FlinkNamed,
    flink=["-type"],
    type=click.Choice(["canonical", "native"], case_sensitive=False),
    default="canonical",
    show_default=True,
    help="Canonical: tables that any tool can read and any backend can restore. Native: the backend's files.",
)
@click.option("--max-parallelism", type=int, help="Redistribute the key groups. Canonical only.")
@click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="Change the uid of an operator or source.")
@click.option(
    "--drop",
    "--drop-state",
    "drops",
    multiple=True,
    metavar="UID[/STATE]",
    help="Omit all state of an operator, or one of its states.",
)
@click.option(
    "--for",
    "job_file",
    type=click.Path(exists=True, dir_okay=False),
    help="Convert states to the names and types that the job in this file declares. Other types: canonical only.",
)
@with_output
def copy(
    out: Output,
    origin: str,
    target: str,
    form_of_state: str,
    max_parallelism: int | None,
    renames: tuple[str, ...],
    drops: tuple[str, ...],
    job_file: str | None,
) -> None:
    """Create a savepoint in the empty directory TARGET from the checkpoint or savepoint ORIGIN.

    ORIGIN may be a job file: then it is the snapshot that the next start of the job would use.
    """
    from tidegate.control.jobs.checkpoint_place import snapshot_of
    from tidegate.savepoint.changes import Changes
    from tidegate.savepoint.copy import copy_snapshot
    from tidegate.storage import open_storage

    snapshot = snapshot_of(origin)

    # All names on the command line are those of the origin, whatever is renamed by the same command.
    uids = dict(_pair(text) for text in renames)
    dropped = frozenset(_state(text) for text in drops)
    types: Any = {}
    if job_file:
        snapshot, types = _as_declared(snapshot, job_file, uids, dropped)
    changes = Changes(max_parallelism, uids, dropped, types)
    with out.progress("Copying", snapshot.metadata.full_size_bytes) as done:
        copied = copy_snapshot(snapshot, open_storage(target), form_of_state.upper(), changes, done)
    document = {
        "external_path": copied.url,
        "savepointFormat": copied.metadata.savepoint_format,
        "entries": copied.entries,
        "state_size": copied.metadata.full_size_bytes,
        "waiting_committables": copied.waiting_output,
    }
    warning = Line(
        f"{copied.waiting_output} pieces of output of that checkpoint may still be uncommitted: its own job "
        "commits them, not one that starts from the copy.",
        "yellow",
    )
    out.show(document, Line(f"Savepoint completed. Path: {copied.url}"), *([warning] if copied.waiting_output else []))


def _as_declared(
    snapshot: StoredSnapshot, job_file: str, uids: dict[str, str], drops: frozenset[tuple[str, str | None]]
) -> tuple[StoredSnapshot, Any]:
    """Return the snapshot with the names of states that the job declares, and the conversions to its types. `uids` and `drops`
    are in the uids of the snapshot."""
    from tidegate.control.jobs.job_file import declared, load_job
    from tidegate.savepoint.changes import ChangeRefused
    from tidegate.savepoint.compatibility import VerdictKind, conversions, judge
    from tidegate.savepoint.renames import DeclaredNames, carried_over

    job = load_job(job_file)

    # The job declares names under its own uids; the snapshot still has those from before `--rename`.
    names = DeclaredNames.of(job.graph()).states
    by_old_uid = {**names, **{old: names.get(new, {}) for old, new in uids.items()}}
    snapshot = replace(snapshot, metadata=carried_over(snapshot.metadata, DeclaredNames(by_old_uid)), layouts={})
    dropped = {(uids.get(uid, uid), state) for uid, state in drops if state is not None}
    now = declared(job, snapshot.metadata, uids, drops=dropped)
    refused = [v for v in judge(snapshot.metadata, now).verdicts if v.outcome is VerdictKind.INCOMPATIBLE and v.state]
    if refused:
        first = refused[0]
        raise ChangeRefused(
            f"State {first.state!r} of {first.uid!r} cannot be converted: {first.reason}. {first.advice}"
        )
    return snapshot, conversions(snapshot.metadata, now)


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise click.UsageError(f"--rename takes OLD=NEW, not {text!r}.")
    return old, new


def _state(text: str) -> tuple[str, str | None]:
    uid, slash, state = text.rpartition("/")
    return (uid, state) if slash else (text, None)
