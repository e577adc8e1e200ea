"""`tidegate init`: a project that parses, is lint-clean, and passes its own tests."""

from __future__ import annotations

import ast
import configparser
import json
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

import tidegate as tg
from tests.sparks import ROOT
from tidegate.control.cli import main
from tidegate.control.cli.run import command as run_command


def init(where: Path | str, *more: str) -> Result:
    return CliRunner().invoke(main, ["init", str(where), *more])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    done = init(tmp_path / "page-views", "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["project"] == "page-views"
    return tmp_path / "page-views"


def test_all_files_are_listed_and_no_placeholder_is_left(project: Path) -> None:
    found = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert found == {
        ".gitignore",
        "README.md",
        "check.py",
        "deploy/page-views.service",
        "job.py",
        "pyproject.toml",
        "requirements.txt",
        "tests/test_job.py",
    }
    assert not [path for path in found if "__NAME__" in (project / path).read_text()]
    assert not [path for path in found if "__VERSION__" in (project / path).read_text()]


def test_the_code_parses_and_ruff_has_nothing_to_say(project: Path) -> None:
    for path in project.rglob("*.py"):
        ast.parse(path.read_text())
    tomllib.loads((project / "pyproject.toml").read_text())
    rules = [
        "--config",
        str(ROOT / "pyproject.toml"),
        "--ignore",
        "I001",
    ]  # which imports are its own, ruff asks the repository
    subprocess.run([sys.executable, "-m", "ruff", "check", *rules, "."], cwd=project, check=True)
    subprocess.run([sys.executable, "-m", "ruff", "check", "--select", "E,F,W,I,B,UP", "."], cwd=project, check=True)
    subprocess.run([sys.executable, "-m", "ruff", "format", "--check", "."], cwd=project, check=True)


def test_its_tests_pass(project: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


def test_the_service_calls_a_command_that_exists(project: Path) -> None:
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(project / "deploy" / "page-views.service")
    program, verb, *words = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, verb) == ("tidegate", "run")
    assert Path(program).is_relative_to(unit["Service"]["WorkingDirectory"])
    words[0] = str(project / words[0])
    with click.Context(main):
        run_command.make_context("run", words)


def test_requirements_name_the_installed_version(project: Path) -> None:
    from importlib.metadata import version

    assert f"tidegate=={version('tidegate')}" in (project / "requirements.txt").read_text().splitlines()


def test_a_folder_that_is_not_empty_is_refused_and_unchanged(project: Path) -> None:
    (project / "job.py").write_text("mine")
    done = init(project)
    assert done.exit_code == 3
    assert "page-views is not empty: it holds .gitignore and 7 more. Nothing was changed." in done.output
    assert (project / "job.py").read_text() == "mine"


def test_an_empty_folder_is_used_and_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert init(tmp_path / "empty").exit_code == 0
    (tmp_path / "file").write_text("")
    done = init(tmp_path / "file")
    assert done.exit_code == 3
    assert "is a file" in done.output


def test_the_next_command_is_quoted_for_a_shell(tmp_path: Path) -> None:
    done = init(tmp_path / "my jobs" / "views")
    assert f"\n  cd '{tmp_path}/my jobs/views'\n" in done.output


def test_a_name_that_looks_like_a_placeholder_is_kept(tmp_path: Path) -> None:
    assert init(tmp_path / "x__VERSION__").exit_code == 0
    assert 'tg.Job("x__VERSION__", ' in (tmp_path / "x__VERSION__" / "job.py").read_text()


@pytest.mark.parametrize("name", ["2nd", "with space", "ünïcode", "a/b/.hidden", "x" * 64])
def test_an_invalid_name_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    done = init(tmp_path / name)
    assert done.exit_code == 3
    assert done.output.startswith("BAD_OPTION: ")
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "Spark needs Java 17 or later. Install it" in init(tmp_path / "job").output


def test_the_job_file_says_where_checkpoints_go(project: Path) -> None:
    from tidegate.control.jobs.job_file import checkpoint_of, load_job

    class Frames:
        """A Spark session, as far as the job asks it."""

        def __getattr__(self, name: str) -> Frames:
            return self

        def __call__(self, *args: object) -> Frames:
            return self

        def selectExpr(self, *columns: str) -> object:
            return tg.testing.frame("id bigint, page string")

    job = load_job(str(project / "job.py"), Frames())
    assert job.name == "page-views"
    found = checkpoint_of(str(project / "job.py"))
    assert found is not None
    assert (found.dir, found.interval) == ("checkpoints", "2 s")
