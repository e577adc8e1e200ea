"""`tidegate run job.py`: a job with REST in its driver, ended in order by SIGTERM and SIGINT."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

import click

from tidegate.control.cli.main import speaks
from tidegate.control.cli.output import Line, Output
from tidegate.control.service import quietly
from tidegate.core.errors import TidegateError

FAILED_JOB = 1


class BadOption(TidegateError):
    code = "BAD_OPTION"


@click.command("run")
@click.argument("job_file", metavar="JOB.PY", type=click.Path(exists=True, dir_okay=False))
@click.option("-s", "--fromSavepoint", "path", help="Start from this checkpoint or savepoint: its folder or _metadata.")
@click.option("-n", "--allowNonRestoredState", "allow", is_flag=True, help="Drop state that the job does not claim.")
@click.option(
    "-cm", "--claimMode", "claim_mode", type=click.Choice(["claim", "no_claim"], case_sensitive=False),
    help="Who owns the snapshot afterwards.",
)  # fmt: skip
@click.option("--map-uid", "uids", multiple=True, metavar="OLD=NEW", help="The operator OLD is called NEW now.")
@click.option("--renamed", multiple=True, metavar="UID/STATE:OLD=NEW", help="A field of a state got another name.")
@click.option("-p", "--parallelism", type=int, help="Slots of every level.")
@click.option("-D", "settings", multiple=True, metavar="KEY=VALUE", help="Any option by its key.")
@click.option("--trigger", help="How often an epoch begins: '5 s', 'available-now'; without it, as often as possible.")
@click.option("--fresh", is_flag=True, help="Give up the job's history and begin anew.")
@click.option("--force", is_flag=True, help="Take the job over from a driver that seems to live and hangs.")
@speaks
def command(
    out: Output, job_file: str, path: str | None, allow: bool, claim_mode: str | None, uids: tuple[str, ...],
    renamed: tuple[str, ...], parallelism: int | None, settings: tuple[str, ...], trigger: str | None, fresh: bool, force: bool,
) -> int:  # fmt: skip
    """Run the job that JOB.PY declares, until it ends or is stopped.

    JOB.PY has a function build(spark) that returns the Job. Exit code 0: finished, stopped or cancelled; 1: it failed;
    3: it could not be started.
    """
    from tidegate.control.job_file import load_job, module_of
    from tidegate.control.rest import serve
    from tidegate.runtime.program import ship_by_value

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    options = dict(map(_setting, settings))
    if path:
        options["execution.state-recovery.path"] = path
    if allow:
        options["execution.state-recovery.ignore-unclaimed-state"] = "true"
    if claim_mode:
        options["execution.state-recovery.claim-mode"] = claim_mode.upper()
    if uids:
        options["execution.state-recovery.map-uids"] = ", ".join(uids)
    if renamed:
        options["execution.state-recovery.renamed-fields"] = ", ".join(renamed)
    port = int(options.pop("rest.port", "8081"))
    host = options.pop("rest.bind-address", "127.0.0.1")
    token = options.pop("rest.token", None)
    job = load_job(job_file)
    ship_by_value(module_of(job_file))
    if parallelism is not None:
        job.parallelism = parallelism
    run = job.start(trigger=trigger, options=options, fresh=fresh, force=force)
    server = serve(run, host=host, port=port, token=token)
    stop_on_signals(run)
    out.show({"jobid": str(run.lineage), "rest": server.url}, Line(f"Job has been submitted with JobID {run.lineage}"))
    try:
        run.await_termination()
    except TidegateError as error:
        click.secho(f"{error.code}: {error}", fg="red", err=True)
        return FAILED_JOB
    finally:
        server.close()
    click.echo(f"Job {run.lineage} is {run.status}.", err=True)
    return 0


def stop_on_signals(run: Any) -> None:
    """SIGTERM and SIGINT finish the epoch, take a last checkpoint, and end the job. A second one does not wait."""

    def end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        threading.Thread(target=quietly(run.stop), name="tidegate-stop", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise BadOption(f"-D takes KEY=VALUE, not {text!r}.")
    return key, value
