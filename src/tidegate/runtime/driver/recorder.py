"""Keeps the record of a run in storage: what a job did and how it failed can be read when its driver is gone.

Each term has one record, `JOB/runs/TERM`, which its driver overwrites. Nothing is decided by it, and no two drivers share a term,
so a driver that lost its job does no harm by writing. If storage refuses, the job continues and the record is old.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tidegate.checkpoint.layout import JobLayout
from tidegate.core.ids import Term
from tidegate.runtime.monitoring.run_report import RunReport
from tidegate.storage import ObjectMissing, Storage, StorageError

log = logging.getLogger("tidegate")

KEPT = 20
"""Records of so many terms are kept."""
EVERY_S = 30.0
"""How old a record gets while only epochs pass."""
PAUSE_S = 5.0
"""The least time between two records, except when the status changes or something fails."""
_POLL_S = 0.5


class RunRecorder:
    """A thread that writes the record when something happened. `close` waits for the last one."""

    def __init__(
        self,
        storage: Storage,
        layout: JobLayout,
        report: Callable[[], RunReport],
        notable: Callable[[], tuple[Any, Any]],
        ended: threading.Event,
    ) -> None:
        """`notable` returns two values: what must be recorded at once when it changes, and what may wait for `PAUSE_S`."""
        self._storage = storage
        self._layout = layout
        self._report = report
        self._notable = notable
        self._ended = ended
        self._term: Term | None = None
        """The term of the last record."""
        self._thread = threading.Thread(target=self._run, name="tidegate-record", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the last record, after the run has ended."""
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        last: tuple[Any, Any] = (None, None)
        # The first record is due at once.
        written = -EVERY_S
        refused = False
        while True:
            # Before the report is made: the last record must be of a run that has ended.
            over = self._ended.is_set()
            now, (urgent, other) = time.monotonic(), self._now(last)
            age = now - written
            if over or urgent != last[0] or (other != last[1] and age >= PAUSE_S) or age >= EVERY_S:
                refused = self._write(repeated=refused)
                # Also if storage refused: the next try comes with the next change, or after `EVERY_S`, and does not knock every
                # half second.
                last, written = (urgent, other), now
            if over:
                return
            self._ended.wait(_POLL_S)

    def _now(self, last: tuple[Any, Any]) -> tuple[Any, Any]:
        """What is notable now, or was at the last look: an error here must not end the thread."""
        try:
            return self._notable()
        except Exception:
            log.debug("could not read what is notable about the run", exc_info=True)
            return last

    def _write(self, repeated: bool) -> bool:
        """Return whether storage refused. `repeated`: it refused the last record as well, and the log says so."""
        try:
            report = self._report()
            self._storage.put(self._layout.run(report.term), report.to_bytes())
            if report.term != self._term:
                # A driver may claim its job again any number of times: the records of its own terms are removed, too.
                self._term = report.term
                with contextlib.suppress(StorageError):
                    remove_old(self._storage, self._layout)
        except StorageError as error:
            if not repeated:
                log.warning("the record of the run could not be written, and pages about it may be old: %s", error)
            return True
        except Exception:
            # Nothing depends on the record, and the job must not.
            log.debug("the record of the run could not be made", exc_info=True)
            return True
        return False


def recorded_terms(storage: Storage, layout: JobLayout) -> list[Term]:
    """The terms that have a record, newest first."""
    names = [each.path.rpartition("/")[2] for each in storage.list(layout.runs)]
    return sorted((Term(int(name)) for name in names if name.isdecimal()), reverse=True)


def recorded_runs(storage: Storage, layout: JobLayout) -> Iterator[RunReport]:
    """The records that this version can read, newest first. Each is read when the caller comes to it."""
    for term in recorded_terms(storage, layout):
        try:
            yield RunReport.from_bytes(storage.get(layout.run(term)))
        except (ObjectMissing, ValueError):
            continue


def remove_old(storage: Storage, layout: JobLayout) -> None:
    """Remove all records but those of the last terms."""
    storage.delete(layout.run(term) for term in recorded_terms(storage, layout)[KEPT:])
