"""Imports point down, each client library has one home, and a cold `import tidegate` is quick."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sparks import ROOT

SOURCE = ROOT / "src"

HOMES = {
    "pyspark": "tidegate.runtime",
    "py4j": "tidegate.runtime",
    "rocksdict": "tidegate.state.rocksdb",
    "obstore": "tidegate.checkpoint",
}
"""Client library → the one package, or module, that may import it."""

COLD_IMPORT_LIMIT_MS = 150


def modules() -> list[tuple[str, Path]]:
    """Every module of the package: dotted name and file."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def imported(path: Path) -> Iterator[str]:
    """What a module imports anywhere in its text, also inside functions and for type checkers only."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


def test_imports_point_down():
    linter = Path(sys.executable).with_name("lint-imports")
    told = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)

    assert told.returncode == 0, told.stdout


@pytest.mark.parametrize("library", HOMES)
def test_a_client_library_is_imported_in_its_home_only(library):
    home = HOMES[library]
    strangers = [
        name
        for name, path in modules()
        if not f"{name}.".startswith(f"{home}.") and any(f"{i}.".startswith(f"{library}.") for i in imported(path))
    ]

    assert strangers == []


def test_imports_are_absolute():
    relative = [
        f"{name}:{node.lineno}"
        for name, path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]

    assert relative == []


def test_a_cold_import_takes_no_heavy_library_along():
    told = _python("import sys, tidegate; print(*{name.partition('.')[0] for name in sys.modules})")

    assert set(told.split()) & {"pyspark", "py4j", "pyarrow", "numpy", "pandas", "obstore", "rocksdict"} == set()


def test_a_cold_import_is_quick():
    """Measured in the new process, so that starting Python does not count; best of five, so that load does not."""
    timed = "import time; t = time.perf_counter(); import tidegate; print((time.perf_counter() - t) * 1000)"

    assert min(float(_python(timed)) for _ in range(5)) < COLD_IMPORT_LIMIT_MS


def test_every_package_tells_its_reason():
    silent = [
        str(path.parent.relative_to(SOURCE))
        for path in SOURCE.rglob("__init__.py")
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]

    assert silent == []


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
