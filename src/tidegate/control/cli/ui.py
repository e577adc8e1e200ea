"""`tidegate ui DIR`: the web UI over the jobs of a checkpoint directory, whether or not their drivers are alive."""

from __future__ import annotations

import threading

import click

from tidegate.control.cli.main import with_output
from tidegate.control.cli.output import Line, Output


@click.command("ui")
@click.argument("directory", metavar="DIR")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8082, show_default=True, help="The port to listen on; 0 takes a free one.")
@click.option("--show-values", is_flag=True, help="Show keys and values of state. Without it they are hidden.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="An option of the object store's client.")
@with_output
def command(out: Output, directory: str, host: str, port: int, show_values: bool, options: tuple[str, ...]) -> None:
    """Show the jobs in DIR in a browser: what they did, their checkpoints, failures and state.

    DIR is a job's directory, or the one given as execution.checkpointing.dir. Everything is read from storage, so jobs whose
    driver is gone are shown as well. Nothing can be changed from here. Ends with Ctrl-C.
    """
    from tidegate.control.jobs.stored_service import StoredJobs
    from tidegate.control.rest.server import AddressWords, RestServer, listen

    # Before the directory is read, which can take long.
    listening = click.get_current_context().with_resource(listen(host, port, AddressWords("--host", "--port")))
    client_options = dict(each.split("=", 1) for each in options if "=" in each)
    jobs = StoredJobs(directory, show_values, **client_options)
    with RestServer(jobs, host=host, listening=listening) as server:
        names = [job.name for job in jobs.all()]
        out.show(
            {"url": server.ui_url, "jobs": names},
            Line(f"{len(names)} job{'' if len(names) == 1 else 's'} in {directory}. Open {server.ui_url}"),
        )
        threading.Event().wait()  # until Ctrl-C; the server has its own thread
