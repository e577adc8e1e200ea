"""The cluster fixture itself: what it promises to tests that lose executors, hosts and Python workers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.cluster.standalone import places
from tests.waiting import eventually
from tidegate.testing.cluster import LOCAL_DIR
from tidegate.testing.processes import alive


def test_tasks_run_on_both_workers_each_with_its_own_root(cluster, cluster_session):
    seen = {root for root, _ in places(cluster_session())}

    assert seen == {str(worker.local_root) for worker in cluster.workers}


def test_python_workers_are_found_by_their_host(cluster, cluster_session):
    seen = places(cluster_session())

    for worker in cluster.workers:
        assert {pid for root, pid in seen if root == str(worker.local_root)} <= set(
            cluster.python_workers(worker.index)
        )


def test_a_killed_executor_is_replaced_on_its_host_and_the_root_stays(cluster, cluster_session):
    spark = cluster_session()
    places(spark)
    (cluster.workers[0].local_root / "version").write_text("kept")

    killed = cluster.kill_executor(0)
    eventually(lambda: bool(set(cluster.executors(0)) - set(killed)), "a new executor")

    assert (cluster.workers[0].local_root / "version").read_text() == "kept"
    eventually(lambda: len({root for root, _ in places(spark)}) == 2, "tasks on both hosts again")


def test_a_lost_host_takes_its_disk_with_it_and_comes_back_empty(cluster, cluster_session):
    spark = cluster_session()
    root = cluster.workers[1].local_root
    (root / "version").write_text("gone")

    killed = cluster.kill_worker(1)

    assert not any(alive(pid) for pid in killed)
    assert not root.exists()
    assert {place for place, _ in places(spark)} == {str(cluster.workers[0].local_root)}
    cluster.restart_worker(1)
    eventually(lambda: bool(cluster.executors(1)), "an executor on the new host")
    assert list(root.iterdir()) == []


def test_a_killed_python_worker_costs_a_retry_and_no_row(cluster, cluster_session):
    root = cluster.workers[0].local_root
    killed: list[int] = []

    def slowly(batches):
        with (Path(os.environ[LOCAL_DIR]) / "begun").open("a") as begun:
            begun.write(f"{os.getpid()}\n")
        for batch in batches:
            time.sleep(2.0)
            yield batch

    def kill_once_begun():
        eventually(lambda: (root / "begun").exists(), "a task on host 0")
        killed.extend(cluster.kill_python_workers(0))

    killer = threading.Thread(target=kill_once_begun)
    killer.start()
    rows = cluster_session().range(0, 100, 1, 4).mapInArrow(slowly, "id long").collect()
    killer.join()

    # Spark may give all four tasks to one host while the executor of the other is still registering.
    files = [file for worker in cluster.workers if (file := worker.local_root / "begun").exists()]
    begun = [int(pid) for file in files for pid in file.read_text().split()]
    assert set(begun) & set(killed)
    assert len(begun) > 4
    assert sorted(row.id for row in rows) == list(range(100))


def test_a_paused_host_continues_where_it_stopped(cluster, cluster_session):
    spark = cluster_session()
    cluster.pause(0)
    threading.Timer(1.5, lambda: cluster.resume(0)).start()

    start = time.monotonic()
    assert len(places(spark)) == 4
    assert time.monotonic() - start > 1.0


def test_nothing_outlives_the_process_that_made_the_cluster():
    script = (
        "import os, signal\n"
        "from tidegate.testing.cluster import StandaloneCluster\n"
        "cluster = StandaloneCluster(workers=1).start()\n"
        "cluster.pause(0)\n"
        "print(cluster._master.pid, cluster.workers[0].daemon.pid, cluster.directory, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ).stdout
    master, worker, _ = told.split()

    eventually(lambda: not alive(int(master)) and not alive(int(worker)), "the cluster has ended", timeout_s=10)
