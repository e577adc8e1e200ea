"""Sources whose reader is a Python process that Spark could not start in time.

Spark plans a Python source, such as the one for Kafka, in a process beside its driver. It gives this process 10 s to start, which
no setting changes, and then ends the query. On a busy machine that says nothing about the source, the job or its state: the
query is simply started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

_LATE = ("Python worker failed to connect back", "Timed out while waiting for the Python worker to connect back")


def is_reader_late(error: BaseException) -> bool:
    """Whether a query ended because Spark did not wait long enough for the reader of a source."""
    text = str(error)
    return any(each in text for each in _LATE)


@dataclass(slots=True)
class ReaderPatience:
    """How long a job starts its query again, because the reader of a source is late every time."""

    clock: Callable[[], float] = time.monotonic
    _since_s: float | None = None
    starts: int = 0
    """How often a reader was late since the last batch."""

    def allows_another(self, timeout_ms: int) -> bool:
        """A reader was late: whether to start the query again."""
        now_s = self.clock()
        if self._since_s is None:
            self._since_s = now_s
        self.starts += 1
        return now_s - self._since_s < timeout_ms / 1000

    def reset(self) -> None:
        """The query has delivered a batch: its readers run."""
        self._since_s = None
        self.starts = 0
