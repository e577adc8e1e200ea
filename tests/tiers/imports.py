"""Which files of the project import which, read from the source without importing anything.

A file is named by its path in the repository. `tg.ValueState` counts as an import of the module that defines it: the package
loads its public names when they are first used, as its stub lists them.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = ("src/tidegate", "tests", "chaos", "benchmarks", "examples")
_PACKAGE = "tidegate"


class ImportGraph:
    """Imports between files, at any depth of the code: an import within a function runs when the function does."""

    def __init__(self, imported: dict[str, frozenset[str]]) -> None:
        self._imported = imported

    @classmethod
    def read(cls, root: Path = ROOT) -> ImportGraph:
        files = {
            str(path.relative_to(root)): path for folder in _FOLDERS for path in sorted((root / folder).rglob("*.py"))
        }
        return cls({file: imports_of(path.read_text(), root) for file, path in files.items()})

    def files(self) -> list[str]:
        return list(self._imported)

    def direct(self, file: str) -> frozenset[str]:
        return self._imported.get(file, frozenset())

    def closure(self, files: Iterable[str], through: Callable[[str], bool] = lambda file: True) -> set[str]:
        """These files and all that they import, following the imports of files that `through` accepts."""
        reached: set[str] = set()
        waiting = list(files)
        while waiting:
            file = waiting.pop()
            if file in reached:
                continue
            reached.add(file)
            if through(file):
                waiting += self.direct(file)
        return reached


def imports_of(source: str, root: Path = ROOT) -> frozenset[str]:
    """The files that a piece of source imports. Unreadable source, as a page may show, imports nothing."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return frozenset()
    nodes = list(ast.walk(tree))
    aliases = {alias.asname or alias.name for node in nodes for alias in _imported(node) if alias.name == _PACKAGE}
    names = {name for node in nodes for name in _names_in(node, aliases)}
    return frozenset(file for name in names for file in _files_of(name, root))


def _imported(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import) else []


def _names_in(node: ast.AST, aliases: set[str]) -> Iterator[str]:
    """The modules that one statement or expression refers to. `aliases` are the names of the package itself, such as `tg`."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        yield node.module
        for alias in node.names:
            # The name may be a module of the package, or something that a public name stands for.
            yield f"{node.module}.{alias.name}"
            if node.module == _PACKAGE:
                yield from _place_of(alias.name)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
        yield from _place_of(node.attr)


def _place_of(name: str) -> tuple[str, ...]:
    place = _public_places().get(name)
    return () if place is None else (place,)


@functools.cache
def _public_places() -> dict[str, str]:
    """The module of each public name, as the package's stub lists them."""
    stub = ast.parse((ROOT / "src" / _PACKAGE / "__init__.pyi").read_text())
    return {
        alias.name: f"{_PACKAGE}.{alias.name}" if node.module == _PACKAGE else node.module or ""
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@functools.cache
def _files_of(module: str, root: Path) -> tuple[str, ...]:
    """The file of a module; of a package its `__init__.py`. Nothing for modules of others."""
    parts = module.split(".")
    base = Path("src") if parts[0] == _PACKAGE else Path()
    place = base.joinpath(*parts)
    found = [f"{place}.py", f"{place}/__init__.py"]
    return tuple(file for file in found if (root / file).is_file())
