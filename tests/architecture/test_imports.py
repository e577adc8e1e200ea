"""Imports point down, each client library has one home, and every package says why it exists."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.sparks import ROOT

SOURCE = ROOT / "src"

HOMES = {
    "pyspark": "tidegate.runtime",
    "py4j": "tidegate.runtime",
    "rocksdict": "tidegate.state.rocksdb",
    "obstore": "tidegate.storage",
    "deltalake": "tidegate.connectors.lakehouse",
    "pyiceberg": "tidegate.connectors.lakehouse",
    "confluent_kafka": "tidegate.connectors.kafka",
    "psycopg": "tidegate.connectors.postgres",
    "boto3": "tidegate.connectors.files",
    "botocore": "tidegate.connectors.files",
    "opentelemetry": "tidegate.reporters.otel",
    "openlineage": "tidegate.reporters.lineage",
    "prometheus_client": "tidegate.metrics",
    "IPython": "tidegate.runtime.driver.notebook",
}
"""Client library → the one package, or module, that may import it."""


@cache
def modules() -> list[tuple[str, Path]]:
    """Every module of the package: dotted name and file."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


@cache
def imported(path: Path) -> tuple[str, ...]:
    """What a module imports anywhere in its text, also inside functions and for type checkers only."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.append(node.module)
    return tuple(found)


def test_imports_point_down():
    linter = Path(sys.executable).with_name("lint-imports")
    linted = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)

    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize("library", HOMES)
def test_client_library_is_imported_only_by_its_home(library):
    home = HOMES[library]
    others = [
        name
        for name, path in modules()
        if not f"{name}.".startswith(f"{home}.") and any(f"{i}.".startswith(f"{library}.") for i in imported(path))
    ]

    assert others == []


def test_imports_are_absolute():
    relative = [
        f"{name}:{node.lineno}"
        for name, path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]

    assert relative == []


def test_every_package_has_a_docstring():
    silent = [
        str(path.parent.relative_to(SOURCE))
        for path in SOURCE.rglob("__init__.py")
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]

    assert silent == []
