"""Executors that die: their hosts keep the state, so an epoch is repeated at most, and nothing is rewound."""

from __future__ import annotations

import pytest

from tests.cluster.standalone import host_of


@pytest.mark.feature("H1")
def test_an_executor_killed_between_epochs(trial, cluster):
    """A new one on the same host finds the versions there: slots are where they were."""
    job = trial().feed(epochs=2).settle()
    homes = job.epochs[-1].hosts
    cluster.kill_executor(0)
    job.feed(epochs=2).settle()
    job.verify()
    assert job.epochs[-1].hosts == homes
    assert job.run.counters.rewinds == 0


@pytest.mark.feature("H1")
@pytest.mark.parametrize("level", [1, 2])
def test_an_executor_killed_in_the_middle_of_an_epoch(trial, cluster, orders, level):
    """While a task of level 1 runs; or while one of level 2 does, so that the stage above must run again too.

    The other tasks of the level are done by then. Otherwise Spark might try to fetch from the dead executor for as long as its
    successor takes to start, and then, by chance, place everything as it was.
    """
    job = trial().feed(epochs=2).settle()
    homes = job.epochs[-1].hosts
    sleeping = orders.give("task.2-first-row", "sleep", seconds=60, level=level, slot=0)
    others = [orders.give("task.6-sent", "sleep", seconds=0, level=level, slot=slot) for slot in (1, 2, 3)]
    job.feed()
    sleeper = orders.wait(sleeping)
    for done in others:
        orders.wait(done)
    cluster.kill_executor(host_of(cluster, sleeper))
    job.settle().feed().settle()
    job.verify()
    assert job.epochs[-1].hosts == homes
    assert job.discarded >= 1
    assert job.run.counters.rewinds == 0


def test_five_executor_deaths_in_a_row_cost_no_rewind(trial, cluster):
    """Each costs one discarded epoch at most, since slots follow their state to whichever partition lies with it."""
    job = trial().feed(epochs=2).settle()
    homes = job.epochs[-1].hosts
    for death in range(5):
        cluster.kill_executor(death % 2)
        job.feed().settle()
    job.verify()
    assert job.epochs[-1].hosts == homes
    assert job.discarded <= 5
    assert job.run.counters.rewinds == 0
