"""The active one of two real NameNodes dies, and the other takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.hdfs import HdfsPair
from tidegate.storage import Lost, Patience, StorageUnavailable, Won, new_nonce, open_storage

WAITING = Patience(attempts=40, first_ms=100, ceiling_ms=500)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[HdfsPair]:
    servers = HdfsPair(tmp_path)
    yield servers
    servers.stop()


@pytest.mark.slow
def test_a_failover_loses_nothing_and_decides_nothing_twice(pair: HdfsPair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(pair.conf))
    url = f"{pair.url}{new_nonce()}"
    storage = open_storage(url, patience=WAITING, user=pair.superuser)
    impatient = open_storage(url, patience=Patience(attempts=2, first_ms=1), user=pair.superuser)
    mine, other = new_nonce(), new_nonce()
    assert storage.create("log/1", mine.encode(), mine) == Won()
    storage.put("owner", b"me")

    pair.kill("nn1")
    with pytest.raises(StorageUnavailable, match="no NameNode is reachable and active"):
        impatient.put("owner", b"nobody")
    pair.activate("nn2")
    # It learns only now where the blocks of new files are; until then it refuses to read them, and the reader waits.
    assert storage.get("owner") == b"me"
    assert storage.create("log/1", mine.encode(), mine) == Won()
    assert storage.create("log/1", other.encode(), other) == Lost(mine.encode())
    assert storage.create("log/2", other.encode(), other) == Won()

    pair.start("nn1")
    fresh = open_storage(url, patience=WAITING, user=pair.superuser)
    assert [each.path for each in fresh.list()] == ["log/1", "log/2", "owner"]
