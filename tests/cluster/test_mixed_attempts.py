"""One half of a level reads rows of one attempt, the other half those of another, and the attempts differ."""

from __future__ import annotations

import pytest

from tests.cluster.standalone import host_of

CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)


@pytest.fixture
def checksums(cluster_session, monkeypatch, request):
    """Spark's shuffle checksums, on or off. Off is refused at start, so that check is off too."""
    spark = cluster_session()
    before = {key: spark.conf.get(key) for key in CHECKSUMS}
    for key in CHECKSUMS:
        spark.conf.set(key, str(request.param).lower())
    if not request.param:
        monkeypatch.setattr("tidegate.runtime.driver.launch.check_running", lambda *given: None)
    yield request.param
    for key, value in before.items():
        spark.conf.set(key, value)


@pytest.mark.feature("C3")
@pytest.mark.parametrize("checksums", [True, False], indirect=True, ids=["checksums", "no-checksums"])
def test_a_split_view_of_a_level_is_never_accepted(trial, cluster, orders, caplog, checksums):
    """Three tasks of level 2 are done when the fourth dies with its executor, and with half of what level 1 had sent.

    That half runs again and puts other marks on its rows, which only the fourth task reads. In the first epoch, where
    no task can miss its state, nothing else would notice. Spark's checksums do; without them our digests do.
    """
    job = trial(unique=True)
    sleeping = orders.give("task.1-located", "sleep", seconds=60, level=2, slot=0)
    finished = [orders.give("task.6-sent", "sleep", seconds=0, level=2, slot=slot) for slot in (1, 2, 3)]
    job.feed()
    sleeper = orders.wait(sleeping)
    for order in finished:
        orders.wait(order)
    cluster.kill_executor(host_of(cluster, sleeper))
    job.settle().feed(epochs=2).settle()
    job.verify()
    assert job.run.counters.repeats >= 1
    assert ("read other attempts" in caplog.text) == (not checksums)


def test_attempts_do_not_mix_once_there_is_state_either(trial, cluster, orders):
    """Tasks that run again elsewhere now miss their state, too; whoever speaks first, the epoch is thrown away."""
    job = trial(unique=True).feed(epochs=2).settle()
    sleeping = orders.give("task.1-located", "sleep", seconds=60, level=2, slot=3)
    finished = [orders.give("task.6-sent", "sleep", seconds=0, level=2, slot=slot) for slot in (0, 1, 2)]
    job.feed()
    sleeper = orders.wait(sleeping)
    for order in finished:
        orders.wait(order)
    cluster.kill_executor(host_of(cluster, sleeper))
    job.settle()
    job.verify()
    assert job.discarded >= 1
    assert job.run.counters.rewinds == 0
