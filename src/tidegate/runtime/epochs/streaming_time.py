"""How long Structured Streaming itself takes for a batch, and what the batch left unread, from the progress of a query."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

from tidegate.runtime.epochs.phases import between_epochs_ms
from tidegate.runtime.sources.pending_rows import pending_rows

_LOOK_S = 1.0
"""How often the progress is read: reading it takes a few milliseconds, and short epochs should not pay for it."""


class StreamingTime:
    """The time of the last batch that the query has reported. Used by one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_s: float | None = None
        self._last_ms: int | None = None
        self.pending_rows: int | None = None
        """Rows that the last batch left in its sources, as of the last look. None: no source reports it."""

    def ms(self, query: StreamingQuery) -> int | None:
        """Return it; None before the first report. Read again at most once a second."""
        now = self._clock()
        if self._looked_s is None or now - self._looked_s >= _LOOK_S:
            self._looked_s = now
            progress = query.lastProgress
            found = None if progress is None else between_epochs_ms(progress["durationMs"])
            # A progress without durations is one of a query that has read nothing: the last value still says most.
            self._last_ms = self._last_ms if found is None else found
            reported = [] if progress is None else [pending_rows(each) for each in progress.get("sources", ())]
            counts = [each for each in reported if each is not None]
            self.pending_rows = sum(counts) if counts else None
        return self._last_ms
