"""Files import each other in one direction only. Imports inside functions and under `TYPE_CHECKING` count."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.sparks import ROOT

Graph = Mapping[str, set[str]]
"""The modules each module imports."""

PACKAGES = (ROOT / "src" / "tidegate", ROOT / "chaos", ROOT / "benchmarks")


def modules_of(package: Path) -> dict[str, Path]:
    """Map the dotted name of every module in a package to its file."""
    found = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(module: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports anywhere; `from a import b` is an import of `a.b` if that is a module."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            parent = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*parent, *([node.module] if node.module else [])])
            for alias in node.names:
                imported = f"{origin}.{alias.name}" if f"{origin}.{alias.name}" in modules else origin
                if imported in modules:
                    yield imported


@cache
def import_graph(packages: tuple[Path, ...]) -> Graph:
    modules = {name: path for package in packages for name, path in modules_of(package).items()}
    return {name: set(imports_of(name, path, modules)) for name, path in modules.items()}


def reachable(graph: Graph, start: str) -> set[str]:
    """Return the modules that one module imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def cycles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components: each a list of modules that all reach each other."""
    reached = {module: reachable(graph, module) for module in graph}
    components = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in graph
        if module in reached[module]
    }
    return [list(component) for component in sorted(components)]


def described(graph: Graph, cycle: list[str]) -> str:
    edges = [f"  {module} imports {other}" for module in cycle for other in sorted(graph[module] & set(cycle))]
    return "\n".join([f"cycle of {', '.join(cycle)}:", *edges])


def test_files_import_each_other_in_one_direction_only() -> None:
    graph = import_graph(PACKAGES)
    found = [described(graph, cycle) for cycle in cycles(graph)]

    assert not found, "\n" + "\n".join(found)


def test_imports_in_functions_and_for_type_checkers_count(tmp_path: Path) -> None:
    package = tmp_path / "inn"
    (package / "rooms").mkdir(parents=True)
    files = {
        "__init__.py": "",
        "rooms/__init__.py": "from . import single",
        "rooms/single.py": "def book():\n    from inn.rooms.double import Double\n",
        "rooms/double.py": "if TYPE_CHECKING:\n    from ..desk import Desk\n",
        "desk.py": "import inn.rooms.single as single\nfrom inn import bell\n",
        "bell.py": "import os\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    graph = import_graph((package,))

    assert cycles(graph) == [["inn.desk", "inn.rooms.double", "inn.rooms.single"]]
    assert described(graph, cycles(graph)[0]).splitlines() == [
        "cycle of inn.desk, inn.rooms.double, inn.rooms.single:",
        "  inn.desk imports inn.rooms.single",
        "  inn.rooms.double imports inn.desk",
        "  inn.rooms.single imports inn.rooms.double",
    ]
