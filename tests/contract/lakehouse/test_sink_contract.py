"""Tables keep the contract of every sink."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tidegate.connectors.lakehouse import DeltaSink, IcebergSink
from tidegate.connectors.lakehouse.names import marker_number, slot_marker_name
from tidegate.testing.sink_contract import SinkContract, check
from tidegate.testing.sink_trial import SinkTrial, failing

DOWN = ConnectionError("no route to the table")


class DeltaTarget:
    ordered = False

    def __init__(self, path: Path):
        self.path = path

    def sink(self):
        return DeltaSink(str(self.path), create=True)

    def table(self):
        return DeltaTable(str(self.path))

    def rows(self):
        return [tuple(row.values()) for row in self.table().to_pyarrow_table().to_pylist()]

    def take_away(self):
        self.table().delete()

    def outage(self):
        return failing("delta.1-read", DOWN)

    def refusing(self):
        return DeltaSink(f"{self.path}-without-a-table"), f"{self.path}-without-a-table"

    def leavings(self):
        return []  # vacuum's, not the sink's

    def commits(self):
        return self.table().version()

    def markers(self):
        """Names of application transactions, as the log has them."""
        lines = [json.loads(line) for f in self.path.glob("_delta_log/*.json") for line in f.read_text().splitlines()]
        return sorted({line["txn"]["appId"] for line in lines if "txn" in line})


class IcebergTarget:
    ordered = False

    def __init__(self, folder: Path):
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        load_catalog("lake", **self.properties).create_namespace_if_not_exists("db")

    def sink(self):
        return IcebergSink("lake", "db.events", self.properties, create=True)

    def table(self):
        return load_catalog("lake", **self.properties).load_table("db.events")

    def rows(self):
        return [tuple(row.values()) for row in self.table().scan().to_arrow().to_pylist()]

    def take_away(self):
        self.table().delete()

    def refusing(self):
        return IcebergSink("lake", "nowhere.events", self.properties, create=True), "nowhere.events of catalog lake"

    def outage(self):
        return failing("iceberg.1-read", DOWN)

    def leavings(self):
        return []

    def commits(self):
        return len(self.table().snapshots())

    def markers(self):
        return [name for name in self.table().metadata.properties if name.startswith("tidegate/")]


class TestDelta(SinkContract):
    @pytest.fixture
    def target(self, tmp_path):
        return DeltaTarget(tmp_path / "events")


class TestIceberg(SinkContract):
    @pytest.fixture
    def target(self, tmp_path):
        return IcebergTarget(tmp_path)


@pytest.mark.parametrize("target", ["delta", "iceberg"])
def test_a_table_has_one_marker_however_many_slots_and_rescales_there_were(target, tmp_path):
    table = DeltaTarget(tmp_path / "events") if target == "delta" else IcebergTarget(tmp_path)
    trial = SinkTrial(table.sink(), parallelism=4)
    for parallelism in (4, 2, 7):
        assert trial.restart(parallelism)
        trial.epoch(*[1] * parallelism)
        assert trial.checkpoint()
    assert sorted(table.markers()) == [f"tidegate/{trial.lineage}/out/{name}" for name in ("all", "term")]
    check(table, trial)


def marked_by_slot(monkeypatch, sink):
    """As earlier versions marked what they committed."""

    def markers_of(requests, marker=None):
        return {slot_marker_name(request): marker_number(request.epoch) for request in requests}

    monkeypatch.setattr(f"tidegate.connectors.lakehouse.{sink}.committer.markers_of", markers_of)


@pytest.mark.parametrize("target", ["delta", "iceberg"])
def test_what_earlier_versions_marked_for_each_slot_is_not_added_again(target, tmp_path, monkeypatch):
    table = DeltaTarget(tmp_path / "events") if target == "delta" else IcebergTarget(tmp_path)
    trial = SinkTrial(table.sink())
    trial.epoch(2, 2)
    trial.epoch(2, 0)
    trial.complete()
    with monkeypatch.context() as patch:
        marked_by_slot(patch, target)
        trial.committer.commit(trial.requests()[:1])
    assert trial.restart()
    check(table, trial)
    trial.epoch(1, 1)
    assert trial.checkpoint()
    check(table, trial)
    if target == "iceberg":
        # A property can be removed, an application transaction of Delta cannot.
        assert sorted(table.markers()) == [f"tidegate/{trial.lineage}/out/{name}" for name in ("all", "term")]
