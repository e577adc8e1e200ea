"""What arrives is not what was sent: the epoch is thrown away and run again."""

from __future__ import annotations

import pytest


@pytest.mark.feature("C12", "C13", "C17")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [("drop-barrier", "no barrier arrived from tasks"), ("miscount", "rows were read, but")],
)
def test_a_missing_barrier_or_a_wrong_count_of_rows(trial, orders, caplog, fault, reason):
    """A task that was not sent all it should have seals nothing, and no sink shows a row of that try."""
    job = trial().feed().settle()
    order = orders.give("task.5-prepared", fault, level=1)
    job.feed().settle()
    job.verify()
    assert len(orders.obeyed(order)) == 1
    assert job.run.counters.repeats == 1
    assert reason in caplog.text


@pytest.mark.feature("C16", "J1")
def test_a_batch_delivered_twice_is_run_once(trial, monkeypatch):
    """Spark delivers a batch again when it does not know that it was done."""
    from tidegate.runtime.driver.attempt import Attempt

    once = Attempt._on_batch

    def twice(attempt, batch, batch_id):
        once(attempt, batch, batch_id)
        once(attempt, batch, batch_id)

    monkeypatch.setattr(Attempt, "_on_batch", twice)
    job = trial().feed(epochs=3).settle()
    job.verify()
    assert job.run.skipped_batches >= 3
    assert job.discarded == 0
