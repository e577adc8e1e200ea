"""A backend is chosen by configuration, as in Flink; a user's own by its class name."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tidegate.state.backends import (
    UnknownBackend,
    backend_named,
    built_in_backend,
    is_known,
)
from tidegate.state.heap import HashMapBackend
from tidegate.state.rocksdb import RocksDBBackend, RocksDBOptions


class MyFactory:
    def create_from_config(self, configuration: Mapping[str, Any]) -> HashMapBackend:
        return HashMapBackend(cache_size=int(configuration["mine.size"]))


@pytest.fixture
def _my_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("my_backends")
    module.MyFactory = MyFactory  # type: ignore[attr-defined]
    module.AnotherFactory = MyFactory  # type: ignore[attr-defined]
    module.NotOne = int  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_backends", module)


@pytest.mark.feature("F20")
@pytest.mark.parametrize(
    ("name", "kind"), [("hashmap", HashMapBackend), ("jobmanager", HashMapBackend), ("rocksdb", RocksDBBackend)]
)
def test_by_a_name_of_flinks(name: str, kind: type) -> None:
    assert backend_named(name) == kind()


@pytest.mark.feature("F22")
@pytest.mark.usefixtures("_my_module")
def test_by_the_name_of_a_factory_class() -> None:
    assert backend_named("my_backends.MyFactory", {"mine.size": "17"}) == HashMapBackend(cache_size=17)


@pytest.mark.feature("F20", "F22")
@pytest.mark.usefixtures("_my_module")
@pytest.mark.parametrize("name", ["rocks", "no_such_module.Factory", "my_backends.Missing", "my_backends.NotOne", ".x"])
def test_anything_else_is_refused(name: str) -> None:
    with pytest.raises(UnknownBackend, match=r"Use 'hashmap', 'rocksdb'"):
        backend_named(name)


def test_rocksdb_options_have_flinks_names() -> None:
    backend = backend_named(
        "rocksdb",
        {
            "state.backend.rocksdb.block.cache-size": "8 mb",
            "state.backend.rocksdb.use-bloom-filter": "false",
            "state.backend.rocksdb.compression.per.level": "no_compression",
            "execution.checkpointing.interval": "10 s",
        },
    )
    wanted = RocksDBOptions(block_cache_size=8 << 20, use_bloom_filter=False, compression="NO_COMPRESSION")
    assert backend == RocksDBBackend(wanted)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block.cache-sise", "8 mb"),
        ("block.cache-size", "much"),
        ("block.cache-size", "0"),
        ("use-bloom-filter", "perhaps"),
        ("compression.per.level", "GZIP"),
    ],
)
def test_wrong_options_are_refused_with_the_key_or_the_form(key: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"state\.backend\.rocksdb\.|a size such as"):
        backend_named("rocksdb", {f"state.backend.rocksdb.{key}": value})


@pytest.mark.feature("F2")
@pytest.mark.parametrize("name", ["hashmap", "rocksdb"])
def test_a_backend_travels_to_the_workers(name: str) -> None:
    backend = backend_named(name)
    assert pickle.loads(pickle.dumps(backend)) == backend


def test_a_name_in_a_file_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_backend.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnknownBackend, match="named by a file"):
        built_in_backend("evil_backend.Backend")
    assert "evil_backend" not in sys.modules
    assert built_in_backend("hashmap").name == "hashmap"


@pytest.mark.feature("F22")
@pytest.mark.usefixtures("_my_module")
def test_files_may_name_a_backend_that_the_job_configures() -> None:
    assert not is_known("my_backends.AnotherFactory")
    backend_named("my_backends.AnotherFactory", {"mine.size": "1"})
    assert is_known("my_backends.AnotherFactory")
