"""The record of a run in storage: written when something happens, readable when the driver is gone."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.runtime.monitoring.test_progress import complete, coordinator
from tests.waiting import eventually
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.layout import JobLayout
from tidegate.config import CheckpointConfig, Checkpointing, read_options
from tidegate.core.ids import Term
from tidegate.runtime.driver import recorder
from tidegate.runtime.driver.recorder import RunRecorder, recorded_terms, remove_old
from tidegate.runtime.monitoring.run_report import FailureLine, RunReport, SpanLine
from tidegate.storage import Storage, open_storage
from tidegate.testing.clock import at

LAYOUT = JobLayout("orders")
SPAN = SpanLine(operator="totals", span="score", uses=3, total_ms=12.5, longest_ms=8.0)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path))


class Recorded:
    """A run whose report a test changes, with its recorder."""

    confused, looks_confused = False, 0

    def __init__(self, storage: Storage) -> None:
        self.storage, self.now, self.ended = storage, run_report(), threading.Event()
        self.recorder = RunRecorder(storage, LAYOUT, lambda: self.now, self.notable, self.ended)
        self.recorder.start()

    def notable(self) -> tuple[Any, Any]:
        if self.confused:
            self.looks_confused += 1
            raise RuntimeError("deque mutated during iteration")
        return (self.now.status, len(self.now.failures)), len(self.now.epochs)

    def stored(self) -> RunReport:
        """The record, as soon as there is one."""
        eventually(lambda: recorded_terms(self.storage, LAYOUT) == [Term(3)])
        return RunReport.from_bytes(self.storage.get(LAYOUT.run(Term(3))))


def test_a_failure_is_recorded_at_once(storage: Storage) -> None:
    run = Recorded(storage)
    eventually(lambda: run.stored().status == "RUNNING")
    failure = FailureLine(at_ms=5, kind="user-code", message="division by zero", restarted=True)
    run.now = replace(run.now, failures=(failure,))
    eventually(lambda: run.stored().failures == (failure,))
    run.ended.set()
    run.recorder.join(60)


def test_a_recorder_continues_after_an_error_in_what_it_records(storage: Storage) -> None:
    run = Recorded(storage)
    eventually(lambda: run.stored().status == "RUNNING")
    run.confused = True
    eventually(lambda: run.looks_confused > 1)
    run.confused = False
    run.now = replace(run.now, status="FAILING")
    eventually(lambda: run.stored().status == "FAILING")
    run.ended.set()
    run.recorder.join(60)


def test_the_last_record_is_that_of_the_end(storage: Storage) -> None:
    run = Recorded(storage)
    run.now = replace(run.now, status="FAILED", ended_ms=9_999)
    run.ended.set()
    run.recorder.join(60)
    assert (run.stored().status, run.stored().ended_ms) == ("FAILED", 9_999)


def test_a_job_survives_storage_that_refuses_its_record(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says it once, and the next record that storage accepts is whole."""
    from tidegate.storage import StorageError

    real, refused = type(storage).put, []

    def refuse(self: Storage, path: str, data: bytes) -> None:
        refused.append(path)
        raise StorageError(self.url, path, "read-only file system")

    monkeypatch.setattr(type(storage), "put", refuse)
    run = Recorded(storage)
    for number, status in enumerate(("RESTARTING", "RUNNING", "RESTARTING"), 1):
        run.now = replace(run.now, status=status)
        eventually(lambda wanted=number: len(refused) >= wanted, "the record of this status is refused")
    monkeypatch.setattr(type(storage), "put", real)
    run.now = replace(run.now, status="FINISHED")
    run.ended.set()
    run.recorder.join(60)
    assert run.stored().status == "FINISHED"
    assert caplog.text.count("record of the run could not be written") == 1


def test_only_the_last_runs_are_kept(storage: Storage) -> None:
    for term in range(1, recorder.KEPT + 6):
        storage.put(LAYOUT.run(Term(term)), b"{}")
    remove_old(storage, LAYOUT)
    kept = recorded_terms(storage, LAYOUT)
    assert (len(kept), kept[0], kept[-1]) == (recorder.KEPT, recorder.KEPT + 5, 6)


def test_records_of_a_driver_that_claims_its_job_again_and_again_are_removed_while_it_runs(storage: Storage) -> None:
    run = Recorded(storage)
    run.stored()
    for term in range(4, recorder.KEPT + 30):
        storage.put(LAYOUT.run(Term(term)), b"{}")
    run.now = replace(run.now, term=Term(recorder.KEPT + 30), status="RESTARTING")
    eventually(lambda: len(recorded_terms(storage, LAYOUT)) == recorder.KEPT)
    run.ended.set()
    run.recorder.join(60)


def test_clean_up_does_not_touch_records() -> None:
    assert LAYOUT.parse(LAYOUT.run(Term(3))) is None


@given(st.integers(0, 14), st.booleans(), st.sampled_from(["RUNNING", "FAILED"]))
def test_a_record_is_read_as_it_was_written(completed: int, failed: bool, status: str) -> None:
    """Except for the tasks of older checkpoints, and for keys of users."""
    made = coordinator()
    for number in range(completed):
        complete(made, 1_000 * (number + 1))
    if failed:
        made.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=90_000), at(90_000))
        made.decline(completed + 1, CheckpointFailureReason.CHECKPOINT_EXPIRED, at(91_000), "too slow")
    config = CheckpointConfig.of(read_options(Checkpointing(dir="/c", interval="10 s").to_options()))
    report = run_report(
        status=status,
        checkpoints=made.statistics.report(at(99_000)),
        checkpoint_config=config,
        hot_keys={"totals": (("ann", 0.5),)},
        spans=(replace(SPAN, longest_key="ann"),),
    )
    again = RunReport.from_bytes(report.to_bytes())
    assert again.checkpoints is not None
    assert report.checkpoints is not None
    assert again.checkpoints.history[:10] == report.checkpoints.history[:10]
    assert [each.id for each in again.checkpoints.history] == [each.id for each in report.checkpoints.history]
    assert replace(again, checkpoints=None) == replace(report, checkpoints=None, hot_keys={}, spans=(SPAN,))


def test_a_record_of_a_later_version_is_refused() -> None:
    with pytest.raises(ValueError, match="newer"):
        RunReport.from_bytes(run_report(format=99).to_bytes())
