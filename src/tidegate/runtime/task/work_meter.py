"""Measures where the time of one task attempt goes, at a cost for every batch and none for every row."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from tidegate.runtime.exchange.messages import HostResources, TaskMetrics
from tidegate.storage import MeteredStorage

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


class Stopwatch:
    """Adds up the time spent in its `with` blocks."""

    def __init__(self) -> None:
        self.seconds = self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self.seconds += time.monotonic() - self._started


class WorkMeter:
    """A task is idle while it waits for input, held while nobody takes its output, and busy otherwise, as in Flink."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self._started = time.monotonic()
        self._started_ms = time.time_ns() // 1_000_000
        self._idle_s = self._held_s = 0.0
        self._bytes_in = self._bytes_out = 0
        self.restoring = Stopwatch()
        self.sealing = Stopwatch()

    def input(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches. The time until each arrives is idle time."""
        return self._timed_input(iter(batches)) if self.enabled else iter(batches)

    def _timed_input(self, source: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        while True:
            before = time.monotonic()
            batch = next(source, None)
            # Also after the last batch: a task waits for the end of its input, too.
            self._idle_s += time.monotonic() - before
            if batch is None:
                return
            self._bytes_in += batch.nbytes
            yield batch

    def output(self, batches: Generator[pa.RecordBatch, None, None]) -> Generator[pa.RecordBatch, None, None]:
        """The same batches. The time until the next one is asked for is held time."""
        with closing(batches):  # At once, when Spark abandons the attempt: it then drops what it wrote.
            if not self.enabled:
                yield from batches
                return
            for batch in batches:
                self._bytes_out += batch.nbytes
                before = time.monotonic()
                yield batch
                self._held_s += time.monotonic() - before

    def metrics(
        self,
        fired_timers: int,
        downloads: MeteredStorage | None = None,
        *,
        failed_rows: int = 0,
        source_rows: dict[str, int] | None = None,
        storage: dict[str, tuple[int, int]] | None = None,
        resources: HostResources = HostResources(),  # noqa: B008 immutable
    ) -> TaskMetrics:
        if not self.enabled:
            return TaskMetrics(failed_rows=failed_rows, source_rows=source_rows or {}, storage=storage or {})
        total_s = time.monotonic() - self._started
        return TaskMetrics(
            busy_ms=_ms(total_s - self._idle_s - self._held_s),
            bytes_in=self._bytes_in,
            bytes_out=self._bytes_out,
            idle_ms=_ms(self._idle_s),
            held_ms=_ms(self._held_s),
            restore_ms=_ms(self.restoring.seconds),
            seal_ms=_ms(self.sealing.seconds),
            fired_timers=fired_timers,
            resident_bytes=resident_bytes(),
            failed_rows=failed_rows,
            source_rows=source_rows or {},
            storage=storage or {},
            resources=resources,
            started_ms=self._started_ms,
            download_ms=0 if downloads is None else _ms(downloads.read_seconds),
            download_bytes=0 if downloads is None else downloads.read_bytes,
        )


def resident_bytes() -> int:
    """Resident memory of this process; 0 where there is no /proc."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
