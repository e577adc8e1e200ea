"""The servers as fixtures. Each is started once in a test run, at first use, however many folders import it."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.kafka import KafkaBroker
from tests.servers.postgres import Postgres
from tests.servers.proxy import FaultyProxy
from tests.servers.seaweedfs import S3Address, SeaweedFS


@functools.cache
def _seaweedfs() -> SeaweedFS:
    directory = Path(tempfile.mkdtemp(prefix="seaweedfs-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    server = SeaweedFS(directory)
    atexit.register(server.stop)
    return server


@functools.cache
def _proxy() -> FaultyProxy:
    address = _seaweedfs().address
    proxy = FaultyProxy(address.host, address.port)
    atexit.register(proxy.stop)
    return proxy


@functools.cache
def _kafka() -> KafkaBroker:
    directory = Path(tempfile.mkdtemp(prefix="kafka-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    broker = KafkaBroker(directory)
    atexit.register(broker.stop)
    return broker


@pytest.fixture(scope="session")
def s3_server() -> S3Address:
    """The address of a real S3 server."""
    return _seaweedfs().address


@functools.cache
def _postgres() -> Postgres:
    directory = Path(tempfile.mkdtemp(prefix="postgres-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    server = Postgres(directory)
    atexit.register(server.stop)
    return server


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
def kafka() -> KafkaBroker:
    """A real Kafka broker. Every test makes topics of its own."""
    return _kafka()
