"""A wall clock that can be set, for processes that are started with it: Python and the JVM alike.

libfaketime was tried first and does not do: with it `time.sleep` fails in Python 3.11, and waits of the JVM end early, even
when told to leave monotonic time alone. `wall_clock.c` changes the wall clock and nothing else.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")


class WallClock:
    """Off by nothing at first. `environment` is for the processes that are to go by it."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise RuntimeError(
                "Clock jumps need a C compiler (cc), to build what stands between a process and its clock."
            )
        library, shared = folder / "wall_clock.so", folder / "wall_clock.offset"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)
        shared.write_bytes(struct.pack("d", 0.0))
        with shared.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8)
        self.environment = {"LD_PRELOAD": str(library), "CHAOS_WALL_CLOCK": str(shared)}

    @property
    def offset_s(self) -> float:
        (offset_s,) = struct.unpack("d", self._shared[:8])
        return float(offset_s)

    def set(self, offset_s: float) -> None:
        """From now on, for all of these processes, running or not."""
        self._shared[:8] = struct.pack("d", offset_s)
