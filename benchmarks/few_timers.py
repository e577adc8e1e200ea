"""Few timers in the state of one task, without Spark: in RocksDB, and on the heap with everything else in RocksDB.

Every epoch fires the 100 timers that the epoch before registered, and registers 100, while none, 1,000 and more wait for a time
that does not come. In one case timers fire in the epoch that registers them. A sample is the processor time of the timers of an
epoch: reading, firing, registering, and writing to the database, without opening and sealing the version.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks import harness
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.core.times import TimeDomain
from tidegate.schema.schema import DataType
from tidegate.state.accessors.heap_timers import HeapTimers
from tidegate.state.accessors.timers import TimerState
from tidegate.state.backends import backend_named
from tidegate.state.keys.entry_keys import KeyCodec
from tidegate.state.version import VersionId

FACTORY = "state.backend.rocksdb.timer-service.factory"
PLACES = {"rocksdb": TimerState, "heap": HeapTimers}
FIRING = 100
"""Timers that an epoch registers, and fires."""
_EPOCH_MS, _NEVER_MS = 1_000, 1 << 40
_GROUPS, _CODEC = (0, 31), KeyCodec([DataType("bigint")])
_DOMAIN = TimeDomain.EVENT_TIME


def few_timers(epochs: int, waiting: Iterable[int]) -> dict[str, harness.Figure]:
    """Microseconds of processor time, by case and place."""
    cases = {"fired in their epoch": (0, True)} | {f"{n:,} others wait": (n, False) for n in waiting}
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as scratch:
        tasks = {
            f"{case}, {place}": _Task(Path(scratch) / f"{case}-{place}", place, *which)
            for case, which in cases.items()
            for place in PLACES
        }
        return harness.interleave({name: task.epoch_us for name, task in tasks.items()}, epochs, what="few", unit="µs")


class _Task:
    """The timers of one task: 100 fire in every epoch, the others wait."""

    def __init__(self, directory: Path, place: str, waiting: int, at_once: bool) -> None:
        self._directory, self._kind, self._at_once = directory, PLACES[place], at_once
        self._backend = backend_named("rocksdb", {FACTORY: place})
        self._number, self._version = 0, None
        self._epoch(waiting)

    def epoch_us(self) -> float:
        seconds, fired = self._epoch(0)
        if fired != FIRING:
            raise AssertionError(f"{fired} timers fired")
        return seconds * 1e6

    def _epoch(self, more: int) -> tuple[float, int]:
        """Fire what is due, register the next ones and so many that wait. Returns the processor time, and how many fired."""
        self._number += 1
        target = VersionId(EpochId(Term(1), self._number), AttemptId(self._number))
        store = self._backend.begin(self._directory, self._version, target, _GROUPS)
        store.get(b"opens the database")
        begun = time.process_time()
        timers = self._kind(store, 3, _CODEC, _GROUPS)
        now_ms = self._number * _EPOCH_MS
        fired = 0 if self._at_once else sum(1 for _ in timers.due(_DOMAIN, now_ms))
        due_ms = now_ms if self._at_once else now_ms + _EPOCH_MS
        for n in range(FIRING):
            timers.register(_DOMAIN, due_ms, n, n % 32)
        for n in range(more):
            timers.register(_DOMAIN, _NEVER_MS + n, n, n % 32)
        if self._at_once:
            fired = sum(1 for _ in timers.due(_DOMAIN, now_ms))
        timers.flush()
        took = time.process_time() - begun
        store.seal()
        self._backend.tidy(self._directory, Term(1), [target])
        self._version = target
        return took, fired
