"""Runs Python's garbage collector rarely, but not never, while a task reads rows.

Our own rows are tuples and generators without cycles; the collector would only traverse them repeatedly, along with every
module that the worker has loaded. User code may create cycles, though, and a task may read for hours.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

YOUNG = 50_000
"""Allocations of containers, less deallocations, before the youngest generation is collected. Python's default is 700."""


WHOLE_EVERY = 32
"""After so many attempts of a worker, everything is collected once. What an attempt leaves behind has cycles (functions,
accessors and operators refer to each other) and would otherwise wait in the oldest generation, which Python hardly ever
collects."""
_attempts = count(1)


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """Within the block, existing objects are not traversed; new ones are, every `YOUNG` objects."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        if next(_attempts) % WHOLE_EVERY == 0:
            gc.collect()
