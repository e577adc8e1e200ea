"""Delta tables: what vacuum may and may not do, which tables are refused, and what readers are told of the files."""

from __future__ import annotations

import os
import shutil
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake import Schema as DeltaSchema

from tests.contract.lakehouse.targets import SCHEMA, DeltaTarget, batches, committer, epoch, stage
from tidegate.connectors.lakehouse import DeltaSink
from tidegate.connectors.lakehouse.errors import StagedFilesGone, TableUnsuitable
from tidegate.core import faults
from tidegate.core.errors import GraphError, SchemaError
from tidegate.schema.schema import Schema

ROWS = [(1, date(2024, 1, 1), "a"), (2, None, "b")]
ALL_TYPES = Schema.parse(
    "id bigint NOT NULL, b boolean, t tinyint, s smallint, i int, f float, d double, c decimal(12,2), x string, "
    "y binary, da date, ts timestamp, tn timestamp_ntz, l array<int>, m map<string,bigint>, st struct<p:int,q:string>"
)
AT = datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC)
ONE = (
    1, True, -1, 2, 3, 0.5, -2.25, Decimal("12.50"), "é,\n", b"\0\1", date(2024, 2, 29), AT, AT.replace(tzinfo=None),
    [1, None], [("k", 1)], {"p": 1, "q": "r"},
)  # fmt: skip
NONE = (2, *[None] * 15)


@pytest.fixture
def target(tmp_path: Path) -> DeltaTarget:
    return DeltaTarget(str(tmp_path / "events"))


def test_a_repeat_makes_no_version_of_the_table(target):
    commits, request = committer(target.sink), stage_in(target, ROWS)
    commits.commit([request])
    version = target.open().version()

    commits.commit([request])
    committer(target.sink).commit([request])
    assert target.open().version() == version


def test_a_committer_that_slept_through_another_and_compaction_adds_nothing(target):
    sleeper, request = committer(target.sink), stage_in(target, ROWS)
    met = []

    def overtake(point, **context):
        if point == "delta.2-checked" and not met:
            met.append(point)
            committer(target.sink).commit([request])
            write_deltalake(target.sink.table_uri, batches([(3, None, "c")], SCHEMA)[0], mode="append")
            target.tidy()

    faults.arm(overtake)
    try:
        sleeper.commit([request])
    finally:
        faults.arm(None)
    assert [row[0] for row in target.rows()] == [1, 2, 3]


@pytest.mark.feature("J25")
def test_staged_files_outlive_vacuum_within_the_retention_of_the_table(target):
    commits, request = committer(target.sink), stage_in(target, ROWS)
    three_days_ago = time.time() - 3 * 24 * 3600
    for path in staged(target):
        os.utime(path, (three_days_ago, three_days_ago))

    target.open().vacuum(dry_run=False, full=True)
    target.open().vacuum(0, dry_run=False, enforce_retention_duration=False)
    commits.commit([request])
    assert target.rows() == ROWS


def test_missing_staged_files_are_noticed_and_nothing_is_added(target, tmp_path):
    commits, request = committer(target.sink), stage_in(target, ROWS)
    (file,) = staged(target)
    shutil.copy(file, tmp_path / "copy")
    target.open().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    with pytest.raises(StagedFilesGone, match=r"missing or truncated.*retention"):
        commits.commit([request])
    assert target.rows() == []
    shutil.copy(tmp_path / "copy", file)
    commits.commit([request])
    assert target.rows() == ROWS


def test_an_attempt_that_failed_leaves_no_files(target):
    committer(target.sink)
    stage(target.sink, ROWS, epoch(1, 1), finish=False)

    assert staged(target) == []


def test_a_null_in_a_required_column_is_refused_in_the_task(target):
    committer(target.sink)

    with pytest.raises(SchemaError, match="'id' is declared NOT NULL"):
        stage(target.sink, [(None, None, "a")], epoch(1, 1))


def test_every_type_comes_back_as_it_was(target):
    committer(target.sink, ALL_TYPES).commit([stage(target.sink, [ONE, NONE], epoch(1, 1), schema=ALL_TYPES)])

    table = target.open().to_pyarrow_table()
    assert list(zip(*table.to_pydict().values())) == [ONE, NONE]


FLAT = Schema(tuple(field for field in ALL_TYPES if field.name != "st"))
FLAT_ONE, FLAT_NONE = ONE[:-1], NONE[:-1]


@pytest.mark.parametrize("rows", [[FLAT_ONE, FLAT_NONE], [FLAT_ONE], [FLAT_NONE, (3, *FLAT_ONE[1:])]])
@pytest.mark.parametrize("name", FLAT.names[:13])
def test_statistics_never_hide_a_row_from_a_reader(target, name, rows):
    committer(target.sink, FLAT).commit([stage(target.sink, rows, epoch(1, 1), schema=FLAT)])
    values = [row[FLAT.index(name)] for row in rows]

    dataset = target.open().to_pyarrow_dataset()
    for value in {*values} - {None}:
        assert dataset.to_table(filter=ds.field(name) == value).num_rows == values.count(value)
    assert dataset.to_table(filter=ds.field(name).is_null()).num_rows == values.count(None)


def test_statistics_let_readers_skip_files(target):
    commits = committer(target.sink, FLAT)
    for number in range(3):
        row = (number, *FLAT_ONE[1:])
        commits.commit([stage(target.sink, [row], epoch(1, number), schema=FLAT)])

    dataset = target.open().to_pyarrow_dataset()
    assert len(list(dataset.get_fragments(filter=ds.field("id") == 1))) == 1


PARTITIONS = "b boolean, i int, x string, da date, ts timestamp, tn timestamp_ntz"


def test_partition_values_come_back_as_they_were(tmp_path):
    schema = Schema.parse(f"id bigint NOT NULL, {PARTITIONS}")
    target = DeltaTarget(str(tmp_path / "events"), schema.names[1:])
    some = (1, False, -7, "a/b=c %é", date(1969, 12, 31), AT, AT.replace(tzinfo=None))
    rows = [some, (2, *[None] * 6)]

    committer(target.sink, schema).commit([stage(target.sink, rows, epoch(1, 1), schema=schema)])
    table = target.open().to_pyarrow_table().select(list(schema.names))
    assert sorted(zip(*table.to_pydict().values())) == rows


def test_rows_are_rolled_into_several_files(tmp_path):
    sink = DeltaSink(str(tmp_path / "events"), create=True, target_file_bytes=1)
    rows = [(n, None, "x") for n in range(6)]

    committer(sink).commit([stage(sink, rows, epoch(1, 1))])
    table = DeltaTable(sink.table_uri)
    assert len(table.file_uris()) == 3
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(6))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("id bigint NOT NULL, day date", "no column 'name'"),
        ("id bigint NOT NULL, day date, name binary", "'name' is string in the rows and binary in the table"),
        ("id int NOT NULL, day date, name string", "'id' is bigint in the rows and int in the table"),
        ("id bigint NOT NULL, day date NOT NULL, name string", "'day' may be null"),
        ("id bigint NOT NULL, day date, name string, more int NOT NULL", "no column 'more'"),
    ],
)
def test_a_table_with_other_columns_is_refused_at_start(tmp_path, table, told):
    DeltaTable.create(str(tmp_path), DeltaSchema.from_arrow(Schema.parse(table).to_arrow()))

    with pytest.raises(SchemaError, match=told):
        committer(DeltaSink(str(tmp_path)))


def test_a_table_may_have_more_columns_in_another_order(tmp_path):
    table = Schema.parse("more int, name string, id bigint, day date")
    DeltaTable.create(str(tmp_path), DeltaSchema.from_arrow(table.to_arrow()))
    sink = DeltaSink(str(tmp_path))

    committer(sink).commit([stage(sink, ROWS[:1], epoch(1, 1))])
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist() == [
        {"more": None, "name": "a", "id": 1, "day": date(2024, 1, 1)}
    ]


@pytest.mark.parametrize(
    ("configuration", "told"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 1 days"}, "expires application transactions"),
        ({"delta.deletedFileRetentionDuration": "interval 1 hours"}, "1 h old"),
        ({"delta.deletedFileRetentionDuration": "interval 0 days"}, "0 h old"),
    ],
)
def test_a_table_that_forgets_too_soon_is_refused_at_start(tmp_path, configuration, told):
    DeltaTable.create(str(tmp_path), DeltaSchema.from_arrow(SCHEMA.to_arrow()), configuration=configuration)

    with pytest.raises(TableUnsuitable, match=told):
        committer(DeltaSink(str(tmp_path)))


def test_a_constraint_is_found_at_start_and_when_it_is_added_later(target):
    commits, request = committer(target.sink), stage_in(target, ROWS)
    target.open().alter.add_constraint({"positive": "id > 0"})

    with pytest.raises(TableUnsuitable, match="constraint 'positive'"):
        committer(target.sink)
    with pytest.raises(TableUnsuitable, match="constraint 'positive'"):
        commits.commit([request])


def test_partitions_of_table_and_sink_must_agree(tmp_path):
    committer(DeltaSink(str(tmp_path), ["day"], create=True))

    with pytest.raises(TableUnsuitable, match=r"partition_by=\('day',\)"):
        committer(DeltaSink(str(tmp_path)))
    with pytest.raises(SchemaError, match="the columns are id, day, name"):
        committer(DeltaSink(str(tmp_path), ["none"]))
    with pytest.raises(GraphError, match=r"\('day',\)"):
        DeltaSink(str(tmp_path), "day")


def test_a_table_is_created_only_on_demand(tmp_path):
    with pytest.raises(TableUnsuitable, match="create=True"):
        committer(DeltaSink(str(tmp_path / "none")))


def test_another_table_in_its_place_is_noticed(target):
    commits = committer(target.sink)
    for number in range(3):
        commits.commit([stage(target.sink, ROWS, epoch(1, number))])
    shutil.rmtree(target.sink.table_uri)
    committer(target.sink)

    commits.commit([stage(target.sink, [(9, None, "z")], epoch(1, 5))])
    assert target.rows() == [(9, None, "z")]


def test_options_are_not_shown():
    assert "hunter2" not in repr(DeltaSink("s3://bucket/table", storage_options={"AWS_SECRET_ACCESS_KEY": "hunter2"}))


def stage_in(target, rows):
    return stage(target.sink, rows, epoch(1, 1))


def staged(target):
    return sorted(Path(target.sink.table_uri).rglob("part-*.parquet"))
