"""When epochs start: as often as possible, at an interval, or until the sources are exhausted.

Spark's own interval trigger uses the wall clock: if the clock is set back by two hours, it starts no batch for two hours.
The interval is therefore kept here, by monotonic time. A batch returns to Spark when its interval is over, and only then
does Spark look for the rows of the next one; while there are none, it looks again after an interval.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tidegate.core.durations import duration_ms
from tidegate.core.errors import GraphError

_POLLING_DELAY = "spark.sql.streaming.pollingDelay"
"""How long Spark waits before it polls sources again that had no rows. A query reads it when it starts."""


@dataclass(frozen=True, slots=True)
class EpochTrigger:
    """`job.run(trigger=…)`."""

    interval_s: float = 0.0
    """The minimum time from the start of one epoch with rows to the start of the next."""
    available_now: bool = False
    """Read the rows that are available, then end."""
    drain: bool = False
    """At that end, let all event time pass: no run follows."""

    @classmethod
    def parse(cls, given: Any, drain: bool = False, name: str = "trigger") -> EpochTrigger:
        """`name`: what the user calls the trigger, an argument or a flag. Raises GraphError."""
        found = cls._parse(given, name)
        if not drain:
            return found
        if not found.available_now:
            raise GraphError(
                "drain=True (--drain) closes all windows after the last row, but this job's input never ends. "
                "Add trigger='available-now', or drain the running job when you stop it: "
                "run.stop_with_savepoint(drain=True), `tidegate stop --drain`."
            )
        return replace(found, drain=True)

    @classmethod
    def _parse(cls, given: Any, name: str) -> EpochTrigger:
        match given:
            case None:
                return cls()
            case "available-now" | "availableNow":
                return cls(available_now=True)
            case interval:
                return cls(interval_s=_interval_ms(interval, name) / 1000)

    def start(self, spark: SparkSession, writer: DataStreamWriter) -> StreamingQuery:
        if self.available_now:
            writer = writer.trigger(availableNow=True)
        with self._polling(spark):
            return writer.start()

    @contextmanager
    def _polling(self, spark: SparkSession) -> Iterator[None]:
        if not self.interval_s:
            yield
            return
        # Of the session, not of the writer: a query reads it once, so it is set only while it starts.
        before = spark.conf.get(_POLLING_DELAY, None)
        spark.conf.set(_POLLING_DELAY, f"{round(self.interval_s * 1000)}ms")
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(_POLLING_DELAY)
            else:
                spark.conf.set(_POLLING_DELAY, before)


def _interval_ms(given: Any, name: str) -> int:
    try:
        return duration_ms(given)
    except ValueError as error:
        raise GraphError(
            f"{name}={error}, or 'available-now', which reads the rows that exist now and ends. Without a trigger, epochs start "
            "as often as possible."
        ) from None
