"""Every store that must keep the contract, each with an empty root for each test."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.fixtures import hdfs, hdfs_proxy, s3_proxy, s3_server
from tests.servers.hdfs import HdfsAddresses
from tests.servers.proxy import FaultyProxy
from tests.servers.seaweedfs import S3Address
from tidegate.storage import Patience, Storage, open_storage
from tidegate.testing.storage import FaultyStorage, MemoryStorage

__all__ = ["hdfs", "hdfs_proxy", "s3_proxy", "s3_server"]

QUICK = Patience(attempts=12, first_ms=2, ceiling_ms=50)
STORES = ["local", "s3", "s3-proxied", "hdfs", "memory", "faulty-without-faults"]

OpenS3 = Callable[..., Storage]
OpenHdfs = Callable[..., Storage]


@pytest.fixture
def s3_through_proxy(s3_server: S3Address, s3_proxy: FaultyProxy) -> OpenS3:
    """Opens the S3 server through the proxy; every store opened in one test has the same root."""
    root = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"

    def open_it(patience: Patience = QUICK, **options: object) -> Storage:
        return open_storage(root, patience=patience, **{**s3_server.behind(s3_proxy.port).options(), **options})

    return open_it


@pytest.fixture
def hdfs_through_proxy(hdfs: HdfsAddresses, hdfs_proxy: FaultyProxy) -> OpenHdfs:
    """Opens HDFS through the proxy; every store opened in one test has the same root."""
    root = f"{hdfs.url}/{uuid.uuid4().hex}"

    def open_it(patience: Patience = QUICK, **options: object) -> Storage:
        return open_storage(root, patience=patience, **{**hdfs.behind(hdfs_proxy.port).options(), **options})

    return open_it


@pytest.fixture(params=STORES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return store_named(request.param, request, tmp_path)


def store_named(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if name == "local":
        return open_storage(tmp_path / "root", patience=QUICK)
    if name == "s3":
        address: S3Address = request.getfixturevalue("s3_server")
        return open_storage(f"s3://{address.bucket}/{uuid.uuid4().hex}", patience=QUICK, **address.options())
    if name == "s3-proxied":
        open_it: OpenS3 = request.getfixturevalue("s3_through_proxy")
        return open_it()
    if name == "hdfs":
        servers: HdfsAddresses = request.getfixturevalue("hdfs")
        return open_storage(f"{servers.url}/{uuid.uuid4().hex}", patience=QUICK, **servers.options())
    return MemoryStorage() if name == "memory" else FaultyStorage(MemoryStorage())
