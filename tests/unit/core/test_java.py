"""What is said about the Java of a machine, before Spark fails with less."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tidegate.core.java import find_java, java_problem


def pretend(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("version", "problem"),
    [("17.0.15", None), ("21", None), ("1.8.0_402", " is Java 8."), ("11.0.2", " is Java 11."), ("odd", None)],
)
def test_a_java_that_is_too_old_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, problem: str | None
) -> None:
    program = pretend(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == str(program)
    assert java_problem() == (None if problem is None else f"{program}{problem}")


def test_a_wrong_java_home_and_a_path_without_java_have_different_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_problem() == f"JAVA_HOME is {str(tmp_path)!r}, and has no bin/java."
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java_problem() == "There is no `java` on the PATH."


def test_a_session_without_java_says_what_to_install(tmp_path: Path) -> None:
    code = "from tidegate.runtime.driver.session import session; session('without-java')"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "has no bin/java. Spark needs Java 17 or later. Install it" in done.stderr
    assert done.stderr.endswith("\nHelp: tidegate explain PRECONDITION\n")
