"""One place has one name, however it is spelled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.storage import open_storage
from tidegate.storage.place import place_of


def test_spellings_of_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = tmp_path / "real dir"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    spellings = [
        str(real), f"{real}/", real.as_uri(), real.as_uri() + "/", "real dir", "./link", str(tmp_path / "link"),
        f"{tmp_path}/link/../real dir", "~/link", f"file://localhost{real.as_uri()[7:]}",
    ]  # fmt: skip
    assert {place_of(open_storage(text).url) for text in spellings} == {real.resolve().as_uri()}
    assert place_of(str(tmp_path / "copy")) != place_of(str(real))


def test_a_directory_that_does_not_exist_yet_has_a_place(tmp_path: Path) -> None:
    before = place_of(str(tmp_path / "new"))
    os.mkdir(tmp_path / "new")
    assert place_of(str(tmp_path / "new")) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/a/b", "s3a://bucket/a/b/"),
        ("S3://bucket/a/b", "s3://bucket/a//b"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a/"),
        ("az://box/a", "azure://box/a"),
        ("hdfs://nn:8020/a", "webhdfs://NN:9870/a/"),
    ],
)
def test_spellings_of_one_place_in_a_store(one: str, other: str) -> None:
    assert place_of(one) == place_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://bucket/a", "s3://bucket/b"),
        ("s3://bucket/a", "s3://other/a"),
        ("s3://bucket/a", "gs://bucket/a"),
        ("s3://bucket/A", "s3://bucket/a"),
        ("hdfs://one:8020/a", "hdfs://two:8020/a"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@other.dfs.core.windows.net/a"),
    ],
)
def test_different_places(one: str, other: str) -> None:
    assert place_of(one) != place_of(other)
