"""What a run reports about itself, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.monitoring.test_job_metrics import report as epoch_report
from tidegate.runtime.driver.reporter import RunReporter
from tidegate.runtime.monitoring.run_report import BacklogSample, RunEnd, SourceLine


class Reporter(RunReporter):
    """A reporter of nothing: its job is not looked at."""

    def __init__(self, **supervisor: Any) -> None:
        self._backlog = ()
        self._sampled = None
        self._supervisor = SimpleNamespace(**supervisor)  # type: ignore[assignment]


def source(pending: int | None, lag_ms: int | None) -> SourceLine:
    return SourceLine(source="s", pending_rows=pending, event_time_lag_ms=lag_ms)


def test_a_sample_is_taken_once_for_each_epoch_with_rows() -> None:
    reporter = Reporter()
    first = [epoch_report(1)]
    for _ in range(2):
        assert reporter._sample(first, [source(3, 50), source(None, 70)]) == (BacklogSample(pending_rows=3, lag_ms=70),)
    assert len(reporter._sample([epoch_report(2)], [source(4, 80)])) == 2


def test_an_epoch_without_rows_is_no_sample_since_the_lag_of_an_idle_source_grows() -> None:
    reporter = Reporter()
    for number in range(1, 10):
        assert reporter._sample([epoch_report(number, rows_in=0)], [source(0, 1_000 * number)]) == ()


@pytest.mark.parametrize(
    ("savepoint", "asked", "cancelled", "end"),
    [
        ("/s/savepoint-1", True, False, RunEnd.SAVEPOINT),
        (None, True, False, RunEnd.STOPPED),
        (None, True, True, RunEnd.CANCELED),
        (None, False, False, RunEnd.INPUT),
    ],
)
def test_a_report_says_how_a_run_ended(savepoint: str | None, asked: bool, cancelled: bool, end: RunEnd) -> None:
    over = SimpleNamespace(is_set=lambda: True)
    reporter = Reporter(ended=over, outcome=None, last_savepoint=savepoint)
    reporter._job = SimpleNamespace(stop=SimpleNamespace(is_asked=lambda: asked, cancelled=cancelled))  # type: ignore[assignment]
    assert reporter._end() is end
