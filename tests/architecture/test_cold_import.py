"""`import tidegate` is quick and brings no heavy library along.

Time is that of the processor, the best of up to fifteen tries, and counted in loops of a million turns: neighbours on a shared
machine would otherwise decide. The same machine took between 110 and 180 ms within an hour, and always between 2.2 and 2.5 loops.
"""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("pyspark", "pyarrow", "numpy", "pandas", "rocksdict", "obstore")
LIMIT_LOOPS = 3.0
PROBE = """
import sys, time
start = time.process_time()
for _ in range(1_000_000):
    pass
loop = time.process_time() - start
start = time.process_time()
import tidegate
tidegate.Job, tidegate.ValueState
print((time.process_time() - start) / loop, *(m for m in sys.modules if m.partition(".")[0] in {heavy!r}))
"""


def test_cold_import() -> None:
    loops = []
    for _ in range(15):
        probe = subprocess.run(
            [sys.executable, "-c", PROBE.format(heavy=HEAVY)], capture_output=True, text=True, check=True
        )
        taken, *heavy = probe.stdout.split()
        assert not heavy
        loops.append(float(taken))
        if loops[-1] < LIMIT_LOOPS:
            return
    raise AssertionError(f"import tidegate takes as long as {min(loops):.1f} loops, and may take {LIMIT_LOOPS}")
