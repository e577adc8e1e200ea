"""Flink-like state, checkpoints and savepoints for PySpark jobs.

    import tidegate as tg

Importing this is quick: a name is imported when it is first used. `__init__.pyi` lists all of them, with the modules they
come from; type checkers and this module both read that list.
"""

from __future__ import annotations

from tidegate.core.public_names import PublicNames

_NAMES = PublicNames(__name__, "__init__.pyi")
__all__ = _NAMES.all()


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib.metadata import version

        return version("tidegate")
    found = globals()[name] = _NAMES.load(name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
