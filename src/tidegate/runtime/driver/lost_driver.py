"""A driver that ended without a word: killed, out of memory, or with its machine. The next run says so.

A driver that ends in order writes an end to the log. One that dies leaves only the record of its run, which still says that the
job runs.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.checkpoint.effects import perform
from tidegate.checkpoint.job_log.entry import Entry
from tidegate.checkpoint.job_log.log import newest
from tidegate.checkpoint.layout import JobLayout
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.errors import TidegateError
from tidegate.core.processes import has_died
from tidegate.events.event import TERMINAL
from tidegate.runtime.driver.recorder import recorded_runs
from tidegate.runtime.monitoring.run_report import DRIVER_LOST, FailureLine
from tidegate.storage import Storage


@dataclass(frozen=True, slots=True)
class LostDriver:
    """The driver of the last run, whose end nobody recorded."""

    host: str
    """Its host and process."""
    seen: str
    """When it last reported, in UTC."""

    @staticmethod
    def before(storage: Storage, layout: JobLayout, *, force: bool) -> LostDriver | None:
        """Look for one before the job is claimed. With `force` it may be alive, so its process must be known to be dead."""
        # What is wrong with the log is for the claim to say. Nothing depends on the record.
        with suppress(TidegateError, ValueError, OverflowError, OSError):
            last: Entry | None = perform(newest(layout), storage)
            # The last entry of a driver that ended gracefully says so.
            if last is None or last.outcome is not None:
                return None
            report = next(recorded_runs(storage, layout), None)
            if report is None or report.status in TERMINAL or (force and not has_died(report.process)):
                return None
            seen = datetime.fromtimestamp(report.written_ms / 1000, UTC)
            return LostDriver(report.host, seen.isoformat(sep=" ", timespec="seconds"))
        return None

    def failure(self, checkpoint_id: int | None) -> FailureLine:
        """What the run that continues from this checkpoint reports about it."""
        continues = "begins without a checkpoint"
        if checkpoint_id is not None:
            continues = f"continues from checkpoint {checkpoint_id}"
        return FailureLine(
            at_ms=SYSTEM_CLOCK.now().wall_ms,
            kind=DRIVER_LOST,
            message=(
                f"The previous driver on {self.host} ended without a word; its last report is of {self.seen}. "
                f"This run {continues}. Look for what ended that process: its log, the kernel's (out of memory), or the "
                "scheduler's."
            ),
            restarted=True,
        )
