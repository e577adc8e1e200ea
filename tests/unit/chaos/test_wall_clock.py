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


WAIT = """
import ctypes, time

class Moment(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

libc = ctypes.CDLL(None)
condition, mutex = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64)
libc.LOCK(mutex)
until, begun = time.time() + 1.0, time.monotonic()
moment = Moment(int(until), int(until % 1 * 1e9))
libc.WAIT(condition, mutex, ctypes.byref(moment))
print(time.monotonic() - begun)
"""


@pytest.mark.parametrize(
    "calls",
    [("pthread_mutex_lock", "pthread_cond_timedwait"), ("mtx_lock", "cnd_timedwait")],
    ids=["posix", "c11"],
)
@pytest.mark.parametrize("offset_s", [0.0, -7200.0, 3000.0])
def test_a_wait_until_a_moment_of_the_wall_clock_takes_as_long_as_it_says(tmp_path, offset_s, calls):
    """As librdkafka waits, by either name. With the moment unchanged it would end at once, or an hour late."""
    clock = WallClock(tmp_path)
    clock.set(offset_s)
    told = subprocess.run(
        [sys.executable, "-c", WAIT.replace("LOCK", calls[0]).replace("WAIT", calls[1])],
        env=os.environ | clock.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    assert 0.9 < float(told.stdout) < 30
