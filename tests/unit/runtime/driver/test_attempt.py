"""Which batches of its query an attempt runs, and from which positions it counts them. No Spark."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.runtime.checkpoints.test_output import Place, Target
from tests.unit.runtime.driver.test_running_job import running
from tests.waiting import eventually
from tidegate.core.errors import EpochFailed, ProtocolViolation
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.driver import attempt as attempts
from tidegate.runtime.driver.attempt import Attempt, Stopping
from tidegate.runtime.driver.epoch_lock import EpochLock
from tidegate.runtime.epochs.streaming_time import StreamingTime
from tidegate.runtime.epochs.trigger import EpochTrigger
from tidegate.runtime.sources.query_directory import Positions
from tidegate.runtime.sources.reader_start import ReaderPatience

BATCH: Any = object()


class Query:
    """A query that has reported nothing yet."""

    lastProgress = None
    isActive = True

    def stop(self) -> None:
        self.isActive = False


class Begun(Attempt):
    """An attempt whose query has begun, with a log of the batches that it planned."""

    def __init__(self, folder: Path, loop: CheckpointLoop | None = None, *, pinned: bool = True) -> None:
        self.epochs, self.runner = running(folder, Target(), loop, None if loop is None else "EXACTLY_ONCE")
        self._job, self._lock = self.epochs._job, EpochLock()
        self.error, self._retired, self._pinned = None, False, pinned
        self._ends = deque(maxlen=2)
        self._readers = ReaderPatience()
        self._streaming, self.query, self._input_ended = StreamingTime(), Query(), False
        self._job.trigger = SimpleNamespace(interval_s=0.0)
        self.progress = SimpleNamespace(batch=lambda *given: None)  # type: ignore[assignment]
        (self.epochs.directory / "offsets").mkdir(parents=True)

    def deliver(self, batch_id: int) -> bool:
        """Let Spark deliver a batch, which ends at ten times its number. Return whether an epoch was run."""
        (self.epochs.directory / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{10 * batch_id}")
        before = self.runner.epoch
        self._run_batch(BATCH, batch_id)
        return self.runner.epoch != before


@pytest.mark.feature("C3", "C6", "C16", "J1")
def test_a_batch_is_run_once_and_the_epoch_ends_at_its_end(tmp_path: Path) -> None:
    attempt = Begun(tmp_path)
    assert attempt.deliver(0)
    assert attempt.epochs.done == Positions(("0",))
    assert attempt.deliver(1)
    assert not attempt.deliver(1), "Spark delivers it again"
    assert (attempt.epochs.done, attempt._job.skipped_batches) == (Positions(("10",)), 1)


@pytest.mark.feature("C16", "J1")
def test_a_batch_that_leaves_rows_out_is_refused_and_no_epoch_follows(tmp_path: Path) -> None:
    attempt = Begun(tmp_path)
    attempt.deliver(0)
    (attempt.epochs.directory / "offsets" / "1").write_text("v1\n{}\n17")
    with pytest.raises(ProtocolViolation, match="would be lost or duplicated"):
        attempt.deliver(2)
    assert isinstance(attempt.error, ProtocolViolation)
    with pytest.raises(Stopping):
        attempt.run_empty_epoch()


@pytest.mark.feature("C16", "I14")
def test_a_batch_that_begins_while_the_job_stops_is_neither_run_nor_reported_as_a_failure(tmp_path: Path) -> None:
    attempt = Begun(tmp_path)
    attempt._job.stop.asked.set()
    before = attempt.runner.epoch
    attempt._on_batch(BATCH, 0)
    assert not attempt.query.isActive, "Spark could deliver the next one"
    assert (attempt.runner.epoch, attempt.error) == (before, None)


def test_after_an_epoch_that_failed_a_batch_fails_its_query(tmp_path: Path) -> None:
    attempt = Begun(tmp_path)
    attempt.error = OSError("disk full")
    with pytest.raises(Stopping):
        attempt._on_batch(BATCH, 0)


@pytest.mark.feature("C6")
@pytest.mark.parametrize("pinned", [True, False])
def test_where_sources_begin_is_in_a_checkpoint_before_their_first_row_is_read(tmp_path: Path, pinned: bool) -> None:
    with Place(tmp_path).run(out=Target()) as job:
        attempt = Begun(tmp_path, job.loop, pinned=pinned)
        first = attempt.runner.epoch
        assert attempt.deliver(0)
        base = job.loop.ownership.store.entry.base
        assert (base is None) == pinned
        assert base is None or base.epoch <= first


@pytest.mark.parametrize("tolerable", [0, 1])
def test_the_first_checkpoint_is_tried_again_if_the_job_tolerates_failed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tolerable: int
) -> None:
    """On a slow machine tasks have had something to store by then, and storing it may fail."""
    with Place(tmp_path).run(out=Target()) as job:
        attempt = Begun(tmp_path, job.loop, pinned=False)
        durability = attempt._job.durability
        assert durability is not None
        checkpoints = replace(durability.checkpoints, tolerable_failures=tolerable)
        attempt._job.durability = replace(durability, checkpoints=checkpoints)
        run_until = attempt.epochs.run_until
        failures = [EpochFailed("The checkpoint failed: no such bucket")]

        def fails_once(*words: Any) -> Any:
            if failures:
                raise failures.pop()
            return run_until(*words)

        monkeypatch.setattr(attempt.epochs, "run_until", fails_once)
        if tolerable:
            assert attempt.deliver(0)
            assert job.loop.ownership.store.entry.base is not None
        else:
            with pytest.raises(EpochFailed, match="no such bucket"):
                attempt.deliver(0)


@pytest.mark.feature("B1")
def test_timers_that_are_due_wait_until_all_available_rows_are_read(tmp_path: Path) -> None:
    """As in Spark. An empty epoch between two batches would make rows of the second one late."""
    attempt = Begun(tmp_path)
    job, trigger = attempt._job, SimpleNamespace(interval_s=0.0, available_now=True)
    job.trigger, job.runner.timers_due, attempt._idle_s = trigger, lambda: True, 0.0
    before = attempt.runner.epoch
    pacing = threading.Thread(target=attempt._pace)
    pacing.start()
    time.sleep(0.5)
    assert attempt.runner.epoch == before
    trigger.available_now = False
    eventually(lambda: attempt.runner.epoch != before)
    job.stop.asked.set()
    pacing.join(60)


@pytest.mark.parametrize("checkpointed", [True, False])
def test_an_idle_job_without_checkpoints_runs_an_epoch_now_and_then_so_that_its_tasks_note_their_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpointed: bool
) -> None:
    """Another job on its hosts would otherwise remove its state a day after an executor was replaced."""
    with Place(tmp_path).run(out=Target()) as run:
        attempt = Begun(tmp_path, run.loop if checkpointed else None)
        job = attempt._job
        job.trigger, job.settings = EpochTrigger(), SimpleNamespace(slot_timeout_ms=1)  # type: ignore[assignment]
        job.description = SimpleNamespace(tasks=())  # type: ignore[assignment]
        job.runner.forget_versions = job.runner.place = lambda: None  # type: ignore[method-assign, assignment, return-value]
        job.runner.has_timers, attempt._orders, attempt._idle_s = False, {}, 0.0  # type: ignore[misc]
        job.last_epoch_s = time.monotonic() - 3600
        before = attempt.runner.epoch
        attempt.restore()
        time.sleep(0.3)
        assert attempt.runner.epoch == before, "an epoch that nobody needs"
        monkeypatch.setattr(attempts, "REFRESH_S", 1800)
        if checkpointed:
            time.sleep(0.3)
            assert attempt.runner.epoch == before, "a checkpoint has its state"
        else:
            eventually(lambda: attempt.runner.epoch != before)
        job.stop.asked.set()
        attempt.retire()


@pytest.mark.feature("C50")
def test_an_attempt_that_starts_after_the_drain_reads_no_row(tmp_path: Path) -> None:
    """Rows that have arrived since would be late."""
    attempt = Begun(tmp_path)
    attempt._input_ended = True
    attempt._on_batch(BATCH, 0)
    assert (attempt.query.isActive, attempt.error) == (False, None)
    assert attempt.runner.epoch.number == 1


def test_a_query_whose_reader_was_late_is_started_again_until_the_patience_ends(tmp_path: Path) -> None:
    attempt = Begun(tmp_path)
    now = [0.0]
    started: list[Query] = []

    def start() -> Query:
        started.append(Query())
        return started[-1]

    attempt._readers = ReaderPatience(lambda: now[0])
    attempt._start_query = start
    attempt._job.settings = SimpleNamespace(slot_timeout_ms=300_000)
    for now[0] in (0.0, 150.0, 299.0):
        assert attempt.start_query_again()
    assert attempt.query is started[-1]
    now[0] = 301.0
    assert not attempt.start_query_again()
    attempt._readers.reset()
    assert attempt.start_query_again(), "a batch has come in between"


def test_no_query_is_started_again_for_a_job_that_stops(tmp_path: Path) -> None:
    """Whoever asked for it has stopped the query that had ended, and would never stop the next one."""
    attempt = Begun(tmp_path)
    attempt._readers = ReaderPatience()
    attempt._job.settings = SimpleNamespace(slot_timeout_ms=300_000)
    attempt._job.stop.asked.set()
    before = attempt.query
    assert not attempt.start_query_again()
    assert attempt.query is before
