"""The first five minutes, as docs/get-started/five-minutes.md goes: a new project is tested, run, killed and run again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.sparks import ROOT

PAGE = ROOT / "docs" / "get-started" / "five-minutes.md"
TIDEGATE = [sys.executable, "-c", "from tidegate.control.cli import main; main()"]
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
QUICKLY = ["-Drest.port=0", "-Dexecution.checkpointing.interval=500 ms"]
"""Other jobs may use the usual port. -D overrides the interval in the file."""


def call(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def job(folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`tidegate run job.py`, killed with SIGKILL at the end."""
    with log.open("wb") as said:
        process = subprocess.Popen(
            [*TIDEGATE, "run", "job.py", *QUICKLY], cwd=folder, env=ENVIRONMENT, stdout=said, stderr=said
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def rows(folder: Path) -> int:
    return sum(len(file.read_text().splitlines()) for file in (folder / "out").glob("*.json"))


def run_until_more_rows_than(count: int, folder: Path, log: Path) -> int:
    """Until the job has started and written. Tasks of a killed driver may still publish rows until Spark has ended."""
    with job(folder, log) as process:
        latest = time.monotonic() + 150
        while "job myjob started" not in log.read_text() or rows(folder) <= count:
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < latest, log.read_text()[-3000:]
            time.sleep(0.1)
    return rows(folder)


def test_a_new_project_runs_survives_a_kill_and_continues(tmp_path: Path) -> None:
    call(tmp_path, *TIDEGATE, "init", "myjob")
    project = tmp_path / "myjob"
    assert "2 passed" in call(project, sys.executable, "-m", "pytest", "-q")
    before = run_until_more_rows_than(0, project, tmp_path / "first.log")
    call(project, sys.executable, "check.py")
    run_until_more_rows_than(before + 20, project, tmp_path / "second.log")
    assert "restored from checkpoint" in (tmp_path / "second.log").read_text()
    told = call(project, sys.executable, "check.py").splitlines()
    assert told[0].endswith(": 0 lost, 0 doubled")
    assert [line.partition(":")[0].strip() for line in told[1:]] == ["page-0", "page-1", "page-2"]
    listed = call(project, *TIDEGATE, "checkpoints", "list", "checkpoints")
    assert "chk-" in listed


def test_the_page_describes_the_steps_of_this_test() -> None:
    page = PAGE.read_text()
    for command in (
        "tidegate init myjob",
        "pytest",
        "tidegate run job.py",
        "python check.py",
        "tidegate ui checkpoints",
    ):
        assert f"$ {command}\n" in page
    assert "tidegate explain" in page
