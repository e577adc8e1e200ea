"""Runs programs one after the other in one process, each as `python program.py` would, so that they share a JVM.

A JVM and its first query take ten times as long as most programs of the guide. Every program begins without a session; what it
leaves running is stopped.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import traceback
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from tests.sparks import ROOT


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
        try:
            line = self._answers.get(timeout=timeout_s)
        except Empty:
            self.close()
            raise AssertionError(f"the program was not done after {timeout_s:g} s") from None
        assert line, f"the process ended with {process.wait()}"
        answer = json.loads(line)
        assert answer["failure"] is None, answer["printed"] + answer["failure"][-3000:]
        printed: str = answer["printed"]
        return printed

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


def _run(script: str) -> dict[str, str | None]:
    from pyspark.sql import SparkSession

    printed, failure = io.StringIO(), None
    os.chdir(Path(script).parent)
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            failure = traceback.format_exc()
    left = SparkSession.getActiveSession()
    if left is not None:
        for query in left.streams.active:
            query.stop()
        left.stop()
    return {"printed": printed.getvalue(), "failure": failure}


if __name__ == "__main__":
    # Python workers and the JVM inherit the standard output; answers go to a copy that they do not have.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_run(line.strip())), file=answers, flush=True)
