"""How long a job waits for Spark before it tries again. Nothing is interrupted that makes progress."""

from __future__ import annotations

from tidegate.config.option import DURATION, Option

TITLE = "Waiting for Spark"

PROGRESS_TIMEOUT: Option[int] = Option(
    "execution.epoch.progress-timeout",
    DURATION,
    600_000,
    "An epoch in which no task has taken a row, fired a timer, or read or stored a file for this long is interrupted and "
    "repeated, with twice the time. An epoch that makes progress may take as long as it needs. Six times as long while Spark "
    "reads the sources, or tasks restore state: nothing is heard of that. 0: never. Not in Flink.",
)
SLOT_TIMEOUT: Option[int] = Option(
    "slot.request.timeout",
    DURATION,
    300_000,
    "How long a starting job waits for the next of its tasks to get a core and a Python worker, and for Spark to start the "
    "Python process that plans a source. If none does for this long, the start fails, and the restart strategy decides.",
)
