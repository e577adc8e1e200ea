"""The clock that walks set: it moves wall time, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time

import pytest

from chaos.wall_clock import WallClock

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

TELL = "import time, datetime as d; print(time.time(), d.datetime.now().timestamp(), time.monotonic())"


@pytest.mark.parametrize("offset_s", [0.0, -7200.0, 3000.0])
def test_processes_see_another_wall_time_and_the_same_monotonic_time(tmp_path, offset_s):
    clock = WallClock(tmp_path)
    clock.set(offset_s)
    told = subprocess.run(
        [sys.executable, "-S", "-c", TELL],
        env=os.environ | clock.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    wall, date, monotonic = map(float, told.stdout.split())
    assert wall - time.time() == pytest.approx(offset_s, abs=60)
    assert date - wall == pytest.approx(0, abs=60)
    assert monotonic - time.monotonic() == pytest.approx(0, abs=60)
    assert clock.offset_s == offset_s
