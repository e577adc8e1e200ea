"""Snapshots in an object store are read, copied and disposed of like those on a disk."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.servers.fixtures import s3_server
from tests.servers.seaweedfs import S3Address
from tests.unit.savepoint.checkpoint_kit import History, Operator, listing, value
from tidegate.api.savepoints import Savepoint
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.dispose import dispose
from tidegate.savepoint.snapshot import CANONICAL, NATIVE, StoredSnapshot
from tidegate.savepoint.verify import verify
from tidegate.storage import open_storage

__all__ = ["s3_server"]

OPERATOR = Operator(
    "totals",
    ("string",),
    (value("total", float), listing("last", int)),
    {"total": {f"u{n}": n / 2 for n in range(30)}, "last": {"u1": [1, 2]}},
)


@pytest.mark.parametrize("format", [CANONICAL, NATIVE])
def test_from_bucket_to_disk_and_back(s3_server: S3Address, tmp_path: Path, format: str) -> None:
    root, options = f"s3://{s3_server.bucket}/{uuid.uuid4().hex}", s3_server.options()
    history = History(tmp_path, url=f"{root}/ckpt", options=options)
    origin = StoredSnapshot.open(history.checkpoint(1, OPERATOR), **options)
    copy_snapshot(origin, open_storage(tmp_path / "sp"), format)
    assert history.storage.list("orders/pins") == []
    copy_snapshot(StoredSnapshot.open(tmp_path / "sp"), open_storage(f"{root}/sp", **options), format)
    there = StoredSnapshot.open(f"{root}/sp/_metadata", **options)
    assert list(verify(there)) == []
    assert Savepoint(there).state("totals", "total").get("u7") == 3.5
    assert Savepoint(there).state("totals", "last").get("u1") == [1, 2]
    dispose(there)
    assert open_storage(f"{root}/sp", **options).list() == []
