"""A standalone Spark cluster of two workers, shared by the tests of this folder and whole again before each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import sparks
from tests.cluster.standalone import heal
from tidegate.testing.cluster import StandaloneCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    with StandaloneCluster(directory=directory, environment={"PYTHONPATH": str(sparks.ROOT)}) as cluster:
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
