"""The command groups and what all commands share: lazy loading, `--output`, errors as messages and exit codes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from keyword import iskeyword
from typing import Any

import click

from tidegate.control.cli.output import FAILED, Output, visible
from tidegate.core.errors import TidegateError, help_line, shown_code, with_help
from tidegate.core.redaction import redacted

_COMMANDS = {
    "autoscale": "Explain which parallelism the autoscaler recommends, and why.",
    "cancel": "Cancel a running job.",
    "checkpoint": "Take a checkpoint of a running job.",
    "checkpoints": "List, show, verify and compare the checkpoints of a job.",
    "cleanup": "List, and delete, leftovers of lineages that no job continues.",
    "compat": "Check whether a job can start from a snapshot.",
    "completion": "Print the completion script for a shell.",
    "dashboards": "Write a Grafana dashboard and Prometheus alert rules.",
    "explain": "Explain error codes: what happened, why, and what to do.",
    "import": "Make a savepoint of a stopped Spark query.",
    "init": "Create a project folder with a job that runs.",
    "list": "List running jobs.",
    "plan": "Compute what a job of given rates, keys and state needs.",
    "rescale": "Change the parallelism of a running job.",
    "run": "Run the job in a file.",
    "savepoint": "Take a savepoint of a running job; show, copy, change and dispose of savepoints.",
    "stop": "Stop a running job with a savepoint.",
    "state": "Inspect the state of a checkpoint or savepoint.",
    "top": "Watch a running job in the terminal.",
    "ui": "Show the jobs of a checkpoint directory in a browser.",
}
"""Command → help. Its module, of the same name in this package (with an underscore after a keyword), is imported when the command
is called."""

_AMONG_JOBS = {
    "cancel": "cancel",
    "checkpoint": "checkpoint",
    "list": "list_jobs",
    "rescale": "rescale",
    "stop": "stop",
}
"""Commands in the module `jobs`, and their names there."""


class LazyGroup(click.Group):
    """Knows its commands only by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        if cmd_name in _AMONG_JOBS:
            module = "jobs"
            name = _AMONG_JOBS[cmd_name]
        else:
            module = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
            name = "command"
        command: click.Command = getattr(importlib.import_module(f"tidegate.control.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a similar command for an unknown one."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table above, so that `--help` imports nothing.
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidegate", prog_name="tidegate")
def main() -> None:
    """Run jobs, and manage their state, checkpoints and savepoints; the latter on storage alone, while no job runs.

    A PATH is a checkpoint's or savepoint's directory, or the _metadata in it: a local path, s3://…, gs://… or az://….
    """


def with_output(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--output` to a command, pass it an `Output`, and turn errors into a message and exit code 3."""

    @click.option(
        "--output",
        "-o",
        "form",
        type=click.Choice(["text", "json"]),
        default="text",
        envvar="TIDEGATE_OUTPUT",
        help="Tables for people, or JSON for programs.",
    )
    @wraps(function)
    def wrapped(*args: Any, form: str, **options: Any) -> None:
        try:
            code = function(Output(form == "json"), *args, **options)
        except TidegateError as error:
            # Errors of our own are answers to a user. Anything else is a bug, and keeps its traceback.
            if form == "json":
                # An error of a server keeps its own code, which the client has quoted.
                shown = shown_code(error)
                document = {
                    "code": shown,
                    "message": redacted(str(error)),
                    "retryable": error.retryable,
                    "help": help_line(shown),
                }
                Output(True).show({"error": document})
            else:
                # Errors quote addresses and options, which may contain passwords.
                click.secho(visible(redacted(f"{shown_code(error)}: {with_help(error)}")), fg="red", err=True)
            sys.exit(FAILED)
        sys.exit(code or 0)

    return wrapped
