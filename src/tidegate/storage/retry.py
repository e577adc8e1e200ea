"""Retries with exponential backoff and jitter. The clock and the random source are injected."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidegate.core.errors import StorageError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """Up to `attempts` tries; the wait before try n + 1 is between half and all of `first_ms * factor ** (n - 1)`."""

    attempts: int = 7
    first_ms: int = 100
    factor: float = 2.0
    ceiling_ms: int = 10_000
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random

    def delay_ms(self, failures: int) -> float:
        # At least half of it, so that a wait is never next to nothing; the rest by chance, so that many tasks do not
        # return at once.
        full = min(self.ceiling_ms, self.first_ms * self.factor ** (failures - 1))
        return full * (0.5 + 0.5 * self.chance())

    def wait(self, failures: int) -> bool:
        """Wait after the given number of failures. Return False immediately if no try is left."""
        if failures >= self.attempts:
            return False
        self.sleep(self.delay_ms(failures) / 1000)
        return True

    def persist(self, act: Callable[[], T]) -> T:
        """Call `act` until it succeeds, fails permanently, or no try is left. `act` must be safe to repeat."""
        failures = 0
        while True:
            try:
                return act()
            except StorageError as error:
                failures += 1
                if not error.retryable or not self.wait(failures):
                    raise
