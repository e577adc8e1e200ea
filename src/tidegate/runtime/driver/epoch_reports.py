"""The reports of the last epochs of a run, for people."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from tidegate.runtime.driver.epoch_runner import EpochReport


class EpochReports(deque[EpochReport]):
    """Keeps figures only: not the rows that sinks prepared, nor files of state, and one table of hosts for as long as
    it does not change."""

    def __init__(self, most: int) -> None:
        super().__init__(maxlen=most)

    def append(self, report: EpochReport) -> None:
        same = bool(self) and self[-1].hosts == report.hosts
        hosts = self[-1].hosts if same else report.hosts
        super().append(replace(report, committables=(), uploads=(), hosts=hosts))
