"""Files keep the contract: in a directory and on a real S3 server, whole or partitioned, in every format."""

from __future__ import annotations

import csv
import io
import json
import uuid
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.servers.fixtures import s3_server
from tests.servers.seaweedfs import S3Address
from tidegate.connectors.files import FileSink
from tidegate.testing import sink_trial
from tidegate.testing.sink_contract import SinkContract
from tidegate.testing.sink_trial import failing

__all__ = ["s3_server"]

REFUSED = OSError("the disk is full")


class DirectoryTarget:
    ordered = False

    def __init__(self, path: Path, **choices):
        self.path, self.choices = path, choices

    def sink(self):
        return FileSink(str(self.path), **self.choices)

    def seen(self):
        return sorted(p for p in self.path.rglob("*") if p.is_file() and ".tidegate" not in str(p))

    def rows(self):
        return [row for path in self.seen() for row in rows_in(path.name, path.read_bytes())]

    def take_away(self):
        for path in self.seen():
            path.unlink()

    def outage(self):
        return failing("files.1-marked", REFUSED)

    def refusing(self):
        blocked = self.path.parent / "file"
        blocked.touch()
        return FileSink(str(blocked / "out"), **self.choices), str(blocked)

    def leavings(self):
        return [path.name for path in (self.path / ".tidegate-staged").glob("part-*")]


def rows_in(name: str, data: bytes):
    """As any other program would read them."""
    if name.endswith(".json"):
        return [tuple(json.loads(line).values()) for line in data.decode().split("\n") if line]
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        return [tuple(row.values()) for row in pq.read_table(io.BytesIO(data)).to_pylist()]
    # Python's reader does not tell "" from nothing; the file does.
    text = data.decode().replace(',""\n', ',"<empty>"\n')
    lines = list(csv.reader(io.StringIO(text, newline="")))
    assert lines[0] == ["n", "name"]
    return [(int(n), "" if name == "<empty>" else name or None) for n, name in lines[1:]]


class TestJsonFiles(SinkContract):
    @pytest.fixture
    def target(self, tmp_path):
        return DirectoryTarget(tmp_path / "out")


class TestParquetFiles(SinkContract):
    @pytest.fixture
    def target(self, tmp_path):
        return DirectoryTarget(tmp_path / "out", format="parquet")


class TestCsvFilesThatRoll(SinkContract):
    @pytest.fixture
    def target(self, tmp_path):
        return DirectoryTarget(tmp_path / "out", format="csv", max_file_bytes=20)


class PartitionedTarget(DirectoryTarget):
    """The folder tells the name; the file tells `n`."""

    def rows(self):
        found = []
        for path in self.seen():
            name = unquote(path.parent.name.removeprefix("name="))
            name = None if name == "__HIVE_DEFAULT_PARTITION__" else name
            found += [(json.loads(line)["n"], name) for line in path.read_text().splitlines()]
        return found


class TestPartitionedFiles(SinkContract):
    @pytest.fixture
    def target(self, tmp_path, monkeypatch):
        # Folders cannot tell an empty text from null.
        monkeypatch.setattr(sink_trial, "NAMES", tuple(name for name in sink_trial.NAMES if name != ""))
        return PartitionedTarget(tmp_path / "out", partition_by=["name"])


class S3Target:
    ordered = False

    def __init__(self, address: S3Address):
        import boto3

        self.address = address
        self.prefix = uuid.uuid4().hex
        self.options = address.options()
        self.client = boto3.client(
            "s3",
            endpoint_url=self.options["endpoint"],
            aws_access_key_id=self.options["access_key_id"],
            aws_secret_access_key=self.options["secret_access_key"],
            region_name="us-east-1",
        )

    def sink(self):
        return FileSink(f"s3://{self.address.bucket}/{self.prefix}", options=self.options)

    def keys(self):
        found = self.client.list_objects_v2(Bucket=self.address.bucket, Prefix=self.prefix + "/").get("Contents", ())
        return [each["Key"] for each in found]

    def seen(self):
        return [key for key in self.keys() if ".tidegate" not in key]

    def rows(self):
        bodies = [self.client.get_object(Bucket=self.address.bucket, Key=key)["Body"].read() for key in self.seen()]
        return [row for body in bodies for row in rows_in(".json", body)]

    def take_away(self):
        for key in self.seen():
            self.client.delete_object(Bucket=self.address.bucket, Key=key)

    def outage(self):
        return failing("files.1-marked", REFUSED)

    def refusing(self):
        return FileSink(f"s3://nowhere/{self.prefix}", options=self.options), f"s3://nowhere/{self.prefix}"

    def leavings(self):
        uploads = self.client.list_multipart_uploads(Bucket=self.address.bucket, Prefix=self.prefix + "/")
        hidden = [key for key in self.keys() if ".tidegate-staged/part-" in key]
        return hidden + [each["Key"] for each in uploads.get("Uploads", ())]


class TestFilesOnS3(SinkContract):
    @pytest.fixture
    def target(self, s3_server):
        return S3Target(s3_server)
