"""The daemon that forks Python workers has loaded what they need, and has no second thread."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.waiting import eventually
from tidegate.runtime.epochs.worker_daemon import MODULE, SPARKS_OWN

LOADS = f"from {MODULE} import load, threads; load(); import sys; print(threads(), 'pyarrow' in sys.modules)"


def environment(more: Mapping[str, str]) -> dict[str, str]:
    return {**os.environ, **more}


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_what_is_loaded_starts_no_thread():
    done = subprocess.run(
        [sys.executable, "-c", LOADS],
        env=environment({"OMP_NUM_THREADS": "1"}),  # as Spark sets it
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "True"]


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
@pytest.mark.parametrize(
    ("more", "daemon"),
    [
        ({"OMP_NUM_THREADS": "1"}, MODULE),
        ({"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:true"}, SPARKS_OWN),
    ],
)
def test_sparks_own_daemon_takes_over_if_there_is_a_second_thread(more, daemon):
    with subprocess.Popen(
        [sys.executable, "-m", MODULE, "pyspark.worker"],
        env=environment(more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.read(4)  # the port on which it waits for requests
        assert daemon in Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
        process.stdin.close()
        eventually(lambda: process.poll() is not None, "the daemon ends when Spark closes its input")
