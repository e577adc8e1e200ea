"""What a checkpoint reports of its requests is what a real object store receives."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

import pytest

from tests.servers.proxy import FaultyProxy, Seen
from tests.servers.seaweedfs import S3Address
from tests.unit.runtime.driver import driver_kit
from tests.unit.runtime.driver.driver_kit import VALUE_BYTES, Driver
from tidegate.core.storage_cost import StorageCalls
from tidegate.storage import open_storage


@pytest.fixture
def address(s3_server: S3Address, s3_proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of the real server, whose requests the proxy notes."""
    options = s3_server.behind(s3_proxy.port).options()
    monkeypatch.setattr(driver_kit, "open_storage", lambda url: open_storage(url, **options))
    return f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"


def test_requests_of_checkpoints_are_those_that_the_server_receives(
    address: str, s3_proxy: FaultyProxy, tmp_path: Path
) -> None:
    with Driver(tmp_path, dir=address, interval="1 h", incremental=True) as driver:
        s3_proxy.script()
        for keys in ((0, 1, 2, 3, 4, 5, 6, 7), (0,), (1,)):
            driver.checkpoint(*keys)
        driver.settle()
        received = Counter(kind_of(each) for each in s3_proxy.seen if "owner" not in each.path)
        history = driver.loop.statistics.history()
        told = StorageCalls.sum(each.requests for each in history)
    found = {"write": told.writes, "list": told.lists, "read": told.reads, "delete": told.deletes}
    assert found == {kind: received[kind] for kind in found}
    assert all(each.requests.writes >= 2 for each in history), "the metadata, the log entry"
    assert history[-1].requests.writes >= 3, "its file is too large for the metadata"
    assert history[-1].requests.written_bytes > 8 * VALUE_BYTES
    assert history[0].cost_dollars == pytest.approx(
        (history[0].requests.writes + history[0].requests.lists) * 5e-6 + history[0].requests.reads * 4e-7
    )


def kind_of(seen: Seen) -> str:
    if seen.method == "PUT":
        return "write"
    if seen.method == "POST" and "delete" in seen.path:
        return "delete"
    return "list" if "list-type" in seen.path else "read"
