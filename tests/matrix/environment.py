"""The environment of a cell, below `artifacts/matrix/`: an interpreter, a JVM, and what is installed.

Nothing here is downloaded but packages. Interpreters come from PATH, from pyenv, or from `artifacts/pythons/MINOR`, where
somebody put one; JVMs from JAVA_HOME, from the folders of Debian, or from `artifacts/javas/MAJOR`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.matrix.cells import Cell, Dependencies

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts"
FOLDER = ARTIFACTS / "matrix"
_INSTALL_S = 1800
_OF_CHECKS = ("import-linter", "mypy", "pyright", "ruff")
_EXACT = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)", re.MULTILINE)


class Missing(Exception):
    """This machine cannot run the cell. The text says what it lacks."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a cell runs with."""

    python: Path
    java_home: Path

    def variables(self) -> dict[str, str]:
        """The variables of a process of the cell. The jobs of the cell use its interpreter and its JVM as well."""
        ours = {
            name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "SPARK_HOME")
        }
        path = os.pathsep.join([str(self.python.parent), str(self.java_home / "bin"), ours["PATH"]])
        return ours | {"JAVA_HOME": str(self.java_home), "PATH": path}

    def versions(self) -> dict[str, str]:
        """What is installed there, as the record names it."""
        names = ["pyspark", "pandas", "pyarrow", "numpy", "rocksdict"]
        asked = (
            f"import importlib.metadata as m, json, platform; print(json.dumps({{'python': platform.python_version()}} | "
            f"{{name: m.version(name) for name in {names}}}))"
        )
        found: dict[str, str] = json.loads(_output([str(self.python), "-c", asked]))
        return found | {"java": java_version(self.java_home) or ""}


def environment_of(cell: Cell) -> Environment:
    """Make the environment, or find it as an earlier run made it. Raises Missing."""
    java_home = find_java(cell.java)
    if java_home is None:
        raise Missing(f"no Java {cell.java}")
    folder = FOLDER / "environments" / str(cell)
    python = folder / "bin" / "python"
    mark = folder / "installed"
    # What is newest changes from day to day: such an environment stays as it is until somebody deletes it.
    asked = mark.read_text() if mark.is_file() and cell.dependencies != Dependencies.LOCKED else requirements(cell)
    if mark.is_file() and mark.read_text() == asked:
        return Environment(python, java_home)
    base = find_python(cell.python)
    if base is None:
        raise Missing(f"no Python {cell.python}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = FOLDER / "environments" / f"{cell}.txt"
    wanted.write_text(asked)
    _uv("venv", "--quiet", "--python", str(base), str(folder))
    _uv("pip", "install", "--quiet", "--python", str(python), "--requirement", str(wanted))
    _uv("pip", "install", "--quiet", "--python", str(python), "--no-deps", "--editable", str(ROOT))
    mark.write_text(asked)
    return Environment(python, java_home)


def requirements(cell: Cell) -> str:
    """What to install besides tidegate itself, in pip's format."""
    match cell.dependencies:
        case Dependencies.LOCKED:
            exported = _uv(
                "export", "--frozen", "--all-extras", "--all-groups", "--no-emit-project", "--no-hashes", "--no-annotate",
                "--no-header", "--quiet",
            )  # fmt: skip
            kept = [line for line in exported.splitlines() if not line.startswith("pyspark==")]
            return "\n".join([*kept, f"pyspark[sql]=={cell.spark}", ""])
        case Dependencies.NEWEST:
            return _resolved(cell, "highest", more=_tools())
        case Dependencies.OLDEST:
            # Only what users install is old: the tools of the tests are as new as that allows.
            own = _own_packages()
            lowest = _EXACT.findall(_resolved(cell, "lowest-direct"))
            pins = [f"{name}=={version}" for name, version in lowest if name in own]
            return _resolved(cell, "highest", pins, _tools())


def _resolved(cell: Cell, resolution: str, pins: Iterable[str] = (), more: Iterable[str] = ()) -> str:
    """The versions that uv selects for this cell: of the package with its extras, and of what is asked for besides."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    constraints, further = FOLDER / f"{cell}-constraints.txt", FOLDER / f"{cell}-more.txt"
    constraints.write_text("\n".join([f"pyspark=={cell.spark}", *pins]))
    further.write_text("\n".join(more))
    return _uv(
        "pip", "compile", "--quiet", "--no-annotate", "--no-header", "--all-extras", "--resolution", resolution,
        "--python-version", cell.python, "--constraints", str(constraints), "pyproject.toml", str(further),
    )  # fmt: skip


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def _own_packages() -> set[str]:
    """The names of what the package and its extras ask for."""
    project = _project()["project"]
    asked = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    return {_name_of(each) for each in asked}


def _tools() -> list[str]:
    """What tests need besides: the development group without the generators of the site and what reads code only."""
    tools = [each for each in _project()["dependency-groups"]["dev"] if isinstance(each, str)]
    return [each for each in tools if _name_of(each) not in _OF_CHECKS]


def _name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ;]", requirement)[0].lower()


def find_python(minor: str) -> Path | None:
    """An interpreter of this minor version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = shutil.which(f"python{minor}")
    candidates = [
        Path(sys.executable),
        *([Path(on_path)] if on_path else []),
        *sorted(pyenv.glob(f"{minor}.*/bin/python{minor}")),
        *sorted((ARTIFACTS / "pythons" / minor).glob(f"**/bin/python{minor}")),
    ]
    return next((each for each in candidates if _minor_of(each) == minor), None)


def _minor_of(python: Path) -> str | None:
    # pyenv puts a script for each version on PATH; it fails where that version is not selected.
    try:
        return _output([str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def find_java(major: str) -> Path | None:
    """The home of a JVM of this major version."""
    on_path = shutil.which("java")
    candidates = [
        *([Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []),
        *([Path(on_path).resolve().parents[1]] if on_path else []),
        *sorted(Path("/usr/lib/jvm").glob(f"java-{major}-*")),
        ARTIFACTS / "javas" / major,
    ]
    return next((each for each in candidates if (java_version(each) or "").split(".")[0] == major), None)


def java_version(home: Path) -> str | None:
    """The version of the JVM in this folder, as 17.0.15."""
    try:
        told = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r'version "([^"]+)"', told)
    return None if found is None else found[1]


def _uv(*words: str) -> str:
    uv = [shutil.which("uv") or "uv"] if _on_path("uv") else [_base_python(), "-m", "uv"]
    done = subprocess.run(
        [*uv, *words], cwd=ROOT, capture_output=True, text=True, timeout=_INSTALL_S, check=False,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
    )  # fmt: skip
    if done.returncode != 0:
        raise Missing(f"uv {words[0]} failed: {_last_words(done.stderr)}")
    return done.stdout


def _on_path(program: str) -> bool:
    return shutil.which(program) is not None


def _base_python() -> str:
    """The interpreter that `.venv` was made with: `.ci/run` installs uv beside it."""
    return str(Path(sys.base_prefix) / "bin" / "python3")


def _last_words(text: str) -> str:
    return " ".join(text.split())[-400:]


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
