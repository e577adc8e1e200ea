"""The file sink's own rules: names, folders, formats, sizes, and what it says when something is wrong."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.connectors.files import FileSink
from tidegate.connectors.files.names import OutputId
from tidegate.connectors.files.partitions import split, text_of
from tidegate.connectors.sink import CommitInDoubt, CommitterContext
from tidegate.core.errors import GraphError
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.schema.schema import Schema
from tidegate.testing.sink_trial import SinkTrial, dies_at

TEXTS = st.text(min_size=1)


def seen(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("part-*") if ".tidegate-staged" not in path.parts)


def test_tasks_write_where_the_driver_would(tmp_path, monkeypatch):
    """Their working directories are others."""
    monkeypatch.chdir(tmp_path)
    assert FileSink("out").path == str(tmp_path / "out")
    assert FileSink("s3://bucket/out").path == "s3://bucket/out"


@given(lineage=TEXTS, sink=TEXTS, term=st.integers(1, 99), number=st.integers(0, 10**9), slot=st.integers(0, 10**6))
def test_a_file_name_identifies_the_owner_of_its_output(lineage, sink, term, number, slot):
    output = OutputId(Lineage(lineage), Uid(sink), EpochId(Term(term), number), Slot(slot))
    for name in (output.final(0, "json"), output.hidden(12, 7, "parquet"), output.marker):
        assert "/" not in name
        assert OutputId.in_name(f"day=1/{name}") == output
    assert OutputId.in_name("somebody-elses.json") is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "__HIVE_DEFAULT_PARTITION__"),
        ("", "__HIVE_DEFAULT_PARTITION__"),
        (True, "true"),
        (7, "7"),
        (date(2024, 5, 1), "2024-05-01"),
        (Decimal("1.50"), "1.50"),
        ("../etc", "..%2Fetc"),
        ("a=b:c%", "a%3Db%3Ac%25"),
        ("grün", "grün"),
    ],
)
def test_values_name_folders_as_hive_does(value, text):
    assert text_of(value) == text


def test_rows_of_a_folder_keep_their_order_and_lose_its_columns():
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3, 4], "day": ["b", "a", "b", None], "hour": [1, 1, 1, 2]})
    found = {folder: rows.to_pydict() for folder, rows in split(batch, ["day", "hour"])}
    assert found == {
        "day=b/hour=1/": {"n": [1, 3]},
        "day=a/hour=1/": {"n": [2]},
        "day=__HIVE_DEFAULT_PARTITION__/hour=2/": {"n": [4]},
    }


def test_a_value_of_dots_stays_below_the_directory(tmp_path):
    trial = SinkTrial(FileSink(str(tmp_path / "out"), partition_by=["name"]), parallelism=1)
    trial.epoch_of([(1, ".."), (2, "/abs")])
    assert trial.checkpoint()
    assert [path.parent.name for path in seen(tmp_path / "out")] == ["name=%2Fabs", "name=.."]


def test_files_roll_and_none_is_lost(tmp_path):
    trial = SinkTrial(FileSink(str(tmp_path), max_file_bytes=1), parallelism=1)
    rows = trial.epoch(4)
    trial.checkpoint()
    files = seen(tmp_path)
    assert len(files) == 2
    assert [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()] == [n for n, _ in rows]


def test_more_folders_than_may_be_open(tmp_path):
    trial = SinkTrial(FileSink(str(tmp_path), partition_by=["name"]), parallelism=1)
    trial.epoch_of([(n, f"f{n % 100}") for n in range(300)])
    trial.checkpoint()
    found = [json.loads(line)["n"] for file in seen(tmp_path) for line in file.read_text().splitlines()]
    assert sorted(found) == list(range(300))
    assert {path.parent.name for path in seen(tmp_path)} == {f"name=f{n}" for n in range(100)}


def test_a_staged_file_that_is_lost_is_an_error_not_a_gap(tmp_path):
    trial = SinkTrial(FileSink(str(tmp_path)), parallelism=1)
    trial.epoch(2)
    trial.complete()
    for hidden in (tmp_path / ".tidegate-staged").iterdir():
        hidden.unlink()
    with pytest.raises(CommitInDoubt, match="has disappeared without being committed"):
        trial.committer.commit(trial.requests())


def test_a_commit_that_died_half_way_is_finished_although_a_reader_took_the_first_half(tmp_path):
    trial = SinkTrial(FileSink(str(tmp_path), partition_by=["name"]), parallelism=1)
    trial.epoch_of([(1, "a"), (2, "b")])
    with dies_at(2) as death:
        trial.checkpoint()
    assert death.reached[-1] == "files.2-renamed"
    [first] = seen(tmp_path)
    first.unlink()
    trial.sweep(waiting=trial.requests())
    assert trial.restart()
    assert [path.parent.name for path in seen(tmp_path)] == ["name=b"]


def test_csv_distinguishes_null_from_empty_and_keeps_digits(tmp_path):
    from tidegate.connectors.files.formats import ENCODERS

    schema = Schema.parse("a string, d decimal(10,2), b binary, t timestamp, day date, x double, ok boolean")
    batch = pa.RecordBatch.from_pydict(
        {
            "a": ["", None],
            "d": [Decimal("1.50"), None],
            "b": [b"\x00\xff", None],
            "t": [0, None],
            "day": [date(2024, 5, 1), None],
            "x": [0.1, None],
            "ok": [True, None],
        },
        schema=schema.to_arrow(),
    )
    encoder = ENCODERS["csv"](tmp_path / "x.csv", schema)
    encoder.write(batch)
    encoder.close()
    head, first, second = (tmp_path / "x.csv").read_text().splitlines()
    assert head == '"a","d","b","t","day","x","ok"'
    assert first == '"","1.50","AP8=",1970-01-01 00:00:00.000000Z,2024-05-01,0.1,true'
    assert second == ",,,,,,"


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"format": "orc"}, "'csv' or 'json' or 'parquet'"),
        ({"partition_by": "day"}, r"partition_by=\['day'\]"),
        ({"max_file_bytes": 0}, "omit it"),
        ({"path": "gs://bucket/x"}, "not to gs://"),
        ({"path": "s3://bucket/x", "options": {"key": "?"}}, "no option 'key'"),
    ],
)
def test_wrong_choices_are_reported_when_the_sink_is_created(choices, words):
    with pytest.raises(GraphError, match=words):
        FileSink(**{"path": "out", **choices})


@pytest.mark.parametrize(
    ("choices", "ddl", "words"),
    [
        ({"partition_by": ["dya"]}, "day string, n int", "no column 'dya'"),
        ({"partition_by": ["x"]}, "x double, n int", "is a double and cannot name folders"),
        ({"partition_by": ["n"]}, "n int", "no column is left"),
        ({"format": "csv"}, "n int, tags array<string>", "CSV cannot represent column 'tags'"),
    ],
)
def test_columns_that_do_not_fit_are_reported_when_the_job_starts(choices, ddl, words):
    with pytest.raises(GraphError, match=words):
        FileSink("out", **choices).create_committer(CommitterContext(Schema.parse(ddl), lambda token: b""))


def test_secrets_are_not_shown():
    sink = FileSink("s3://bucket/x", options={"secret_access_key": "hush"})
    assert "hush" not in f"{sink} {sink.describe()}"


def test_a_call_with_many_outputs_makes_each_epoch_durable_at_once(tmp_path, monkeypatch):
    trial = SinkTrial(FileSink(str(tmp_path)), parallelism=8)
    for _ in range(3):
        trial.epoch(*[1] * 8)
    trial.complete()
    synced = []
    monkeypatch.setattr("tidegate.connectors.files.directory._sync", synced.append)
    trial.committer.commit(trial.requests())
    assert len(seen(tmp_path)) == 24
    # The marks of an epoch, then the folder of its files and the one that they left.
    assert len(synced) == 3 * 3
