"""The groups of commands and what all of them share: lazy loading, `--output`, errors as messages and exit codes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from tidegate.control.cli.output import FAILED, Output
from tidegate.core.errors import TidegateError

_COMMANDS = {
    "checkpoints": "List, show, verify and compare the checkpoints of a job.",
    "compat": "Will this job start from that snapshot?",
    "completion": "Print the script that completes commands in a shell.",
    "savepoint": "Show, copy, change and dispose of savepoints.",
    "state": "Look into the state of a checkpoint or savepoint.",
}
"""Command → help. Its module, of the same name in this package, is imported when the command is called."""


class LazyGroup(click.Group):
    """Knows its commands by name alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*_COMMANDS, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return super().get_command(ctx, cmd_name)
        found: click.Command = importlib.import_module(f"tidegate.control.cli.{cmd_name}").command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table above, so that `--help` imports nothing.
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidegate", prog_name="tidegate")
def main() -> None:
    """State, checkpoints and savepoints of tidegate jobs, on storage alone: no job has to run.

    A PATH is a checkpoint's or savepoint's directory, or the _metadata in it: a local path, s3://…, gs://… or az://….
    """


def speaks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command `--output`, passes it an `Output`, and turns errors into a message and exit code 3."""

    @click.option(
        "--output", "-o", "form", type=click.Choice(["text", "json"]), default="text", envvar="TIDEGATE_OUTPUT",
        help="Tables for people, or JSON for programs.",
    )  # fmt: skip
    @wraps(function)
    def spoken(*args: Any, form: str, **options: Any) -> None:
        try:
            code = function(Output(form == "json"), *args, **options)
        except TidegateError as error:
            if form == "json":
                told = {"error": {"code": error.code, "message": str(error), "retryable": error.retryable}}
                Output(True).show(told)
            else:
                click.secho(f"{error.code}: {error}", fg="red", err=True)
            sys.exit(FAILED)
        sys.exit(code or 0)

    return spoken
