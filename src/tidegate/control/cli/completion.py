"""`tidegate completion`: `eval "$(tidegate completion bash)"` in a shell's start-up file."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a SHELL.

    For bash and zsh: eval "$(tidegate completion bash)"; for fish: tidegate completion fish | source.
    """
    # Late: `main` imports this module when the command is called.
    from tidegate.control.cli.main import main

    completion = get_completion_class(shell)
    assert completion is not None  # `shell` is one of the choices above
    click.echo(completion(main, {}, "tidegate", "_TIDEGATE_COMPLETE").source())
