"""Flink-like state, checkpoints and savepoints for PySpark jobs.

    import tidegate as tg

Importing this is quick: a name is imported when it is first used. `__init__.pyi` lists all of them, with the modules they
come from; type checkers and this module both read that list.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pkgutil import get_data


def _places() -> dict[str, str]:
    """Name → the module or package to import it from."""
    try:
        listed = get_data(__name__, "__init__.pyi")
    except OSError:
        listed = None
    if listed is None:
        raise ImportError(
            "tidegate/__init__.pyi, the list of its public names, is missing. If you ship tidegate as a zip or in another "
            "archive, take the whole package, not only its .py files."
        )
    imports = [node for node in ast.parse(listed).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


_PLACES = _places()
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("tidegate")
    if name not in _PLACES:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    place = _PLACES[name]
    if place == __name__:
        found: object = import_module(f"{place}.{name}")
    else:
        found = getattr(__import__(place, fromlist=[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
