"""A job that nobody disturbs: state stays where it is, and idle epochs leave it alone."""

from __future__ import annotations

import pytest


@pytest.mark.timeout(180)
def test_over_thirty_epochs_every_slot_stays_with_its_state(trial):
    """The anchor keeps tasks at home: one host for each (level, slot), nothing repeated, both hosts at work."""
    job = trial().feed(epochs=30).settle(120)
    hosts = [report.hosts for report in job.epochs]
    job.verify()
    assert all(found == hosts[0] for found in hosts)
    assert len(hosts[0]) == 8
    assert len(set(hosts[0].values())) == 2
    assert job.discarded == 0
    assert [report.tries for report in job.epochs] == [1] * 31
