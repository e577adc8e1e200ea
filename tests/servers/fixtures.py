"""The servers as fixtures. Each is started once in a test run, at first use, however many folders import it."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.servers.hdfs import Hdfs, HdfsAddresses
from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import Postgres
from tests.servers.proxy import FaultyProxy
from tests.servers.schema_registry import SchemaRegistry
from tests.servers.seaweedfs import S3Address, SeaweedFS


class _Server(Protocol):
    def stop(self) -> None: ...


Started = TypeVar("Started", bound=_Server)


def _until_exit(server: Callable[[Path], Started], prefix: str) -> Started:
    """Start a server in a directory of its own. At the end of the process it is stopped, and the directory removed."""
    directory = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    started = server(directory)
    atexit.register(started.stop)
    return started


@functools.cache
def _seaweedfs() -> SeaweedFS:
    return _until_exit(SeaweedFS, "seaweedfs-")


@functools.cache
def _proxy() -> FaultyProxy:
    address = _seaweedfs().address
    proxy = FaultyProxy(address.host, address.port)
    atexit.register(proxy.stop)
    return proxy


@functools.cache
def _hdfs() -> Hdfs:
    return _until_exit(Hdfs, "hdfs-")


@functools.cache
def _hdfs_proxy() -> FaultyProxy:
    addresses = _hdfs().addresses
    proxy = FaultyProxy("127.0.0.1", addresses.web_port, redirects_to=addresses.data_web_port)
    atexit.register(proxy.stop)
    return proxy


@functools.cache
def _kafka() -> KafkaBroker:
    return _until_exit(KafkaBroker, "kafka-")


@functools.cache
def _schema_registry() -> SchemaRegistry:
    return _until_exit(SchemaRegistry, "schema-registry-")


@pytest.fixture(scope="session")
def schema_registry() -> SchemaRegistry:
    """A real schema registry. Every test has subjects of its own."""
    return _schema_registry()


@pytest.fixture(scope="session")
def s3_server() -> S3Address:
    """The address of a real S3 server."""
    return _seaweedfs().address


@functools.cache
def _postgres() -> Postgres:
    return _until_exit(Postgres, "postgres-")


@pytest.fixture
def postgres_server() -> Postgres:
    """A real database server, running when a test begins, whatever the one before did to it."""
    server = _postgres()
    server.start()
    return server


@pytest.fixture
def s3_proxy() -> Iterator[FaultyProxy]:
    """A proxy in front of that server, without rules when a test begins."""
    proxy = _proxy()
    proxy.script()
    yield proxy
    proxy.script()


@pytest.fixture(scope="session")
def hdfs() -> HdfsAddresses:
    """The addresses of a real NameNode and a real DataNode."""
    return _hdfs().addresses


@pytest.fixture(scope="session")
def hdfs_servers() -> Hdfs:
    """The same, for tests that kill them. Such a test starts them again."""
    return _hdfs()


@pytest.fixture
def hdfs_proxy() -> Iterator[FaultyProxy]:
    """A proxy in front of both, without rules when a test begins."""
    proxy = _hdfs_proxy()
    proxy.script()
    yield proxy
    proxy.script()


@pytest.fixture(scope="session")
def kafka() -> KafkaBroker:
    """A real Kafka broker. Every test makes topics of its own."""
    return _kafka()
