"""One status line for people: rewritten in place on a terminal, silent anywhere else."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from tidegate.checkpoint.coordination.statistics import CheckpointStats, CheckpointStatsTracker
from tidegate.core.clock import SYSTEM_CLOCK, WallMs
from tidegate.core.durations import show_ms
from tidegate.runtime.epochs.reports import EpochReport

_EVERY_S = 0.5


class Progress:
    """Shows the latest epoch and the latest checkpoint. Without a terminal it is silent: the log contains all of it."""

    def __init__(self, job: str, stream: TextIO | None = None) -> None:
        self._job = job
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty()
        self._last = 0.0

    def begin(self) -> None:
        """Show a line before the first epoch, which waits for executors and Python workers to start."""
        self._write(f"{self._job}  waiting for the first rows …")

    def epoch(self, report: EpochReport, checkpoints: CheckpointStatsTracker | None) -> None:
        now = time.monotonic()
        if self._shown and now - self._last >= _EVERY_S:
            self._last = now
            self._write(line(self._job, report, checkpoints, SYSTEM_CLOCK.now().wall_ms))

    def end(self, text: str = "") -> None:
        """Leave the line, with a final message below it."""
        self._put(f"\n{text}\n" if text else "\n")

    def _write(self, text: str) -> None:
        self._put(f"\r\033[K{text}")

    def _put(self, text: str) -> None:
        if self._shown:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                self._shown = False  # The terminal is gone. That is no reason to end the job.


def line(job: str, report: EpochReport, checkpoints: CheckpointStatsTracker | None, now_ms: WallMs) -> str:
    """`orders  epoch 3.41  12,400 rows/s  checkpoint 17: 2 s ago, 4.1 MB of 80.2 MB, 0.8 s`"""
    rate = report.rows_in * 1000 // max(1, report.duration_ms)
    text = f"{job}  epoch {report.epoch}  {rate:,} rows/s"
    if checkpoints is None:
        return f"{text}  no checkpoints"
    newest, failed = checkpoints.latest_completed, checkpoints.latest_failed
    text += "  " + ("no checkpoint yet" if newest is None else _checkpoint(newest, now_ms))
    if failed is not None and (newest is None or failed.id > newest.id):
        text += f"  checkpoint {failed.id} FAILED: {failed.failure_message}"
    return text


def _checkpoint(newest: CheckpointStats, now_ms: WallMs) -> str:
    age_s = max(0, now_ms - newest.trigger_timestamp - newest.end_to_end_ms) // 1000
    size, full = _bytes(newest.checkpointed_size_bytes), _bytes(newest.state_size_bytes)
    return f"checkpoint {newest.id}: {age_s} s ago, {size} of {full}, {show_ms(newest.end_to_end_ms)}"


def _bytes(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"
