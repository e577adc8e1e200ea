"""Reports from a Python worker process that the tasks of a long epoch make progress.

One thread of the process compares, at an interval, how far its tasks are: rows taken and emitted, timers fired, files read and
stored. If anything has moved, it leaves a mark for the driver (`runtime.exchange.progress_marks`). Tasks only say where to
look; nothing is counted for it on the path of a row. An epoch that is shorter than the interval leaves no mark.

A process that is stopped, and a function that waits for something, leave none either: that is what the driver wants to know.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tidegate.core.ids import EpochId, Lineage
from tidegate.runtime.exchange.assignment import TaskAssignment
from tidegate.runtime.exchange.progress_marks import MarkPlace
from tidegate.storage import StorageError

log = logging.getLogger("tidegate")

Position = Callable[[], object]
"""How far a task is: any value that differs when something has moved. Called by another thread than the task's."""


@dataclass(kw_only=True)
class EpochProgress:
    """The tasks of one epoch in this process. Pure, except that it asks the tasks where they are."""

    epoch: EpochId
    every_s: float
    leave: Callable[[], None]
    """Leaves a mark for the driver."""
    since_s: float
    """When the process ran the first task of the epoch, in monotonic time."""
    running: dict[int, Position] = field(default_factory=dict)
    ended: int = 0
    """How many attempts have ended here."""
    _marked: object = None

    def look(self, now_s: float) -> None:
        """Leave a mark if a task runs and something has moved since the last mark, unless the epoch is young.

        Without a running task there is nothing to report: the epoch may be over, and so may the job. A mark left then would
        change a directory that the user believes to be at rest, and no sweep would delete it.
        """
        if not self.running or now_s - self.since_s < self.every_s:
            return
        position = (self.ended, tuple((attempt, where()) for attempt, where in tuple(self.running.items())))
        if position != self._marked:
            self.leave()
            self._marked = position


class ProgressReporter:
    """The progress of all jobs that share this process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Condition()
        self._epochs: dict[Lineage, EpochProgress] = {}
        """The latest epoch of each job."""
        self._shortest_s = float("inf")
        """The shortest interval of them, when the thread looked last."""
        self._thread: threading.Thread | None = None

    @contextmanager
    def reporting(self, assignment: TaskAssignment, attempt: int, position: Position) -> Iterator[None]:
        """Within the block, the progress of a task is reported."""
        if not assignment.mark_every_ms:
            yield
            return
        progress = self._begin(assignment)
        progress.running[attempt] = position
        try:
            yield
        finally:
            progress.running.pop(attempt, None)
            progress.ended += 1

    def look(self) -> None:
        """Leave the marks that are due."""
        for progress in tuple(self._epochs.values()):
            try:
                progress.look(self._now())
            except (OSError, StorageError) as error:
                log.info("the progress of epoch %s could not be reported: %s", progress.epoch, error)
            except Exception:
                # A position is read while its task changes it. The next look succeeds.
                log.debug("the progress of epoch %s could not be read", progress.epoch, exc_info=True)

    def _begin(self, assignment: TaskAssignment) -> EpochProgress:
        with self._lock:
            progress = self._epochs.get(assignment.lineage)
            if progress is None or progress.epoch != assignment.epoch:
                every_s = assignment.mark_every_ms / 1000
                place = MarkPlace(assignment.job, assignment.lineage, assignment.archive, assignment.local_dir)
                leave = partial(place.leave, assignment.epoch, every_s / 2)
                progress = EpochProgress(epoch=assignment.epoch, every_s=every_s, leave=leave, since_s=self._now())
                self._epochs[assignment.lineage] = progress
                # The thread sleeps according to the shortest interval that it knew when it looked last.
                if every_s < self._shortest_s:
                    self._lock.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidegate-progress", daemon=True)
                self._thread.start()
            return progress

    def _run(self) -> None:
        while True:
            with self._lock:
                self._shortest_s = min(progress.every_s for progress in self._epochs.values())
                # Twice within the interval: a mark is late by half of it at most.
                self._lock.wait(self._shortest_s / 2)
            self.look()


REPORTER = ProgressReporter()
"""Of this process."""
