"""A reporter: a listener that may also read the metrics of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from tidegate.events.listener import JobListener
from tidegate.metrics.metric import Sample

ReadSamples: TypeAlias = Callable[[], Iterable[Sample]]


class Reporter(JobListener):
    """Created before the job starts; `watch` follows when there is something to read."""

    def watch(self, samples: ReadSamples) -> None:
        """The run has started. `samples` returns the current value of every metric, and may be called by any thread."""
