"""Python workers that start with everything loaded: `spark.python.daemon.module=tidegate.runtime.epochs.worker_daemon`.

On each executor, a daemon forks the Python workers. Spark's own has loaded nothing, so every worker imports numpy, pyarrow and
tidegate for itself, which takes a second of processor time or more. This one imports them once, before it forks.

Spark leaves imports to the workers because a process must have only one thread when it forks, and some modules start threads when
they are imported. Of those imported here, pyarrow's allocator starts one unless it is told not to, and numpy starts some if
`OMP_NUM_THREADS`, which Spark sets to 1, says so. If there is a second thread after all, Spark's own daemon takes over.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

SETTING = "spark.python.daemon.module"
MODULE = "tidegate.runtime.epochs.worker_daemon"
SPARKS_OWN = "pyspark.daemon"
_LOADED = ("pyspark.worker", "tidegate.runtime.task.run_level")
"""What each task imports."""


def load() -> None:
    """Import what tasks need, without starting a thread."""
    # Without its thread, the allocator returns unused memory while it allocates.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for name in _LOADED:
        importlib.import_module(name)
    # Workers share the pages of what never changes, as long as no collection of garbage writes to them.
    gc.collect()
    gc.freeze()


def threads() -> int:
    """How many threads this process has. Where the system does not say, more than one: then nothing is risked."""
    tasks = Path("/proc/self/task")
    return len(list(tasks.iterdir())) if tasks.exists() else 2


def main() -> None:
    load()
    # A lock that another thread holds during the fork stays locked in the child for ever.
    if threads() > 1:
        os.execv(sys.executable, [sys.executable, "-m", SPARKS_OWN, *sys.argv[1:]])
    importlib.import_module(SPARKS_OWN).manager()


if __name__ == "__main__":
    main()
