"""A run as the result of a cell, in a real kernel of IPython."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

CELL = """
from tests.unit.runtime.driver.test_job_html import Run
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
    assert await_shown(kernel, "update_display_data", "FINISHED") == first
    kernel.execute("import threading; print([t.name for t in threading.enumerate()])")
    assert "tidegate-notebook" not in _printed(kernel)


def _printed(kernel: BlockingKernelClient) -> str:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        message = kernel.get_iopub_msg(timeout=10)
        if message["msg_type"] == "stream":
            return str(message["content"]["text"])
    raise AssertionError("nothing was printed")
