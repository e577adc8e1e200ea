"""`tidegate run job.py`: a job with REST in its driver, stopped gracefully by SIGTERM and SIGINT."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tidegate.config.effective import CommandLineOptions
from tidegate.config.file import SERVER_KEYS, shared_options
from tidegate.control.cli.main import speaks
from tidegate.control.cli.output import BadOption, Line, Output
from tidegate.core.durations import duration_ms
from tidegate.core.log_setup import FORMAT_VARIABLE, FORMATS, speak
from tidegate.core.redaction import redacted
from tidegate.runtime.driver.ending import STOP_WITHIN, Ending

SAVEPOINT_DIR = "execution.checkpointing.savepoint-dir"


_LINGER_S = 10.0
"""How long REST outlives the job for clients that wait for a result. They poll five times a second."""


@click.command("run")
@click.argument("job_file", metavar="JOB.PY", type=click.Path(exists=True, dir_okay=False))
@click.option("-s", "--fromSavepoint", "path", help="Start from this checkpoint or savepoint: its folder or _metadata.")
@click.option("-n", "--allowNonRestoredState", "allow", is_flag=True, help="Drop state that the job does not declare.")
@click.option("--strict", is_flag=True, help="Refuse a snapshot of another job whose output may not be published.")
@click.option(
    "-cm", "--claimMode", "claim_mode", type=click.Choice(["claim", "no_claim"], case_sensitive=False),
    help="Who owns the snapshot afterwards.",
)  # fmt: skip
@click.option("--map-uid", "uids", multiple=True, metavar="OLD=NEW", help="The operator OLD is now called NEW.")
@click.option("--renamed", multiple=True, metavar="UID/STATE:OLD=NEW", help="A field of a state was renamed.")
@click.option("-p", "--parallelism", type=int, help="Slots of every level.")
@click.option("-D", "settings", multiple=True, metavar="KEY=VALUE", help="Any option by its key.")
@click.option("--trigger", help="How often an epoch starts: '5 s', 'available-now'; by default, as often as possible.")
@click.option(
    "--drain", is_flag=True, help="With 'available-now': after the last row, close all windows and finish the job."
)
@click.option("--fresh", is_flag=True, help="Abandon the job's history and start over.")
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
    renamed: tuple[str, ...], parallelism: int | None, settings: tuple[str, ...], trigger: str | None, drain: bool, fresh: bool,
    force: bool, stop_within: str, savepoint_on_stop: bool, allow_actions: bool, show_values: bool, log_format: str | None,
) -> int:  # fmt: skip
    """Run the job that JOB.PY declares, until it ends or is stopped.

    JOB.PY has a function build(spark) that returns the Job. It may also hold `checkpoint = tg.Checkpointing(…)`, which -D
    overrides option by option. SIGTERM and SIGINT let the epoch finish and take a last checkpoint, or a savepoint.

    Exit code 0: finished, or stopped gracefully; 1: it failed; 3: it could not be started; 4: cancelled; 5: asked to stop,
    and not done in time; 6: another driver took over the job.
    """
    from tidegate.control.job_file import checkpoint_of, load_job, module_of
    from tidegate.control.rest import serve
    from tidegate.runtime.driver.own_modules import ship_own_modules
    from tidegate.runtime.driver.pickling import ship_by_value

    options = CommandLineOptions(map(_setting, settings))
    shared = shared_options()
    if log_format:
        options["log.format"] = log_format
    speak(format=options.get("log.format", shared.get("log.format")))
    server_options = {key: options.pop(key, shared.get(key, "")) for key in SERVER_KEYS}
    port = server_options["rest.port"] or "8081"
    if not port.isdecimal():
        raise BadOption(f"rest.port must be a number, 0 for any free port, not {port!r}.")
    if "rest.token" in options:
        raise BadOption("Every user of this machine can read a token on the command line. Set TIDEGATE_TOKEN instead.")
    if path:
        options["execution.state-recovery.path"] = snapshot_path(path)
    if allow:
        options["execution.state-recovery.ignore-unclaimed-state"] = "true"
    if strict:
        options["execution.output.refuse-unpublished"] = "true"
    if claim_mode:
        options["execution.state-recovery.claim-mode"] = claim_mode.upper()
    if uids:
        options["execution.state-recovery.map-uids"] = ", ".join(uids)
    if renamed:
        options["execution.state-recovery.renamed-fields"] = ", ".join(renamed)
    job = load_job(job_file)
    ship_by_value(module_of(job_file))
    ship_own_modules(str(Path(job_file).parent))
    if parallelism is not None:
        job.parallelism = parallelism
    within_s = duration_ms(stop_within) / 1000
    run = job.start(
        checkpoint=checkpoint_of(job_file), trigger=trigger, drain=drain, options=options, fresh=fresh, force=force
    )
    if savepoint_on_stop and (run.checkpoint_config is None or run.checkpoint_config.savepoint_dir is None):
        run.cancel()
        raise BadOption(f"--savepoint-on-stop needs a directory for savepoints: -D{SAVEPOINT_DIR}=PATH.")
    ending = Ending(run=run, within_s=within_s, savepoint=savepoint_on_stop)
    with ending.listening():
        server = serve(
            run,
            host=server_options["rest.bind-address"] or "127.0.0.1",
            port=int(port),
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
    click.echo(f"Job {run.lineage} is {run.status}.", err=True)
    return code


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
