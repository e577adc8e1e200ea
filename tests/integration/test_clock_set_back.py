"""The wall clock of a running job is set back by two hours, and its epochs go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

import pytest

from chaos.wall_clock import WallClock
from tests.sparks import ROOT
from tests.speed import Limit

PROGRAM = """
import sys
import tidegate as tg

folder = sys.argv[1]
spark = tg.session("lines")
frame = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{folder}/lines")
job = tg.Job("lines", parallelism=1)
job.source("lines", frame).sink("out", tg.PrintSink())
job.run(trigger="1 s", checkpoint=tg.Checkpointing(dir=f"{folder}/checkpoints", interval="1 s"))
"""


class Printed:
    """The lines that a process prints, as they come."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: Queue[str] = Queue()
        assert process.stdout is not None
        Thread(target=lambda: [self._lines.put(line) for line in process.stdout or ()], daemon=True).start()

    def await_line(self, text: str, timeout_s: float) -> None:
        limit = Limit(timeout_s)
        while True:
            try:
                line = self._lines.get(timeout=1)
            except Empty:
                assert not limit.passed(), f"{text!r} was not printed within {timeout_s:g} s"
                continue
            if text in line:
                return


@pytest.mark.skipif(shutil.which("cc") is None, reason="a clock that can be set has to be compiled")
@pytest.mark.budget(200)
def test_a_trigger_with_an_interval_does_not_wait_for_the_wall_clock(tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    (tmp_path / "lines").mkdir()
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **clock.environment}
    environment["PYTHONPATH"] = str(ROOT)
    process = subprocess.Popen(
        [sys.executable, "-u", str(script), str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    try:
        printed = Printed(process)
        (tmp_path / "lines" / "1").write_text("before\n")
        printed.await_line("before", 120)
        clock.set(-7200)
        (tmp_path / "lines" / "2").write_text("after\n")
        printed.await_line("after", 60)
    finally:
        process.kill()
        process.wait()
