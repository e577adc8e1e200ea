"""Storage in memory that applies and loses the answer, answers late, says "exists" to one's own write, and goes away.

The arbitration of put-if-absent is the product's own; only the store under it is simulated.
"""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from chaos.simulation.clock import Clock
from chaos.simulation.faults import CALM, Violation
from tidegate.storage.arbitration import arbitrate
from tidegate.storage.errors import ObjectMissing, StorageUnavailable
from tidegate.storage.port import Lost, Won
from tidegate.storage.retry import Patience

_STORE = "sim://"
_THREE_TRIES = Patience(attempts=3, sleep=lambda _: None, chance=lambda: 0.0)


class SimStorage:
    """`on_write` and `on_delete` are told of every change that happens, at the moment it happens."""

    def __init__(self, clock: Clock, rng: random.Random) -> None:
        self.objects: dict[str, bytes] = {}
        self.odds = CALM
        self.away_until_ms = 0.0
        """Until then nobody gets an answer, and some requests are applied nevertheless."""
        self.on_write: Callable[[str, bytes], None] = lambda path, data: None
        self.on_delete: Callable[[str], None] = lambda path: None
        self._clock = clock
        self._rng = rng
        self._names: list[str] = []

    def _chance(self, odds: float) -> bool:
        return odds > 0.0 and self._rng.random() < odds

    def _trouble(self, path: str) -> StorageUnavailable:
        return StorageUnavailable(_STORE, path, f"{path} did not answer (simulated).")

    def apply_put(self, path: str, data: bytes) -> None:
        if path not in self.objects:
            bisect.insort(self._names, path)
        elif self.objects[path] != data and not path.endswith("/owner"):
            raise Violation(f"{path} was written twice with different content")
        self.objects[path] = data
        self.on_write(path, data)

    def apply_create(self, path: str, data: bytes) -> bool:
        if path in self.objects:
            return False
        self.apply_put(path, data)
        return True

    def apply_delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path in self.objects:
                self.on_delete(path)
                del self.objects[path]
                del self._names[bisect.bisect_left(self._names, path)]

    def replace_below(self, prefix: str, objects: Mapping[str, bytes]) -> None:
        """Restore a folder from a backup."""
        for path in self.below(prefix):
            del self.objects[path]
        self.objects |= objects
        self._names = sorted(self.objects)

    def put(self, path: str, data: bytes) -> None:
        self._maybe(path, lambda: self.apply_put(path, data))

    def delete(self, paths: tuple[str, ...]) -> None:
        self._maybe(paths[0], lambda: self.apply_delete(paths))

    def _outage(self) -> bool:
        return self._clock.now_ms < self.away_until_ms

    def _maybe(self, path: str, act: Callable[[], None]) -> None:
        if self._outage():
            if self._rng.random() < 0.3:
                act()
            raise self._trouble(path)
        if self._chance(self.odds.unavailable):
            raise self._trouble(path)
        if self._chance(self.odds.late_apply):
            self._clock.after(self._rng.uniform(10, 4_000), act)
            raise self._trouble(path)
        act()
        if self._chance(self.odds.lost_answer):
            raise self._trouble(path)

    def create(self, path: str, data: bytes) -> Won | Lost:
        def send() -> bool:
            if self._outage():
                if self._rng.random() < 0.3:
                    self.apply_create(path, data)
                raise self._trouble(path)
            if self._chance(self.odds.unavailable):
                raise self._trouble(path)
            if self._chance(self.odds.late_apply):
                self._clock.after(self._rng.uniform(10, 4_000), lambda: self.apply_create(path, data) and None)
                raise self._trouble(path)
            made = self.apply_create(path, data)
            if self._chance(self.odds.lost_answer):
                raise self._trouble(path)
            return made and not self._chance(self.odds.lying_exists)

        def read() -> bytes:
            if self._outage() or self._chance(self.odds.unreadable):
                raise self._trouble(path)
            if path not in self.objects:
                raise ObjectMissing.of(_STORE, path)
            return self.objects[path]

        return arbitrate(_STORE, path, data, send, read, _THREE_TRIES)

    def get(self, path: str) -> bytes | None:
        if self._outage() or self._chance(self.odds.unavailable):
            raise self._trouble(path)
        return self.objects.get(path)

    def list(self, prefix: str) -> list[str]:
        if self._outage() or self._chance(self.odds.unavailable):
            raise self._trouble(prefix)
        return self.below(prefix)

    def below(self, prefix: str) -> Sequence[str]:
        low = bisect.bisect_left(self._names, prefix + "/")
        high = bisect.bisect_left(self._names, prefix + "0")  # "0" comes right after "/"
        return self._names[low:high]

    def folders(self, prefix: str) -> list[str]:
        found = self.list(prefix)
        return sorted({p[len(prefix) + 1 :].partition("/")[0] for p in found if "/" in p[len(prefix) + 1 :]})
