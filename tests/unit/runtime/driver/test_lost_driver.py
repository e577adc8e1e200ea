"""A driver that dies says nothing; the run after it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.runtime.driver.test_reporter import Reporter
from tests.unit.savepoint.checkpoint_kit import History
from tidegate.checkpoint.job_log.entry import RunOutcome
from tidegate.core.processes import this_process
from tidegate.events.event import JobFailureEvent
from tidegate.runtime.driver.lost_driver import LostDriver
from tidegate.runtime.monitoring.health import answers
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.runtime.monitoring.run_report import FailureLine, RunReport

HOST = "worker-7 (process 12)"


def history_of(tmp_path: Path, report: RunReport | None) -> History:
    made = History(tmp_path)
    made.checkpoint(1)
    if report is not None:
        made.storage.put(made.layout.run(made.log[-1].term), replace(report, host=HOST).to_bytes())
    return made


def lost(history: History, force: bool = False) -> LostDriver | None:
    return LostDriver.before(history.storage, history.layout, force=force)


def killed_process() -> str:
    """The name of a process that was killed with SIGKILL."""
    code = "from tidegate.core.processes import this_process; print(this_process(), flush=True); import time; time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    name = child.stdout.readline().strip()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    return name


def test_a_driver_whose_record_and_log_have_no_end_has_died(tmp_path: Path) -> None:
    found = lost(history_of(tmp_path, run_report(written_ms=1_767_225_600_000)))
    assert found is not None
    line = found.failure(7)
    assert line.message.startswith(
        f"The previous driver on {HOST} ended without a word; its last report is of 2026-01-01 00:00:00+00:00. "
        "This run continues from checkpoint 7."
    )
    assert "begins without a checkpoint" in found.failure(None).message


@pytest.mark.parametrize("status", ["FINISHED", "CANCELED", "FAILED"])
def test_a_run_whose_record_says_how_it_ended_is_no_crash(tmp_path: Path, status: str) -> None:
    assert lost(history_of(tmp_path, run_report(status=status))) is None


def test_a_run_whose_end_is_in_the_log_is_no_crash_though_its_last_record_is_missing(tmp_path: Path) -> None:
    history = history_of(tmp_path, run_report())
    history.end(RunOutcome.CANCELED)
    assert lost(history) is None


@pytest.mark.parametrize("report", [None, "broken"])
def test_a_first_start_and_a_record_that_cannot_be_read_are_no_crash(tmp_path: Path, report: str | None) -> None:
    history = history_of(tmp_path, None)
    if report is not None:
        history.storage.put(history.layout.run(history.log[-1].term), report.encode())
    assert lost(history) is None
    assert lost(History(tmp_path / "empty")) is None


def test_a_forced_start_reports_a_dead_driver_only_if_it_is_certainly_dead(tmp_path: Path) -> None:
    assert lost(history_of(tmp_path / "alive", run_report(process=this_process())), force=True) is None
    assert lost(history_of(tmp_path / "dead", run_report(process=killed_process())), force=True) is not None


LINE = FailureLine(at_ms=8_000, kind="driver-lost", message="The previous driver ended without a word.", restarted=True)


def test_a_dead_driver_is_the_oldest_failure_of_the_next_run() -> None:
    own = SimpleNamespace(at_ms=9, kind="engine", message="no", restarted=True)
    reporter = Reporter(failures=[own])
    reporter._job = SimpleNamespace(lost_driver=LINE)  # type: ignore[assignment]
    assert [each.kind for each in reporter._failures()] == ["engine", "driver-lost"]


def test_listeners_and_the_log_get_the_failure_of_a_dead_driver() -> None:
    heard: list[Any] = []
    events = JobEvents("orders", [SimpleNamespace(on_failure=heard.append)])  # type: ignore[list-item]
    events.driver_lost(LINE, 7)
    events.close()
    (event,) = heard
    assert isinstance(event, JobFailureEvent)
    assert (event.kind, event.checkpoint_id, event.can_restart, str(event)) == ("driver-lost", 7, True, LINE.message)


def test_the_overview_says_for_a_while_that_the_previous_driver_died() -> None:
    healthy, *_, problem = answers(run_report(failures=(LINE,)), 9_000)
    assert (healthy.answer, healthy.detail) == ("Restarted", "after the previous driver died,")
    assert problem.answer == "driver-lost"
