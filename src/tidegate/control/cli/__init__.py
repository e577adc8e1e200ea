"""The command `tidegate`. Every command is a module of its own, imported when it is called."""

from tidegate.control.cli.main import main

__all__ = ["main"]
