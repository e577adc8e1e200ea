"""Iceberg tables: commits that meet, replies that are lost, tables that change while output waits."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import LongType

from tests.contract.lakehouse.conftest import partitioned_iceberg
from tests.contract.lakehouse.targets import SCHEMA, IcebergTarget, batches, committer, epoch, stage
from tidegate.connectors.lakehouse import IcebergSink
from tidegate.connectors.lakehouse.errors import CommitConflict, StagedFilesGone, TableChanged, TableUnsuitable
from tidegate.connectors.lakehouse.iceberg.committer import ATTEMPTS, IcebergCommitter
from tidegate.connectors.lakehouse.iceberg.table import load
from tidegate.connectors.lakehouse.names import local_path
from tidegate.core import faults
from tidegate.core.errors import SchemaError
from tidegate.schema.schema import Schema

ROWS = [(1, date(2024, 1, 1), "a"), (2, None, "b")]
AT = datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC)
ALL_TYPES = Schema.parse(
    "id bigint NOT NULL, b boolean, s smallint, f float, d double, c decimal(12,2), x string, y binary, da date, "
    "ts timestamp, tn timestamp_ntz, l array<int>, m map<string,bigint>, st struct<p:int,q:string>"
)
ONE = (
    1, True, 2, 0.5, -2.25, Decimal("12.50"), "é,\n", b"\0\1", date(2024, 2, 29), AT, AT.replace(tzinfo=None),
    [1, None], [("k", 1)], {"p": 1, "q": "r"},
)  # fmt: skip


@pytest.fixture
def target(tmp_path: Path) -> IcebergTarget:
    return IcebergTarget(tmp_path)


@pytest.fixture
def armed():
    yield faults.arm
    faults.arm(None)


def test_a_commit_that_meets_another_writers_is_made_on_top_of_it(target, armed):
    commits, request = committer(target.sink), stage(target.sink, ROWS, epoch(1, 1))
    met = []

    def overtake(point, **context):
        if point == "iceberg.2-checked" and not met:
            met.append(point)
            target.catalog().load_table("db.events").append(pa.Table.from_batches(batches([(3, None, "c")], SCHEMA)))

    armed(overtake)
    commits.commit([request])
    assert met
    assert [row[0] for row in target.rows()] == [1, 2, 3]


def test_a_refusal_after_a_lost_reply_neither_doubles_nor_damages(target, monkeypatch):
    commits, request = committer(target.sink), stage(target.sink, ROWS, epoch(1, 1))
    commit_table, lost = SqlCatalog.commit_table, []

    def lose_one(self, *arguments):
        answer = commit_table(self, *arguments)
        if not lost:
            lost.append(answer)
            raise CommitFailedException("the branch has changed")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", lose_one)
    commits.commit([request])
    assert lost
    assert target.rows() == ROWS


def test_a_table_that_is_never_free_is_given_up_for_now(target, monkeypatch):
    committer(target.sink)
    request, pauses = stage(target.sink, ROWS, epoch(1, 1)), []

    def refuse(self, *arguments):
        raise CommitFailedException("the branch has changed")

    monkeypatch.setattr(SqlCatalog, "commit_table", refuse)
    catalog = load(target.sink.catalog, target.sink.properties)
    with pytest.raises(CommitConflict) as told:
        IcebergCommitter(catalog, target.sink.table, SCHEMA, pause=pauses.append).commit([request])
    assert told.value.retryable
    assert len(pauses) == ATTEMPTS - 1
    assert target.rows() == []


def test_markers_outlive_a_rollback_of_the_table(target):
    commits = committer(target.sink)
    requests = [stage(target.sink, [row], epoch(1, number)) for number, row in enumerate(ROWS)]
    for request in requests:
        commits.commit([request])
    table = target.catalog().load_table("db.events")
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()

    committer(target.sink).commit(requests)
    assert target.rows() == ROWS[:1]


def test_missing_staged_files_are_noticed_and_nothing_is_added(target, tmp_path):
    commits, request = committer(target.sink), stage(target.sink, ROWS, epoch(1, 1))
    for path in (tmp_path / "warehouse").rglob("part-*.parquet"):
        path.unlink()

    with pytest.raises(StagedFilesGone):
        commits.commit([request])
    assert target.catalog().load_table("db.events").current_snapshot() is None


def test_a_table_recreated_under_the_same_name_is_not_written(target):
    commits, request = committer(target.sink), stage(target.sink, ROWS, epoch(1, 1))
    target.catalog().drop_table("db.events")
    committer(target.sink)

    with pytest.raises(TableChanged, match="recreated"):
        commits.commit([request])


def test_a_new_partitioning_is_not_taken_for_the_old_one(target):
    commits, request = committer(target.sink), stage(target.sink, ROWS, epoch(1, 1))
    with target.catalog().load_table("db.events").update_spec() as update:
        update.add_field("name", "identity", "name")

    with pytest.raises(TableChanged, match="partitioning"):
        commits.commit([request])


def test_a_column_that_came_while_output_waited_is_null_in_it(target):
    commits, request = committer(target.sink), stage(target.sink, ROWS, epoch(1, 1))
    with target.catalog().load_table("db.events").update_schema() as update:
        update.add_column("more", LongType())

    commits.commit([request])
    assert target.rows() == [(*row, None) for row in ROWS]


def test_a_null_in_a_required_column_is_refused_in_the_task(target):
    committer(target.sink)

    with pytest.raises(SchemaError, match="'id'"):
        stage(target.sink, [(None, None, "a")], epoch(1, 1))


def test_a_task_refuses_a_column_that_was_removed_while_the_job_ran(target):
    committer(target.sink)
    with target.catalog().load_table("db.events").update_schema() as update:
        update.rename_column("name", "title")

    with pytest.raises(SchemaError, match="changed while the job was running"):
        stage(target.sink, ROWS, epoch(1, 1))


def test_every_type_comes_back_as_it_was(target):
    rows = [ONE, (2, *[None] * 13)]
    committer(target.sink, ALL_TYPES).commit([stage(target.sink, rows, epoch(1, 1), schema=ALL_TYPES)])

    table = target.catalog().load_table("db.events").scan().to_arrow()
    assert list(zip(*table.to_pydict().values())) == rows


@pytest.mark.parametrize("where", ["id = 3", "name = 'a/b'", "day = '2024-02-01'", "day is null", "name is null"])
def test_partitions_and_statistics_hide_no_row_from_a_reader(tmp_path, where):
    target = partitioned_iceberg(tmp_path)
    rows = [(1, date(2024, 1, 31), "a"), (2, None, "a/b"), (3, date(2024, 2, 1), None), (4, date(1969, 12, 31), "")]
    committer(target.sink).commit([stage(target.sink, rows, epoch(1, 1))])
    table = target.catalog().load_table("db.events")

    found = table.scan(row_filter=where).to_arrow().num_rows
    assert found == 1
    ours = [file["partition"] for file in table.inspect.files().to_pylist()]
    table.overwrite(pa.Table.from_batches(batches(rows, SCHEMA)))
    theirs = [file["partition"] for file in table.inspect.files().to_pylist()]
    assert sorted(map(str, ours)) == sorted(map(str, theirs))


@pytest.mark.parametrize(
    "table",
    [
        "id bigint NOT NULL, day date",
        "id bigint NOT NULL, day date, name int",
        "id bigint NOT NULL, day date NOT NULL, name string",
        "id bigint NOT NULL, day date, name string, more int NOT NULL",
    ],
)
def test_a_table_with_other_columns_is_refused_at_start(target, table):
    target.catalog().create_table("db.events", Schema.parse(table).to_arrow())

    with pytest.raises(SchemaError, match=r"db\.events"):
        committer(target.sink)


@pytest.mark.parametrize("layout", ["folders", "object storage", "elsewhere"])
def test_every_folder_of_a_staged_file_is_synced_before_the_checkpoint(tmp_path, monkeypatch, layout):
    """A new folder is an entry in the one above it: if that is lost with the power, so is the file."""
    target, synced = partitioned_iceberg(tmp_path), []
    table = target.catalog().load_table("db.events")
    root = local_path(table.location())
    with table.transaction() as change:
        if layout == "object storage":
            change.set_properties({"write.object-storage.enabled": "true"})
        if layout == "elsewhere":
            root = tmp_path / "elsewhere"
            change.set_properties({"write.data.path": f"file://{root / 'rows'}"})
    monkeypatch.setattr("tidegate.connectors.lakehouse.iceberg.writer.sync", synced.append)
    stage(target.sink, ROWS, epoch(1, 1))
    files = [path for path in synced if path.suffix == ".parquet"]
    assert files
    for file in files:
        between = [folder for folder in file.parents if folder.is_relative_to(root)]
        assert set(between) <= set(synced)


def test_a_partition_that_the_rows_do_not_have_is_refused_at_start(target):
    table = target.catalog().create_table("db.events", Schema.parse(f"{SCHEMA}, more int").to_arrow())
    with table.update_spec() as update:
        update.add_field("more", "identity", "more")

    with pytest.raises(TableUnsuitable, match="partitioned by 'more'"):
        committer(target.sink)


def test_a_table_is_created_only_on_demand(target):
    with pytest.raises(TableUnsuitable, match="create=True"):
        committer(IcebergSink("lake", "db.none", target.properties))


def test_properties_are_not_shown():
    assert "hunter2" not in repr(IcebergSink("lake", "db.events", {"token": "hunter2"}))
