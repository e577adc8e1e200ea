"""What became of checkpoints, until functions are notified: the checkpoint loop adds, the thread that runs epochs takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from threading import Lock

from tidegate.core.ids import EpochId
from tidegate.runtime.exchange.assignment import CheckpointNotice

_MOST_WAITING = 1000
"""Notices that wait for one level. Beyond it the oldest are dropped: a later completion implies them."""


class CheckpointNotices:
    """Those of one term, for each level that has functions with the hooks. None for a job without such functions."""

    def __init__(self, levels: Iterable[int]) -> None:
        self._lock = Lock()
        self._waiting: dict[int, deque[CheckpointNotice]] = {level: deque(maxlen=_MOST_WAITING) for level in levels}

    def add(self, epoch: EpochId, *, complete: bool) -> None:
        """A checkpoint of this epoch is complete, or was aborted."""
        with self._lock:
            for waiting in self._waiting.values():
                waiting.append(CheckpointNotice(epoch.as_checkpoint_id, complete))

    def take(self, empty: bool) -> dict[int, tuple[CheckpointNotice, ...]]:
        """Begin an epoch: return what its tasks report to functions, by level, in the order of ids. `empty`: it has no rows,
        so the source stage has no tasks."""
        with self._lock:
            taken = [level for level, waiting in self._waiting.items() if waiting and not (empty and level == 0)]
            found = {level: tuple(sorted(set(self._waiting[level]))) for level in taken}
            for level in taken:
                self._waiting[level].clear()
            return found

    def are_waiting(self) -> bool:
        """Whether an epoch without rows would notify a function."""
        return any(waiting for level, waiting in self._waiting.items() if level > 0)
