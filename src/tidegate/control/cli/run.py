"""`tidegate run job.py`: a job with REST in its driver, stopped gracefully by SIGTERM and SIGINT."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tidegate.config import Checkpointing
from tidegate.config.effective import CommandLineOptions
from tidegate.config.file import SERVER_KEYS, shared_options
from tidegate.control.cli.flink_flags import FlinkNamed
from tidegate.control.cli.main import speaks
from tidegate.control.cli.output import BadOption, Line, Output
from tidegate.control.cli.recovery_flags import recovery_flags, recovery_options
from tidegate.core.durations import duration_ms
from tidegate.core.errors import PreconditionFailed
from tidegate.core.log_setup import FORMAT_VARIABLE, FORMATS, speak
from tidegate.core.redaction import redacted
from tidegate.runtime.driver.ending import STOP_WITHIN, Ending

SAVEPOINT_DIR = "execution.checkpointing.savepoint-dir"


_LINGER_S = 10.0
"""How long REST outlives the job for clients that wait for a result. They poll five times a second."""


@click.command("run")
@click.argument("job_file", metavar="JOB.PY", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "-s", "--from-savepoint", "path", cls=FlinkNamed, flink=["--fromSavepoint"],
    help="Start from this checkpoint or savepoint: its folder or _metadata.",
)  # fmt: skip
@click.option("--strict", is_flag=True, help="Refuse a snapshot of another job whose output may not be published.")
@click.option(
    "--claim-mode", "claim_mode", cls=FlinkNamed, flink=["-cm", "--claimMode"],
    type=click.Choice(["claim", "no_claim"], case_sensitive=False), help="Who owns the snapshot afterwards.",
)  # fmt: skip
@recovery_flags
@click.option("-p", "--parallelism", type=int, help="Slots of every level.")
@click.option("-D", "settings", multiple=True, metavar="KEY=VALUE", help="Any option by its key.")
@click.option("--trigger", help="How often an epoch starts: '5 s', 'available-now'; by default, as often as possible.")
@click.option(
    "--drain", is_flag=True, help="With 'available-now': after the last row, close all windows and finish the job."
)
@click.option("--fresh", is_flag=True, help="Abandon the job's history and start over.")
@click.option(
    "--accept-foreign-output", "accept", is_flag=True,
    help="Continue although a target has output that the checkpoint directory does not know.",
)  # fmt: skip
@click.option(
    "--accept-moved-directory", "moved", is_flag=True,
    help="Continue although the checkpoint directory is not where the last run used it.",
)  # fmt: skip
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
    "--log-format", type=click.Choice(FORMATS), envvar=FORMAT_VARIABLE,
    help="Lines for people, or one JSON object each, with job, term and epoch.",
)  # fmt: skip
@speaks
def command(  # noqa: C901, PLR0913 one parameter for each option
    out: Output, job_file: str, path: str | None, allow: bool, strict: bool, claim_mode: str | None, uids: tuple[str, ...],
    renamed: tuple[str, ...], drops: tuple[str, ...], parallelism: int | None, settings: tuple[str, ...], trigger: str | None,
    drain: bool, fresh: bool, accept: bool, moved: bool, force: bool, stop_within: str, savepoint_on_stop: bool,
    allow_actions: bool, show_values: bool, log_format: str | None,
) -> int:  # fmt: skip
    """Run the job that JOB.PY declares, until it ends or is stopped.

    JOB.PY has a function build(spark) that returns the Job. It may also hold `checkpoint = tg.Checkpointing(…)`, which -D
    overrides option by option. SIGTERM and SIGINT let the epoch finish and take a last checkpoint, or a savepoint.

    Exit code 0: finished, or stopped gracefully; 1: it failed; 3: it could not be started; 4: cancelled; 5: asked to stop,
    and not done in time; 6: another driver took over the job.
    """
    from tidegate.control.job_file import checkpoint_of, load_job, module_of
    from tidegate.control.rest import listen, serve
    from tidegate.runtime.epochs.own_modules import ship_own_modules
    from tidegate.runtime.epochs.pickling import ship_by_value
    from tidegate.runtime.monitoring.health import end_text

    options = CommandLineOptions(map(_setting, settings))
    shared = shared_options()
    if log_format:
        options["log.format"] = log_format
    speak(format=options.get("log.format", shared.get("log.format")))
    server_options = {key: options.pop(key, shared.get(key, "")) for key in SERVER_KEYS}
    port = server_options["rest.port"]
    if port and not port.isdecimal():
        raise BadOption(f"rest.port must be a number, 0 for any free port, not {port!r}.")
    if "rest.token" in options:
        raise BadOption("Every user of this machine can read a token on the command line. Set TIDEGATE_TOKEN instead.")
    if path:
        options["execution.state-recovery.path"] = snapshot_path(path)
    if accept:
        options["execution.state-recovery.accept-foreign-output"] = "true"
    if moved:
        options["execution.state-recovery.accept-moved-directory"] = "true"
    if strict:
        options["execution.output.refuse-unpublished"] = "true"
    if claim_mode:
        options["execution.state-recovery.claim-mode"] = claim_mode.upper()
    options.update(recovery_options(allow, uids, renamed, drops))
    try:
        within_s = duration_ms(stop_within) / 1000
    except ValueError as error:
        raise BadOption(f"--stop-within: {error}.") from None
    host = server_options["rest.bind-address"] or "127.0.0.1"
    listening = click.get_current_context().with_resource(listen(host, int(port) if port else None))

    def check() -> None:
        check_before_spark(
            checkpoint_of(job_file), options, parallelism, needs_savepoints=savepoint_on_stop, trigger=trigger, drain=drain,
            fresh=fresh, force=force,
        )  # fmt: skip

    job = load_job(job_file, before_spark=check)
    ship_by_value(module_of(job_file))
    ship_own_modules(str(Path(job_file).parent))
    if parallelism is not None:
        job.parallelism = parallelism
    run = job.start(
        checkpoint=checkpoint_of(job_file), trigger=trigger, drain=drain, options=options, fresh=fresh, force=force
    )
    ending = Ending(run=run, within_s=within_s, savepoint=savepoint_on_stop)
    with ending.listening():
        server = serve(
            run,
            host=host,
            listening=listening,
            allowed_hosts=server_options["rest.allowed-hosts"].split(","),
            allow_actions=allow_actions,
            show_values=show_values,
        )
        kept = str(server.token_files[0]) if server.token_files else None
        submitted = {"jobid": str(run.lineage), "rest": server.url, "token-file": kept}
        out.show(submitted, Line(f"Job has been submitted with JobID {run.lineage}"))
        if sys.stderr.isatty():
            click.echo(f"Watch it at {server.ui_url}", err=True)
        sys.stdout.flush()
        code = ending.wait()
        server.linger(_LINGER_S)
        server.close()
    if options.get("log.format", shared.get("log.format")) == "json":
        return code  # The log has said all of this, and its readers expect JSON in every line.
    if ending.path:
        click.echo(f"Savepoint completed. Path: {ending.path}", err=True)
    if ending.problem:
        click.secho(redacted(ending.problem), fg="red", err=True)
    click.echo(f"Job {run.lineage} has ended: {end_text(run.report())}.", err=True)
    return code


def check_before_spark(
    checkpoint: Checkpointing | str | None, options: CommandLineOptions, parallelism: int | None, *, needs_savepoints: bool,
    trigger: str | None, drain: bool, fresh: bool, force: bool,
) -> None:  # fmt: skip
    """Refuse a start that cannot succeed before a Spark session is made, which takes long: check options, the trigger, that
    storage accepts checkpoints, and the snapshot to start from. Changes nothing, but creates local directories that are missing.
    Targets are checked later: which ones there are, `build` says, and it needs the session.
    """
    # Late, for start-up time: `tidegate --help` needs none of this.
    from tidegate.runtime.epochs.settings import read_settings
    from tidegate.runtime.epochs.trigger import EpochTrigger
    from tidegate.storage import open_storage, probe
    from tidegate.storage.probe import check_folder

    EpochTrigger.parse(trigger, drain)
    _, durability = read_settings(
        1,
        parallelism=parallelism,
        max_parallelism=None,
        checkpoint=checkpoint,
        options=options,
        fresh=fresh,
        force=force,
    )
    if needs_savepoints and (durability is None or durability.checkpoints.savepoint_dir is None):
        raise BadOption(f"--savepoint-on-stop needs a directory for savepoints: -D{SAVEPOINT_DIR}=PATH.")
    if durability is not None:
        archive = durability.archive
        probe(open_storage(archive.url, **archive.options))
        _check_snapshot(durability.recovery.path)
        savepoints = durability.checkpoints.savepoint_dir
        if savepoints is not None and ("://" not in savepoints or savepoints.startswith("file:")):
            check_folder(open_storage(savepoints).url)


def _check_snapshot(path: str | None) -> None:
    """Refuse an absolute local path without a snapshot. Others may be relative to the directory of the job, whose name is known
    only after it is built, which needs Spark.
    """
    if path is None or "://" in path or not Path(path).is_absolute():
        return
    if not (Path(path) / "_metadata").is_file() and not (Path(path).is_file() and Path(path).name == "_metadata"):
        raise PreconditionFailed(
            f"{path} is no checkpoint or savepoint: it has no file _metadata. Give the directory of one, or its _metadata, to -s."
        )


def snapshot_path(text: str) -> str:
    """Resolve the path given with `-s`: relative to the current directory, as usual in a shell. If nothing exists there, it
    may still be relative to the checkpoint directory.
    """
    return text if "://" in text or not Path(text).exists() else str(Path(text).absolute())


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise BadOption(f"-D takes KEY=VALUE, not {text.partition('=')[0][:80]!r}.")
    return key, value
