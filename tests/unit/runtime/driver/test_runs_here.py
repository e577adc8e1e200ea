"""A process runs a job once; a restart stops the old run first."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.core.errors import PreconditionFailed
from tidegate.runtime.driver.runs_here import RunsHere


class Run:
    def __init__(self, name: str, error: Exception | None = None) -> None:
        self.name, self.error, self.has_ended = name, error, False

    def stop(self) -> None:
        self.has_ended = True
        if self.error is not None:
            raise self.error

    def __repr__(self) -> str:
        return f"<job {self.name} RUNNING>"


@pytest.fixture
def runs() -> RunsHere:
    return RunsHere()


def started(runs: RunsHere, name: str, error: Exception | None = None) -> Any:
    run: Any = Run(name, error)
    runs.add(run)
    return run


def test_a_job_that_runs_is_refused_with_what_to_do(runs):
    run = started(runs, "orders")
    with pytest.raises(PreconditionFailed, match=r"<job orders RUNNING>.*run\.stop\(\).*restart=True"):
        runs.stop_earlier("orders", restart=False)
    assert runs.find("orders") is run


def test_a_restart_stops_the_run(runs):
    started(runs, "orders")
    started(runs, "others")
    runs.stop_earlier("orders", restart=True)
    assert runs.find("orders") is None
    assert runs.find("others") is not None


def test_a_run_that_has_ended_does_not_block_the_next(runs):
    started(runs, "orders").stop()
    runs.stop_earlier("orders", restart=False)


def test_an_old_run_that_fails_while_it_stops_does_not_hinder_the_new_one(runs, caplog):
    started(runs, "orders", ValueError("broken"))
    runs.stop_earlier("orders", restart=True)
    assert "broken" in caplog.text
