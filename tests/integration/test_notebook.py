"""A run as the result of a cell, in a real kernel of IPython."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

CELL = """
from tests.unit.runtime.monitoring.test_job_html import Run
from tidegate.runtime.driver import notebook

notebook._EVERY_S = 0.1
run = Run()
run
"""


@pytest.fixture
def kernel() -> Iterator[BlockingKernelClient]:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def await_shown(kernel: BlockingKernelClient, kind: str, part: str) -> str:
    """Wait for a message that shows `part`, and return the id of its display."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            message = kernel.get_iopub_msg(timeout=1)
        except queue.Empty:
            continue
        assert message["msg_type"] != "error", message["content"]
        if message["msg_type"] == kind and part in message["content"]["data"].get("text/html", ""):
            return message["content"]["transient"]["display_id"]
    raise AssertionError(f"nothing showed {part!r}")


def test_a_run_in_a_cell_follows_the_job_to_its_end(kernel: BlockingKernelClient) -> None:
    kernel.execute(CELL)
    first = await_shown(kernel, "display_data", "RUNNING")
    kernel.execute("run.told['restarts'] = 3")
    assert await_shown(kernel, "update_display_data", "restarts 3") == first
    kernel.execute("run.told['status'], run.has_ended = 'FINISHED', True")
    assert await_shown(kernel, "update_display_data", "Finished") == first
    kernel.execute("import threading; print([t.name for t in threading.enumerate()])")
    assert "tidegate-notebook" not in _printed(kernel)


def _printed(kernel: BlockingKernelClient) -> str:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        message = kernel.get_iopub_msg(timeout=10)
        if message["msg_type"] == "stream":
            return str(message["content"]["text"])
    raise AssertionError("nothing was printed")


class Cells:
    """Runs cells one after the other in a kernel, and returns what they print."""

    def __init__(self, kernel: BlockingKernelClient) -> None:
        self._kernel = kernel

    def run(self, code: str, timeout_s: float = 120) -> str:
        id = self._kernel.execute(code)
        return self.answer(id, timeout_s)

    def answer(self, id: str, timeout_s: float = 120) -> str:
        printed, until = "", time.monotonic() + timeout_s
        while time.monotonic() < until:
            try:
                message = self._kernel.get_iopub_msg(timeout=1)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != id:
                continue
            content = message["content"]
            if message["msg_type"] == "stream" and content["name"] == "stdout":
                printed += content["text"]
            if message["msg_type"] == "error":
                printed += f"{content['ename']}: {content['evalue']}"
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return printed
        raise AssertionError(f"the cell did not end: {printed}")


SESSION = """
import threading, time
import tidegate as tg

spark = tg.session("cells", master="local[2]", config={"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"})
folder = FOLDER
import pathlib
pathlib.Path(folder, "in").mkdir()

def order(number, amount):
    draft = pathlib.Path(folder, "draft")
    draft.write_text('{"user": "ann", "amount": %s}' % amount)
    draft.rename(pathlib.Path(folder, "in", f"{number}.json"))

def until(done):
    latest = time.monotonic() + 60
    while not done():
        assert time.monotonic() < latest
        time.sleep(0.05)

order(1, 5)
"""
FUNCTION = """
class Totals(tg.KeyedProcessFunction):
    total = tg.ValueState(float, default=0.0)

    def process_element(self, row, ctx):
        self.total.update(self.total.value() + row.amount)
        yield "VERSION", self.total.value()
"""
START = """
job = tg.Job("cells", parallelism=2)
orders = spark.readStream.schema("user string, amount double").json(folder + "/in")
out = tg.CollectSink()
job.source("orders", orders).key_by("user").process("totals", Totals(), schema="version string, total double").sink("out", out)
run = job.start(checkpoint=tg.Checkpointing(dir=folder + "/checkpoints", interval="1 s"), restart=True)
run
"""


@pytest.mark.budget(300)
def test_cells_that_change_and_restart_a_job(kernel: BlockingKernelClient, tmp_path: Path) -> None:
    cells = Cells(kernel)
    assert cells.run(SESSION.replace("FOLDER", repr(str(tmp_path)))) == ""
    assert cells.run(FUNCTION.replace("VERSION", "first")) == ""
    assert cells.run(START) == ""
    assert cells.run("until(lambda: out.rows); print(*map(tuple, out.rows))") == "('first', 5.0)\n"

    # The cell that defines the function is changed; the one that starts the job is run again, twice.
    cells.run(FUNCTION.replace("VERSION", "second"))
    cells.run("order(2, 2)")
    assert cells.run(START) == ""
    assert cells.run("until(lambda: out.rows); print(*map(tuple, out.rows))") == "('second', 7.0)\n"
    cells.run("order(3, 1)")
    assert cells.run(START) == ""
    assert cells.run("until(lambda: out.rows); print(*map(tuple, out.rows))") == "('second', 8.0)\n"
    assert cells.run("print(len(spark.streams.active), run.status, run.metrics()['numRestarts'])") == "1 RUNNING 0\n"

    # Without restart=True, the cell says what to do.
    refused = cells.run(START.replace(", restart=True", ""))
    assert "already running in this process" in refused

    # An interrupted cell that waits ends; the job does not.
    waiting = kernel.execute("print('waits', flush=True); run.await_termination()")
    time.sleep(2)
    kernel.parent.interrupt_kernel()
    assert "KeyboardInterrupt" in cells.answer(waiting)
    cells.run("order(4, 1)")
    both = "until(lambda: sum(report.rows_in for report in run.reports) == 2)"
    assert cells.run(f"{both}; print(run.status, run.restarts)") == "RUNNING 0\n"

    cells.run("run.stop()")
    left = "[t.name for t in threading.enumerate() if t.name.startswith('tidegate')]"
    assert cells.run(f"until(lambda: not {left}); print(len(spark.streams.active))") == "0\n"
    cells.run("spark.stop()")
