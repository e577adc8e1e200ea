"""Type checkers understand the public names: they accept typical code of users, and find the mistakes in it."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sparks import ROOT
from tidegate.control.cli.project import Project

FILES = ROOT / "tests" / "typing"
MYPY = """
[mypy]
strict = True
follow_imports = silent
[mypy-boto3.*,botocore.*,pyarrow.*,rocksdict.*]
ignore_missing_imports = True
[mypy-pyspark.*]
follow_imports = skip
"""
"""As in a project of users, except that Spark's own modules are left unread: that would take most of the time."""
Errors = dict[str, dict[int, str]]
"""File name → line → what the checker said there."""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory: pytest.TempPathFactory) -> Errors:
    folder = tmp_path_factory.mktemp("mypy")
    (folder / "mypy.ini").write_text(MYPY)
    command = ["mypy", f"--config-file={folder / 'mypy.ini'}", f"--cache-dir={folder / 'cache'}", "--no-error-summary"]
    told = run(*command, str(FILES))
    assert told.returncode in (0, 1), told.stdout + told.stderr
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", told.stdout, re.MULTILINE)
    return by_file((path, int(line), text) for path, line, text in found)


@pytest.fixture(scope="module")
def pyright() -> Errors:
    skip_without_pyright()
    told = run("pyright", "--outputjson", "--pythonpath", sys.executable, str(FILES))
    assert told.returncode in (0, 1), told.stdout + told.stderr
    found = [one for one in json.loads(told.stdout)["generalDiagnostics"] if one["severity"] == "error"]
    return by_file((one["file"], one["range"]["start"]["line"] + 1, one["message"]) for one in found)


@pytest.mark.large
@pytest.mark.budget(180)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_typical_code_of_users_is_accepted(checker: str, request: pytest.FixtureRequest) -> None:
    errors: Errors = request.getfixturevalue(checker)

    assert errors.get("user_code.py", {}) == {}


@pytest.mark.large
@pytest.mark.budget(180)
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_every_marked_mistake_is_rejected_and_nothing_else(checker: str, request: pytest.FixtureRequest) -> None:
    errors: Errors = request.getfixturevalue(checker)
    lines = (FILES / "rejected.py").read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "  # rejected: " in line}

    assert set(errors["rejected.py"]) == marked


@pytest.mark.large
@pytest.mark.budget(180)
def test_pyright_accepts_what_init_writes(tmp_path: Path) -> None:
    skip_without_pyright()
    Project(tmp_path / "page-views").create()

    told = run("pyright", "--pythonpath", sys.executable, ".", cwd=tmp_path / "page-views")

    assert told.returncode == 0, told.stdout + told.stderr


def test_parameters_of_methods_that_users_write_have_no_names() -> None:
    """pyright asks for the names of the base class otherwise. Here also where pyright cannot be started."""
    from tests.typing import user_code

    renamed = [each for name, each in vars(user_code).items() if name.startswith("Renamed")]
    named = [
        f"{base.__qualname__}.{method}({parameter.name})"
        for each in renamed
        for method in vars(each)
        for base in each.__mro__[1:]
        if method in vars(base) and inspect.isfunction(vars(base)[method])
        for parameter in list(inspect.signature(vars(base)[method]).parameters.values())[1:]
        if parameter.kind is not parameter.POSITIONAL_ONLY
    ]

    assert renamed
    assert named == []


def test_public_signatures_name_their_types() -> None:
    loose = [
        f"{path.stem}.{name}"
        for folder in ("api", "operators")
        for path in sorted((ROOT / "src/tidegate" / folder).glob("*.py"))
        for name in untyped(path)
    ]

    assert loose == []


def untyped(path: Path) -> Iterator[str]:
    """Public functions and methods of a module whose signature says `Any`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and is_for_users(path, node.name):
            members = [member for member in node.body if isinstance(member, ast.FunctionDef)]
            yield from (f"{node.name}.{one.name}" for one in members if is_public(one.name) and says_any(one))
        elif isinstance(node, ast.FunctionDef) and is_for_users(path, node.name) and says_any(node):
            yield node.name


def is_for_users(path: Path, name: str) -> bool:
    import tidegate

    return name in tidegate.__all__ or (path.parent.name == "api" and is_public(name))  # type: ignore[attr-defined]


def is_public(name: str) -> bool:
    return not name.startswith("_") or name in ("__init__", "__get__", "__init_subclass__")


def says_any(function: ast.FunctionDef) -> bool:
    parts: list[ast.AST | None] = [function.args, function.returns]
    return any(isinstance(n, ast.Name) and n.id == "Any" for part in parts if part is not None for n in ast.walk(part))


def by_file(found: Iterator[tuple[str, int, str]]) -> Errors:
    errors: Errors = {}
    for path, line, text in found:
        errors.setdefault(Path(path).name, {})[line] = text
    return errors


def run(module: str, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=280
    )


def skip_without_pyright() -> None:
    if not pyright_starts():
        pytest.skip("pyright cannot be started: it needs node, and fetches its program the first time it runs")


@cache
def pyright_starts() -> bool:
    try:
        return run("pyright", "--version").returncode == 0
    except subprocess.TimeoutExpired:
        return False
