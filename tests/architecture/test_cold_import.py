"""`import tidegate` is quick and brings no heavy library along.

Time is that of the processor, the best of five: neighbours on a shared machine would otherwise decide.
"""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyspark", "pyarrow", "numpy", "pandas", "rocksdict", "obstore")
LIMIT_MS = 150
PROBE = """
import sys, time
start = time.process_time()
import tidegate
tidegate.Job, tidegate.ValueState
print((time.process_time() - start) * 1000, *(m for m in sys.modules if m.partition(".")[0] in {heavy!r}))
"""


def test_cold_import() -> None:
    times = []
    for _ in range(5):
        probe = subprocess.run(
            [sys.executable, "-c", PROBE.format(heavy=HEAVY)], capture_output=True, text=True, check=True
        )
        milliseconds, *heavy = probe.stdout.split()
        assert not heavy
        times.append(float(milliseconds))
    assert min(times) < LIMIT_MS
