"""How fast this machine is at this moment, for limits that a loaded machine must reach as well.

A limit in a test is there to end a test that hangs. It says how long the work may take while nothing else runs, and is stretched
by what is measured when it has passed: a shared machine can be fast at the start of a test and slow at its end.
"""

from __future__ import annotations

import time

REFERENCE_S = 0.08
"""What the sample takes on an idle core of the machine for which limits were chosen."""
MOST = 10.0
"""A test that needs more than ten times its limit hangs, whatever the machine does."""
_ROUNDS = 600_000


def slowness() -> float:
    """How many times longer a thread needs for a fixed amount of work than on an idle core; between 1 and 10.

    The sample is longer than a time slice of the scheduler, so it shares its core as any other thread does.
    """
    begun = time.perf_counter()
    total = 0
    for number in range(_ROUNDS):
        total += number & 7
    return min(max(1.0, (time.perf_counter() - begun) / REFERENCE_S), MOST)


class Limit:
    """A limit of time that begins when the object is made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begun = time.monotonic()

    def passed(self) -> bool:
        """Whether the time is over, also for a machine that is as slow as this one is now."""
        spent = time.monotonic() - self._begun
        return spent > self.seconds and spent > self.seconds * slowness()
