"""`tidegate run job.py`: a job with REST in its driver, stopped gracefully by SIGTERM and SIGINT."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidegate.config.effective import CommandLineOptions
from tidegate.config.file import SERVER_KEYS, shared_options
from tidegate.control.cli.flink_flags import FlinkNamed
from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import BadOption, Line, Output
from tidegate.control.cli.recovery_flags import recovery_flags, recovery_options
from tidegate.core.durations import duration_ms
from tidegate.core.errors import PreconditionFailed
from tidegate.core.log_setup import FORMAT_VARIABLE, FORMATS, configure_logging
from tidegate.core.redaction import redacted
from tidegate.runtime.driver.ending import STOP_WITHIN, Ending
from tidegate.runtime.epochs.run_options import RunOptions

if TYPE_CHECKING:
    from tidegate.runtime.driver.job_run import JobRun

SAVEPOINT_DIR = "execution.checkpointing.savepoint-dir"
_METADATA = "_metadata"
_SHOWN_SNAPSHOTS = 3
_SEARCHED_DEPTH = 2
"""From a checkpoint directory through the directory of a job to a checkpoint. Deeper, a search could take long."""
_LINGER_S = 10.0
"""How long REST outlives the job for clients that wait for a result. They poll five times a second."""
_ABANDONS = ("--fresh", "--force")
"""Never suggested for a mistyped option: they give up the job's history, or its driver."""


class _RunCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            possible = [each for each in error.possibilities or () if each not in _ABANDONS]
            message = error.message
            if error.option_name in ("--rest", "--rest-port", "--port"):
                message += " The port of the REST server and the web UI is an option of the job: -Drest.port=8081."
            raise click.NoSuchOption(error.option_name, message, possible, ctx) from None


@click.command("run", cls=_RunCommand)
@click.argument("job_file", metavar="JOB.PY", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-s",
    "--from-savepoint",
    "path",
    cls=FlinkNamed,
    flink=["--fromSavepoint"],
    help="Start from this checkpoint or savepoint: its folder or _metadata.",
)
@click.option("--strict", is_flag=True, help="Refuse a snapshot of another job that may hold uncommitted output.")
@click.option(
    "--claim-mode",
    "claim_mode",
    cls=FlinkNamed,
    flink=["-cm", "--claimMode"],
    type=click.Choice(["claim", "no_claim"], case_sensitive=False),
    help="Who owns the snapshot afterwards.",
)
@recovery_flags
@click.option("-p", "--parallelism", type=click.IntRange(min=1), help="Slots of every level.")
@click.option("-D", "settings", multiple=True, metavar="KEY=VALUE", help="Any option by its key.")
@click.option("--trigger", help="How often an epoch starts: '5 s', 'available-now'; by default, as often as possible.")
@click.option(
    "--drain", is_flag=True, help="With 'available-now': after the last row, close all windows and finish the job."
)
@click.option("--fresh", is_flag=True, help="Abandon the job's history and start over.")
@click.option(
    "--accept-foreign-output",
    "accept",
    is_flag=True,
    help="Continue although a target has output that the checkpoint directory does not know.",
)
@click.option(
    "--accept-moved-directory",
    "moved",
    is_flag=True,
    help="Continue although the checkpoint directory is not where the last run used it.",
)
@click.option("--force", is_flag=True, help="Take over the job from a driver that hangs but seems alive.")
@click.option(
    "--stop-within",
    default=STOP_WITHIN,
    show_default=True,
    help="How long SIGTERM and SIGINT wait for a graceful stop.",
)
@click.option("--savepoint-on-stop", is_flag=True, help="SIGTERM and SIGINT end the job with a savepoint.")
@click.option("--allow-actions", is_flag=True, help="Let the web UI take savepoints, stop and cancel the job.")
@click.option("--show-values", is_flag=True, help="Let the web UI show keys and values of state.")
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    envvar=FORMAT_VARIABLE,
    help="Lines for people, or one JSON object each, with job, term and epoch.",
)
@with_output
def command(out: Output, **flags: Any) -> int:
    """Run the job that JOB.PY declares, until it ends or is stopped.

    JOB.PY has a function build(spark) that returns the Job. It may also hold `checkpoint = tg.Checkpointing(…)`, which -D
    overrides option by option. SIGTERM and SIGINT let the epoch finish and take a last checkpoint, or a savepoint.

    Exit code 0: finished, or stopped gracefully; 1: it failed; 3: it could not be started; 4: cancelled; 5: asked to stop,
    and not done in time; 6: another driver took over the job.
    """
    from tidegate.control.jobs.job_file import checkpoint_of, load_job, module_of
    from tidegate.control.rest.server import listen, serve
    from tidegate.runtime.epochs.own_modules import ship_own_modules
    from tidegate.runtime.epochs.pickling import ship_by_value

    line = _CommandLine(**flags)
    options = CommandLineOptions(map(_setting, line.settings))
    shared = shared_options()

    # Before anything is logged, so that the first line already has the format that was asked for.
    if line.log_format:
        options["log.format"] = line.log_format
    log_format = options.get("log.format", shared.get("log.format"))
    configure_logging(format=log_format)
    server_options = _take_server_options(options, shared)
    _add_flags(options, line)
    within_s = _seconds("--stop-within", line.stop_within)

    # The port is taken before the file is imported: a taken one should not be noticed after minutes of restoring. Clients that
    # connect meanwhile wait until the server answers.
    host = server_options["rest.bind-address"] or "127.0.0.1"
    port = server_options["rest.port"]
    listening = click.get_current_context().with_resource(listen(host, int(port) if port else None))

    def check() -> None:
        # `load_job` calls this once the file is imported: only then is its `checkpoint` known.
        run_options = RunOptions(
            parallelism=line.parallelism,
            checkpoint=checkpoint_of(line.job_file),
            trigger=line.trigger,
            drain=line.drain,
            options=options,
            fresh=line.fresh,
            force=line.force,
        )
        check_before_spark(run_options, needs_savepoints=line.savepoint_on_stop)

    job = load_job(line.job_file, before_spark=check)

    # Executors have neither the job file nor the modules next to it.
    ship_by_value(module_of(line.job_file))
    ship_own_modules(str(Path(line.job_file).parent))
    if line.parallelism is not None:
        job.parallelism = line.parallelism
    run = job.start(
        checkpoint=checkpoint_of(line.job_file),
        trigger=line.trigger,
        drain=line.drain,
        options=options,
        fresh=line.fresh,
        force=line.force,
    )
    ending = Ending(run=run, within_s=within_s, savepoint=line.savepoint_on_stop)
    with ending.listening():
        server = serve(
            run,
            host=host,
            listening=listening,
            allowed_hosts=server_options["rest.allowed-hosts"].split(","),
            allow_actions=line.allow_actions,
            show_values=line.show_values,
        )
        token_file = str(server.token_files[0]) if server.token_files else None
        submitted = {"jobid": str(run.lineage), "rest": server.url, "token-file": token_file}
        out.show(submitted, Line(f"Job has been submitted with JobID {run.lineage}"))
        # Only for a person: the address contains the token, which a log file should not.
        if sys.stderr.isatty():
            click.echo(f"Watch it at {server.ui_url}", err=True)
        # A program that reads our output through a pipe needs the address now, not when the job ends.
        sys.stdout.flush()
        code = ending.wait()
        server.linger(_LINGER_S)
        server.close()

    # With JSON the log has said all that follows, and its readers expect JSON in every line.
    if log_format != "json":
        _print_end(run, ending)
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommandLine:
    """What the user typed: an attribute for each parameter that is declared above, under the same name."""

    job_file: str
    path: str | None
    strict: bool
    claim_mode: str | None
    allow: bool
    uids: tuple[str, ...]
    renamed: tuple[str, ...]
    drops: tuple[str, ...]
    parallelism: int | None
    settings: tuple[str, ...]
    trigger: str | None
    drain: bool
    fresh: bool
    accept: bool
    moved: bool
    force: bool
    stop_within: str
    savepoint_on_stop: bool
    allow_actions: bool
    show_values: bool
    log_format: str | None


def _take_server_options(options: CommandLineOptions, shared: Mapping[str, str]) -> dict[str, str]:
    """Move the options of the REST server out of `options`: they are not the job's. Raises `BadOption`."""
    server_options = {key: options.pop(key, shared.get(key, "")) for key in SERVER_KEYS}
    port = server_options["rest.port"]
    if port and not port.isdecimal():
        raise BadOption(f"rest.port must be a number, 0 for any free port, not {port!r}.")
    if "rest.token" in options:
        raise BadOption("Every user of this machine can read a token on the command line. Set TIDEGATE_TOKEN instead.")
    return server_options


def _add_flags(options: CommandLineOptions, line: _CommandLine) -> None:
    """Add what flags say as the options that they stand for. A flag wins over the same option given with -D."""
    if line.path:
        options["execution.state-recovery.path"] = snapshot_path(line.path)
    if line.accept:
        options["execution.state-recovery.accept-foreign-output"] = "true"
    if line.moved:
        options["execution.state-recovery.accept-moved-directory"] = "true"
    if line.strict:
        options["execution.output.refuse-unpublished"] = "true"
    if line.claim_mode:
        options["execution.state-recovery.claim-mode"] = line.claim_mode.upper()
    options.update(recovery_options(line.allow, line.uids, line.renamed, line.drops))


def _seconds(flag: str, text: str) -> float:
    try:
        return duration_ms(text) / 1000
    except ValueError as error:
        raise BadOption(f"{flag}: {error}.") from None


def _print_end(run: JobRun, ending: Ending) -> None:
    # Late, for start-up time: `tidegate --help` needs none of this.
    from tidegate.runtime.monitoring.health import end_text

    if ending.path:
        click.echo(f"Savepoint completed. Path: {ending.path}", err=True)
    if ending.problem:
        click.secho(redacted(ending.problem), fg="red", err=True)
    click.echo(f"Job {run.lineage} has ended: {end_text(run.report())}.", err=True)


def check_before_spark(run_options: RunOptions, *, needs_savepoints: bool) -> None:
    """Refuse a start that cannot succeed, before a Spark session is made, which takes seconds.

    Checks options, the trigger, whether storage accepts checkpoints, and the snapshot to start from. Changes nothing, except
    that missing local directories are created. The targets of sinks are checked later: `build` declares them, and it needs the
    session.
    """
    # Late, for start-up time: `tidegate --help` needs none of this.
    from tidegate.runtime.epochs.settings import read_settings
    from tidegate.runtime.epochs.trigger import EpochTrigger
    from tidegate.storage import open_storage, probe
    from tidegate.storage.probe import check_folder

    EpochTrigger.parse(run_options.trigger, run_options.drain, "--trigger")
    _, durability = read_settings(1, run_options)
    if needs_savepoints and durability is None:
        raise BadOption(
            "--savepoint-on-stop needs checkpoints, and this job takes none: -Dexecution.checkpointing.dir=PATH "
            f"-Dexecution.checkpointing.interval='10 s' -D{SAVEPOINT_DIR}=PATH."
        )
    if needs_savepoints and durability is not None and durability.checkpoints.savepoint_dir is None:
        raise BadOption(f"--savepoint-on-stop needs a directory for savepoints: -D{SAVEPOINT_DIR}=PATH.")
    if durability is not None:
        archive = durability.archive
        probe(open_storage(archive.url, **archive.options))
        _check_snapshot(durability.recovery.path)
        savepoints = durability.checkpoints.savepoint_dir
        if savepoints is not None and ("://" not in savepoints or savepoints.startswith("file:")):
            check_folder(open_storage(savepoints).url, "Savepoints")


def _check_snapshot(path: str | None) -> None:
    """Refuse an absolute local path without a snapshot. A relative one may be below the directory of the job, whose name is
    known only after it is built, which needs Spark.
    """
    if path is None or "://" in path or not Path(path).is_absolute():
        return
    place = Path(path)
    if (place / _METADATA).is_file() or (place.is_file() and place.name == _METADATA):
        return
    if not place.exists():
        why = "there is no such directory"
    elif place.is_dir():
        why = f"the directory has no file {_METADATA}"
    else:
        why = f"it is a file, and not a {_METADATA}"
    raise PreconditionFailed(f"{path} is no checkpoint or savepoint: {why}. {_other_snapshots(place)}")


def _other_snapshots(place: Path) -> str:
    """Say which snapshots the user may have meant: the newest ones below this directory."""
    dated: list[tuple[float, str]] = []
    for folder, folders, files in os.walk(place):
        if _METADATA in files:
            dated.append((os.path.getmtime(os.path.join(folder, _METADATA)), folder))
        if _METADATA in files or len(Path(folder).relative_to(place).parts) >= _SEARCHED_DEPTH:
            folders.clear()  # of this list: os.walk goes into what is left
    if not dated:
        return f"Give the directory of one, or its {_METADATA}, to -s."
    newest = [folder for _, folder in sorted(dated, reverse=True)]
    more = f" and {len(newest) - _SHOWN_SNAPSHOTS} more" if len(newest) > _SHOWN_SNAPSHOTS else ""
    return f"Below it are {', '.join(newest[:_SHOWN_SNAPSHOTS])}{more}. Give one of them to -s."


def snapshot_path(text: str) -> str:
    """Resolve the path given with `-s`, relative to the current directory as in a shell. A path that does not exist there stays
    as it is: it may be relative to the checkpoint directory.
    """
    return text if "://" in text or not Path(text).exists() else str(Path(text).absolute())


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise BadOption(f"-D takes KEY=VALUE, not {text.partition('=')[0][:80]!r}.")
    return key, value
