"""A standalone Spark cluster of two workers, shared by the tests of this folder and whole again before each of them.

Its Python workers obey fault orders (`tidegate.testing.faults`) that tests give while a job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidegate.testing.faults
from tests import sparks
from tests.cluster.standalone import heal
from tests.cluster.trial import Trial
from tidegate.testing.cluster import StandaloneCluster
from tidegate.testing.faults import FaultOrders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def _orders(tmp_path_factory: pytest.TempPathFactory) -> FaultOrders:
    return FaultOrders(tmp_path_factory.mktemp("orders"))


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory, _orders: FaultOrders) -> Iterator[StandaloneCluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    environment = {
        "PYTHONPATH": str(sparks.ROOT),
        "TIDEGATE_FAULTS": tidegate.testing.faults.__file__,
        tidegate.testing.faults.VARIABLE: str(_orders.directory),
    }
    with StandaloneCluster(directory=directory, environment=environment) as cluster:
        yield cluster
        # The application leaves before its cluster does, or its threads cry about lost executors to the end of the run.
        sparks.end()


@pytest.fixture
def cluster(_cluster: StandaloneCluster) -> StandaloneCluster:
    """The cluster, with every worker running and none paused."""
    heal(_cluster)
    return _cluster


@pytest.fixture
def cluster_session(cluster: StandaloneCluster) -> Callable[..., SparkSession]:
    """Makes the session on the cluster, with settings beyond the usual ones if given; waits for all executors."""

    def make(**conf: str) -> SparkSession:
        spark = sparks.session(cluster.url, **conf)
        heal(cluster, executors=True)
        return spark

    return make


@pytest.fixture
def orders(_orders: FaultOrders) -> Iterator[FaultOrders]:
    """What the Python workers of the cluster are told to do wrong. Empty at the start of a test."""
    _orders.clear()
    yield _orders
    _orders.clear()


@pytest.fixture
def trial(
    cluster: StandaloneCluster, cluster_session: Callable[..., SparkSession], orders: FaultOrders, tmp_path: Path
) -> Iterator[Callable[..., Trial]]:
    """Starts the job under test. Whatever a test leaves behind, the cluster is whole again before the job is stopped."""
    started: list[Trial] = []

    def start(spark: SparkSession | None = None, **options: Any) -> Trial:
        made = Trial(spark or cluster_session(), tmp_path / f"job-{len(started)}", **options)
        started.append(made)
        return made.start()

    yield start
    orders.clear()
    heal(cluster)
    for made in started:
        made.stop()
