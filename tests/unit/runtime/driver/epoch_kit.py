"""Reports of epochs, as the runner of epochs would make them."""

from __future__ import annotations

from typing import Any

from tidegate.core.ids import EpochId
from tidegate.runtime.epochs.reports import EpochReport


def epoch_report(epoch: EpochId, **more: Any) -> EpochReport:
    """The report of an epoch of one row that took a millisecond; `more` says what differs."""
    usual = {"rows_in": 1, "tries": 1, "duration_ms": 1, "plan_ms": 1, "job_ms": 1, "operators": {}, "hosts": {}}
    return EpochReport(epoch=epoch, **{**usual, **more})
