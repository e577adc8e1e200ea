"""Runs programs one after the other in one process, each as `python program.py` would, so that they share a JVM.

A JVM and its first query take ten times as long as most programs of the guide, and a session with its Python workers as long as
most of them. A program gets the session of the one before it, unless that one has failed, stopped or changed it, or left
something running in it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
import traceback
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING

from tests.sparks import ROOT
from tests.speed import Limit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Programs:
    """The process that runs programs. It begins with the first, and again after one that did not end in time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: Queue[str] = Queue()

    def run(self, code: str, folder: Path, timeout_s: float) -> str:
        """What the program prints. Its current directory is `folder`. AssertionError with its traceback if it fails."""
        script = folder / "program.py"
        script.write_text(code)
        process = self._running()
        assert process.stdin is not None
        process.stdin.write(f"{script}\n")
        process.stdin.flush()
        line = self._answer(Limit(timeout_s))
        assert line, f"the process ended with {process.wait()}"
        answer = json.loads(line)
        assert answer["failure"] is None, answer["printed"] + answer["failure"][-3000:]
        printed: str = answer["printed"]
        return printed

    def _answer(self, limit: Limit) -> str:
        while True:
            try:
                return self._answers.get(timeout=1)
            except Empty:
                if limit.passed():
                    self.close()
                    raise AssertionError(f"the program was not done after {limit.seconds:g} s") from None

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
            environment["PYTHONPATH"] = str(ROOT)
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__], env=environment, text=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            self._answers = Queue()
            Thread(target=_forward, args=(self._process, self._answers), daemon=True).start()
        return self._process


def _forward(process: subprocess.Popen[str], answers: Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put("")


_OWN_SESSION = re.compile(r"SparkSession\.builder|session\([^)]*(?:master|config)=")
"""A program that says how its session is to be neither takes one over nor leaves one."""
_settings: dict[str, dict[str, str]] = {}
"""What the settings of each session were when its first program had ended, by application."""


def _run(script: str) -> dict[str, str | None]:
    from pyspark.sql import SparkSession

    printed, failure = io.StringIO(), None
    os.chdir(Path(script).parent)
    has_own_session = _OWN_SESSION.search(Path(script).read_text()) is not None
    if has_own_session:
        _end(SparkSession.getActiveSession())
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            failure = traceback.format_exc()
    session = SparkSession.getActiveSession()
    if session is not None and (failure is not None or has_own_session or not _is_as_new(session)):
        _end(session)
    return {"printed": printed.getvalue(), "failure": failure}


def _end(session: SparkSession | None) -> None:
    if session is not None:
        for query in session.streams.active:
            query.stop()
        session.stop()


def _is_as_new(session: SparkSession) -> bool:
    """Whether the next program cannot tell that another one has used the session."""
    if session.streams.active or session.catalog.listTables():
        return False
    own = _settings.setdefault(session.sparkContext.applicationId, session.conf.getAll)
    return session.conf.getAll == own


if __name__ == "__main__":
    # Python workers and the JVM inherit the standard output; answers go to a copy that they do not have.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_run(line.strip())), file=answers, flush=True)
