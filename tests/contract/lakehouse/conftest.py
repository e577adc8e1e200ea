"""Every kind of table that must keep the contract, empty for each test."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.contract.lakehouse.targets import SCHEMA, DeltaTarget, IcebergTarget, Target
from tests.servers.fixtures import s3_server
from tests.servers.seaweedfs import S3Address

__all__ = ["s3_server"]


@pytest.fixture(params=["delta", "delta-partitioned", "delta-s3", "iceberg", "iceberg-partitioned"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    match request.param:
        case "delta":
            return DeltaTarget(str(tmp_path / "events"))
        case "delta-partitioned":
            return DeltaTarget(str(tmp_path / "events"), ("day", "name"))
        case "delta-s3":
            return delta_on_s3(request.getfixturevalue("s3_server"))
        case "iceberg":
            return IcebergTarget(tmp_path)
        case _:
            return partitioned_iceberg(tmp_path)


def delta_on_s3(address: S3Address) -> DeltaTarget:
    options = {f"AWS_{name.upper()}": value for name, value in address.options().items()}
    options |= {"AWS_ENDPOINT_URL": options.pop("AWS_ENDPOINT"), "AWS_ALLOW_HTTP": "true"}
    return DeltaTarget(f"s3://{address.bucket}/{uuid.uuid4().hex}", options=options)


def partitioned_iceberg(folder: Path) -> IcebergTarget:
    target = IcebergTarget(folder)
    table = target.catalog().create_table("db.events", SCHEMA.to_arrow())
    with table.update_spec() as update:
        update.add_field("day", "month", "month")
        update.add_field("name", "identity", "name")
        update.add_field("id", "bucket[4]", "bucket")
    return target
