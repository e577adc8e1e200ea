"""Python's garbage collector while a task reads rows: seldom, but not never.

Our own rows are tuples and generators without cycles, and the collector would only walk them again and again, and with them
every module that the worker has loaded. User code may make cycles, though, and a task may read for hours.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000
"""How many more containers must have been made than let go before the youngest are looked at. Python's default is 700."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """What exists already is not looked at within the block; what comes to be is, every `YOUNG` objects."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
