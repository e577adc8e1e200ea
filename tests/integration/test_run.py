"""A job as a process of its own, by `tidegate run` or by a script: what signals do to it, and the exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.runtime.driver.ending import ExitCode

JOB = """
import tidegate as tg

class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()

def build(spark):
    job = tg.Job("counter", parallelism=2)
    rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load().selectExpr("value % 3 AS k")
    job.source("rows", rows).key_by("k").process("count", Count(), schema="k bigint, n int").sink("out", tg.FileSink("out"))
    return job
"""

CONFIG = """
execution.checkpointing:
  dir: {folder}/checkpoints
  interval: 500 ms
rest.port: 0
"""


@contextmanager
def running(folder: Path, *more: str):
    """The job in `job.py`, from when it was submitted until the test is done with it."""
    (folder / "job.py").write_text(JOB)
    (folder / "config.yaml").write_text(CONFIG.format(folder=folder))
    words = ["run", "job.py", "-o", "json", *more]
    process = subprocess.Popen(
        [sys.executable, "-c", "from tidegate.control.cli import main; main()", *words],
        cwd=folder, stdout=subprocess.PIPE, stderr=(folder / "err.log").open("w"), text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TIDEGATE_CONF_DIR": str(folder)},
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        told = ""
        while not told.endswith("}\n"):
            line = process.stdout.readline()
            assert line, (folder / "err.log").read_text()[-3000:]
            told += line
        assert json.loads(told)["rest"].startswith("http://127.0.0.1:")
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.feature("I14", "D32")
def test_sigterm_ends_a_job_with_a_savepoint_that_holds_all_its_output(tmp_path):
    saved = tmp_path / "savepoints"
    to = f"-Dexecution.checkpointing.savepoint-dir={saved}"
    with running(tmp_path, "--savepoint-on-stop", to, "--stop-within", "4 min", "--log-format", "json") as run:
        process_until_output(run, tmp_path)
        # To the whole group, with Spark's JVM in it, as systemd does. A script below gets it alone.
        os.killpg(run.pid, signal.SIGTERM)
        assert run.wait() == ExitCode.ENDED, (tmp_path / "err.log").read_text()[-3000:]
    (path,) = saved.iterdir()
    counted = {e.key: e.value for e in tg.Savepoint.open(path).state("count", "n").entries()}
    rows = [json.loads(line) for file in (tmp_path / "out").glob("*.json") for line in file.read_text().splitlines()]
    assert counted == {k: max(row["n"] for row in rows if row["k"] == k) for k in counted}
    assert sum(counted.values()) == len(rows) > 0
    said = (tmp_path / "err.log").read_text()
    assert "Traceback" not in said
    assert "py4j" not in said
    check_log(tmp_path)


def test_the_run_after_a_killed_driver_says_so(tmp_path):
    with running(tmp_path) as run:
        process_until_output(run, tmp_path)  # a checkpoint has completed
    with running(tmp_path, "--stop-within", "4 min") as run:
        run.send_signal(signal.SIGTERM)
        assert run.wait() == ExitCode.ENDED, (tmp_path / "err.log").read_text()[-3000:]
    said = (tmp_path / "err.log").read_text()
    assert "ended without a word" in said
    assert "This run continues from checkpoint" in said
    assert "has ended: Stopped." in said


def check_log(folder: Path) -> None:
    """Every line names job, term and epoch, and Spark says hardly anything."""
    printed = (folder / "err.log").read_text().splitlines()
    lines = [json.loads(line) for line in printed if line.startswith("{")]
    assert {line["job"] for line in lines} == {"counter"}
    began = next(place for place, line in enumerate(lines) if line.get("event") == "EpochEvent")
    assert {line["term"] for line in lines[began:]} == {1}
    assert all(line["epoch"].startswith("1.") for line in lines[began:])
    assert any(line.get("checkpointStatus") == "COMPLETED" for line in lines)
    told = [line["newJobStatus"] for line in lines if line.get("event") == "JobStatusChangeEvent"]
    assert (told[:2], told[-1]) == (["INITIALIZING", "RUNNING"], "FINISHED")
    # What the JVM prints before Spark has read its settings, and hardly more. A stack trace is one message.
    others = [line for line in printed if not line.startswith(("{", "\t", " ", "Caused by:"))]
    assert len(others) <= 10, "\n".join(printed)


def test_past_the_deadline_the_process_ends_and_says_so(tmp_path):
    with running(tmp_path, "--stop-within", "0 ms") as run:
        run.send_signal(signal.SIGINT)
        assert run.wait() == ExitCode.TOO_LATE, (tmp_path / "err.log").read_text()[-3000:]


SCRIPT = """
if __name__ == "__main__":
    build(tg.session("counter", master="local[2]")).run(checkpoint=tg.Checkpointing(dir="checkpoints", interval="500 ms"))
    print("after the job")
"""


def test_sigterm_ends_a_script_as_it_ends_tidegate_run(tmp_path):
    (tmp_path / "script.py").write_text(JOB + SCRIPT)
    with (tmp_path / "err.log").open("w") as err:
        script = subprocess.Popen(
            [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=err, text=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        )  # fmt: skip
    try:
        process_until_output(script, tmp_path)
        script.send_signal(signal.SIGTERM)
        out, _ = script.communicate()
        said = (tmp_path / "err.log").read_text()
        assert script.returncode == ExitCode.ENDED, said[-3000:]
    finally:
        script.kill()
        script.wait()
    assert out == "after the job\n"
    assert "SIGTERM: the job stops, within 25 s" in said
    assert "job counter is CANCELED" in said


def process_until_output(process: subprocess.Popen[str], folder: Path) -> None:
    while not list((folder / "out").glob("*.json")):
        assert process.poll() is None, (folder / "err.log").read_text()[-3000:]
        try:
            process.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
