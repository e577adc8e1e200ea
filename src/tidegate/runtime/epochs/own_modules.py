"""User modules next to the program. Workers cannot import them, so they are sent with the functions.

A script that is run as `python jobs/orders.py` imports modules from `jobs/`; Spark's Python workers, even on the
same machine, do not search there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle

from tidegate.core.installed import LIBRARIES, TIDEGATE


def own_modules(modules: Mapping[str, ModuleType], folders: Iterable[str], importable: Iterable[str]) -> list[str]:
    """Return the names of the top-level modules and packages in one of these folders that are not installed, and that
    workers do not find in one of the folders that are `importable` there.
    """
    places = [_folder(folder) for folder in folders]
    known = [_folder(folder) for folder in importable if folder]
    found = []
    for name, module in modules.items():
        file = getattr(module, "__file__", None)
        # Built-in modules have no file, a submodule travels with its package, and what is installed is installed on workers, too.
        if file is None or "." in name or name == "__main__" or file.startswith((*LIBRARIES, TIDEGATE)):
            continue
        path = Path(file).resolve()
        folder = path.parent.parent if path.name == "__init__.py" else path.parent
        if folder in places and folder not in known:
            found.append(name)
    return sorted(found)


_shipped: set[str] = set()


def ship_own_modules(*folders: str, importable: str = "") -> None:
    """From now on, functions carry what they use of the modules next to the program, or in these folders. `importable` is
    the search path of workers, as far as it is known.
    """
    beside = [sys.path[0] if sys.path else "", *folders]
    known = f"{os.environ.get('PYTHONPATH', '')}{os.pathsep}{importable}".split(os.pathsep)
    for name in own_modules(dict(sys.modules), beside, known):
        cloudpickle.register_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
        _shipped.add(name)


def leave_own_modules() -> list[str]:
    """From now on, functions refer to these modules by name, and workers have to import them. For modules with
    something that cannot be pickled.
    """
    left = sorted(_shipped)
    for name in left:
        cloudpickle.unregister_pickle_by_value(sys.modules[name])  # type: ignore[no-untyped-call]
    _shipped.clear()
    return left


def _folder(folder: str) -> Path:
    return Path(folder or os.curdir).resolve()
