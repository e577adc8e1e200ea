"""A new driver on the hosts of the last one: each task goes where its state is."""

from __future__ import annotations

import pytest

from tests.integration.test_checkpoints import Shop
from tests.integration.test_local_recovery import INLINE_NOTHING, Starts


@pytest.mark.feature("H2", "H11")
def test_every_task_goes_to_the_host_that_has_its_version(cluster, cluster_session, tmp_path):
    """Four tasks on two hosts: without a hint, some would be on the wrong one after one of three starts, most likely."""
    shop = Shop(cluster_session(), tmp_path)
    heard = Starts()
    for _ in range(4):
        given = shop.choices(backend="rocksdb", interval="1 h", options=INLINE_NOTHING)
        del given["options"]["local_dir"]  # Each host has its own.
        job = shop.feed(2).job(parallelism=4)
        job.run(shop.spark, trigger="available-now", listeners=[heard], **given)
    assert [sum(task.remote_bytes for task in tasks) for tasks in heard.restored[1:]] == [0, 0, 0]
    assert all(sum(task.local_bytes for task in tasks) > 0 for tasks in heard.restored[1:])
    assert shop.exact()


def test_a_host_that_is_gone_is_not_waited_for(cluster, cluster_session, tmp_path):
    shop = Shop(cluster_session(), tmp_path)
    heard = Starts()
    for alone in (False, True):
        if alone:
            cluster.kill_worker(1)
        given = shop.choices(backend="rocksdb", interval="1 h", options=INLINE_NOTHING)
        del given["options"]["local_dir"]
        shop.feed(2).job(parallelism=4).run(shop.spark, trigger="available-now", listeners=[heard], **given)
    found, fetched = heard.last()
    assert found > 0
    assert fetched > 0
    assert shop.exact()
