"""The verbs on running jobs: list, checkpoint, rescale, stop, cancel, and savepoint JOB. Flags and phrases are Flink's."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from tidegate.config.errors import OptionError
from tidegate.config.file import shared_options
from tidegate.control.cli.flink_flags import FlinkNamed
from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import Line, Output
from tidegate.control.rest.addresses import WILDCARDS, host_and_port, plain_host
from tidegate.control.rest.client import DEFAULT_ADDRESS, Client


def at(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-m` to a command: the address of the job's driver."""
    return click.option(
        "-m",
        "--jobmanager",
        "address",
        show_default=DEFAULT_ADDRESS,
        envvar="TIDEGATE_REST",
        callback=_address,
        help="Address of the driver's REST server.",
    )(function)


def _address(ctx: click.Context, parameter: click.Parameter, address: str | None) -> str:
    """Return the address on the command line, else the one in the configuration for all jobs."""
    if address:
        return address
    try:
        shared = shared_options()
    except OptionError as error:
        raise click.UsageError(str(error)) from None
    # The same file that a driver reads for its server, so that both agree without -m.
    host, port = DEFAULT_ADDRESS.split(":")
    bound = plain_host(shared.get("rest.bind-address", host))
    # Bound to a name or to everything, the server answers at the loopback address.
    reached = host if bound == "localhost" else WILDCARDS.get(bound, bound)
    return host_and_port(reached, shared.get("rest.port", port))


def typed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--type` to a command: the format of the savepoint."""
    return click.option(
        "--type",
        "format",
        cls=FlinkNamed,
        flink=["-type"],
        type=click.Choice(["canonical", "native"], case_sensitive=False),
        default="canonical",
        show_default=True,
        help="Tables that any backend can restore, or the backend's own files.",
    )(function)


def detachable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--detached` to a command."""
    return click.option(
        "--detached", "detached", cls=FlinkNamed, flink=["-detached"], is_flag=True, help="Do not wait."
    )(function)


@click.command("list")
@click.option("-r", "--running", is_flag=True, help="Only running jobs.")
@click.option("-a", "--all", "everything", is_flag=True, help="Also jobs that have ended.")
@at
@with_output
def list_jobs(out: Output, address: str, running: bool, everything: bool) -> None:
    """List the jobs at an address."""
    jobs = Client(address).jobs()
    if running and not everything:
        jobs = [job for job in jobs if job["state"] == "RUNNING"]
    # Lines and phrases below are those of Flink's CLI, mistakes included: scripts look for them.
    lines = [Line(f"{_time(job['start-time'])} : {job['jid']} : {job['name']} ({job['state']})") for job in jobs]
    out.show({"jobs": jobs}, *(lines or [Line("No jobs.")]))


@click.command("checkpoint")
@click.argument("job")
@click.option(
    "--full",
    "full",
    cls=FlinkNamed,
    flink=["-full"],
    is_flag=True,
    help="Store every file again, including those that earlier checkpoints have.",
)
@at
@with_output
def checkpoint(out: Output, address: str, job: str, full: bool) -> None:
    """Take a checkpoint of JOB now."""
    client = Client(address)
    # CONFIGURED leaves it to `execution.checkpointing.incremental`.
    body = {"checkpointType": "FULL" if full else "CONFIGURED"}
    trigger = client.ask("POST", f"/jobs/{job}/checkpoints", body)["request-id"]
    done = client.await_operation(f"/jobs/{job}/checkpoints/{trigger}", "failureCause")
    kind = "(FULL)" if full else ""
    out.show(done, Line(f"Checkpoint{kind} {done['checkpointId']} for job {job} completed."))


@click.command("stop")
@click.argument("job")
@click.option(
    "--savepoint-path",
    "target",
    cls=FlinkNamed,
    flink=["-p", "--savepointPath"],
    help="Directory for the savepoint; defaults to the configured one.",
)
@click.option(
    "--drain",
    cls=FlinkNamed,
    flink=["-d"],
    is_flag=True,
    help="Let all event time pass first: timers fire, windows close.",
)
@typed
@detachable
@at
@with_output
def stop(out: Output, address: str, job: str, target: str | None, drain: bool, format: str, detached: bool) -> None:
    """Stop JOB with a savepoint."""
    client = Client(address)
    body = {"targetDirectory": target, "drain": drain, "formatType": format.upper()}
    trigger = client.ask("POST", f"/jobs/{job}/stop", body)["request-id"]
    if detached:
        out.show({"request-id": trigger}, Line(f"Successfully trigger stop-with-savepoint, triggerId: {trigger}"))
        return
    done = client.await_operation(f"/jobs/{job}/savepoints/{trigger}", "failure-cause")
    out.show(done, Line(f"Savepoint completed. Path: {done['location']}"))


@click.command("rescale")
@click.argument("job")
@click.option("-p", "--parallelism", type=int, required=True, help="The number of slots to continue with.")
@detachable
@at
@with_output
def rescale(out: Output, address: str, job: str, parallelism: int, detached: bool) -> None:
    """Continue JOB with another parallelism, in the same driver, from a checkpoint of its running epoch."""
    client = Client(address)
    # Flink's REST returns no id for a rescale. Ours is the one that the history does not have yet.
    before = {each["rescaleUuid"] for each in client.ask("GET", f"/jobs/{job}/rescales/history")}
    vertices = client.ask("GET", f"/jobs/{job}/resource-requirements")
    # The lower bound has no effect here, since a job waits for no slots.
    bounds = {"parallelism": {"lowerBound": 1, "upperBound": parallelism}}
    client.ask("PUT", f"/jobs/{job}/resource-requirements", dict.fromkeys(vertices, bounds))
    if detached:
        out.show({"parallelism": parallelism}, Line(f"Triggered the rescale of job {job} to {parallelism}."))
        return
    done = client.await_rescale(f"/jobs/{job}/rescales", before)
    # The first phase is Executing: a checkpoint is taken while the job runs on.
    pause_ms = sum(span["durationInMillis"] for span in done["schedulerStates"][1:])
    out.show(done, Line(f"Job {job} runs with parallelism {parallelism} after a pause of {pause_ms} ms."))


@click.command("cancel")
@click.argument("job")
@at
@with_output
def cancel(out: Output, address: str, job: str) -> None:
    """Cancel JOB. Its next start continues from its last checkpoint."""
    Client(address).ask("PATCH", f"/jobs/{job}?mode=cancel", {})
    out.show({"job": job}, Line(f"Cancelled job {job}."))


@click.command("take", hidden=True)
@click.argument("job")
@click.argument("target", required=False)
@typed
@detachable
@at
@with_output
def take_savepoint(out: Output, address: str, job: str, target: str | None, format: str, detached: bool) -> None:
    """Take a savepoint of JOB in a new folder below TARGET, without stopping it."""
    client = Client(address)
    body = {"target-directory": target, "formatType": format.upper()}
    trigger = client.ask("POST", f"/jobs/{job}/savepoints", body)["request-id"]
    if detached:
        out.show({"request-id": trigger}, Line(f"Successfully trigger manual savepoint, triggerId: {trigger}"))
        return
    done = client.await_operation(f"/jobs/{job}/savepoints/{trigger}", "failure-cause")
    out.show(done, Line(f"Savepoint completed. Path: {done['location']}"))


def _time(ms: int) -> str:
    # Flink's format, in local time.
    return time.strftime("%d.%m.%Y %H:%M:%S", time.localtime(ms / 1000))
