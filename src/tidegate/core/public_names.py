"""Public names of a module that are imported when they are first used.

A stub next to the module lists them, each with the module that defines it. Type checkers read the stub, and so does the module
itself, so every name is written down once.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pkgutil import get_data

_PACKAGE = "tidegate"


class PublicNames:
    """The names in one stub, for the `__getattr__` of its module."""

    def __init__(self, module: str, stub: str) -> None:
        self._module = module
        imports = [node for node in ast.parse(_read(stub)).body if isinstance(node, ast.ImportFrom)]
        self._places = {alias.name: node.module or "" for node in imports for alias in node.names}

    def all(self) -> list[str]:
        return sorted(self._places)

    def load(self, name: str) -> object:
        """Import a name. Raises `AttributeError`, as a module does, if the stub does not list it."""
        if name not in self._places:
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}")
        place = self._places[name]
        # `from tidegate import errors as errors` in a stub is a submodule, and no attribute until it is imported.
        if place == _PACKAGE:
            return import_module(f"{place}.{name}")
        value: object = getattr(import_module(place), name)
        return value


def _read(stub: str) -> bytes:
    try:
        text = get_data(_PACKAGE, stub)
    except OSError:
        text = None
    if text is None:
        raise ImportError(
            f"{_PACKAGE}/{stub}, a list of its public names, is missing. If you ship {_PACKAGE} as a zip or in another archive, "
            "take the whole package, not only its .py files."
        )
    return text
