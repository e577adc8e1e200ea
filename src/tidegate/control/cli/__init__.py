"""The command `tidegate`. Every command has its own module, imported when it is called."""

from tidegate.control.cli.main import main

__all__ = ["main"]
