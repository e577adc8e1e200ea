"""The heap backend's own parts: keys in order, the chain of files, tables that catch up, the cache's bound."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.core.errors import CorruptState
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.disk.version_directory import version_path
from tidegate.state.heap import HashMapBackend, chain, change_file, key_order
from tidegate.state.heap.change_file import Header
from tidegate.state.heap.key_order import KeyOrder
from tidegate.state.heap.table import CACHE, HeapTable, TableCache, forget
from tidegate.state.version import VersionFile, VersionId


def v(number: int, attempt: int = 1) -> VersionId:
    return VersionId(EpochId(Term(1), number), AttemptId(attempt))


def step(directory: Path, base: int | None, target: int, **entries: str) -> None:
    store = HashMapBackend().begin(directory, None if base is None else v(base), v(target), (0, 1))
    store.write([(key.encode(), value.encode()) for key, value in entries.items()])
    store.seal()


@pytest.mark.feature("F11")
def test_key_order_is_a_sorted_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_order, "_CHUNK", 4)
    dice = random.Random(2)
    model = {dice.randbytes(2) for _ in range(50)}
    order = KeyOrder(model)
    for _ in range(3000):
        key = dice.randbytes(1)
        if key in model:
            order.remove(key)
            model.remove(key)
        else:
            order.add(key)
            model.add(key)
        start, end = sorted((dice.randbytes(1), dice.randbytes(1)))
        found = [each for chunk in order.chunks(start, end) for each in chunk]
        assert found == sorted(each for each in model if start <= each < end)


@pytest.mark.feature("F34")
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=30), st.integers(1, 10**9))
def test_what_is_kept_is_larger_than_what_is_written(sizes: list[int], change: int) -> None:
    files = [VersionFile(f"{n}", size, v(n)) for n, size in enumerate(sizes)]
    kept = chain.kept_files(files, change)
    written = change + sum(file.size_bytes for file in files[kept:])
    assert kept == 0 or files[kept - 1].size_bytes > written


@pytest.mark.feature("F34")
def test_the_chain_stays_short_and_rewriting_rare() -> None:
    files: list[VersionFile] = [VersionFile("full", 10**9, v(0))]
    written = 0
    for number in range(1, 5001):
        kept = chain.kept_files(files, 10**5)
        size = 10**5 + sum(file.size_bytes for file in files[kept:])
        files = [*files[:kept], VersionFile(str(number), size, v(number))]
        written += size
        assert len(files) <= 16
    assert written < 12 * 5000 * 10**5


@pytest.mark.feature("F4")
def test_a_process_that_holds_the_version_reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has those of several tasks."""
    forget()
    tasks = [tmp_path / str(slot) for slot in range(3)]
    for task in tasks:
        step(task, None, 1, a="1")
    monkeypatch.setattr(change_file, "read_into", None)
    for task in tasks:
        store = HashMapBackend().begin(task, v(1), v(2), (0, 1))
        assert store.get(b"a") == b"1"
        store.abandon()


@pytest.mark.feature("F4", "H6")
def test_a_process_that_fell_behind_catches_up_from_deltas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process made versions 2 to 9; only their small files are read here, though some were merged since."""
    step(tmp_path, None, 1, **{f"key{n}": "x" * 100 for n in range(1000)})
    ours = CACHE.take(tmp_path)
    for number in range(2, 10):
        step(tmp_path, number - 1, number, **{f"key{number}": "new"})
    assert ours is not None
    CACHE.put(tmp_path, ours, 1 << 30)
    read: list[str] = []
    original = change_file.read_into

    def noted(path: Path, entries: change_file.Changes, *, keep_deletes: bool) -> None:
        read.append(path.suffix)
        original(path, entries, keep_deletes=keep_deletes)

    monkeypatch.setattr(change_file, "read_into", noted)
    store = HashMapBackend().begin(tmp_path, v(9), v(10), (0, 1))
    assert store.get_many([b"key1", b"key2", b"key9"]) == [b"x" * 100, b"new", b"new"]
    assert read
    assert set(read) == {".delta"}
    store.abandon()


@pytest.mark.feature("C25")
def test_a_table_of_a_losing_attempt_is_dropped(tmp_path: Path) -> None:
    forget()
    step(tmp_path, None, 1, a="1")
    loser = HashMapBackend().begin(tmp_path, v(1), v(2, attempt=5), (0, 1))
    loser.write([(b"a", b"lost"), (b"b", b"lost")])
    winner = HashMapBackend().begin(tmp_path, v(1), v(2, attempt=6), (0, 1))
    winner.write([(b"c", b"won")])
    winner.seal()
    loser.seal()
    store = HashMapBackend().begin(tmp_path, v(2, attempt=6), v(3), (0, 1))
    assert dict(store.scan(b"", b"\xff")) == {b"a": b"1", b"c": b"won"}
    store.abandon()


@pytest.mark.large
@pytest.mark.parametrize("damage", ["cut", "flip", "tail", "magic"])
def test_every_damage_to_a_file_is_found(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "file"
    change_file.write(path, Header(True, (v(1),)), [(b"%d" % n, b"v" * n) for n in range(50)])
    whole = path.read_bytes()
    places = range(len(whole)) if damage in ("cut", "flip") else [0]
    for at in places:
        body = bytearray(whole)
        if damage == "cut":
            del body[at:]
        elif damage == "flip":
            body[at] ^= 1
        elif damage == "tail":
            body += b"x"
        else:
            body[0] = 0
        path.write_bytes(body)
        with pytest.raises(CorruptState, match="file is damaged"):
            change_file.read_into(path, {}, keep_deletes=False)


def test_a_large_frame_count_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    entries = {b"%d" % n: random.Random(n).randbytes(50) for n in range(30_000)}
    change_file.write(path, Header(False, (v(1),)), [*entries.items(), (b"gone", None)])
    found: change_file.Changes = {}
    change_file.read_into(path, found, keep_deletes=True)
    assert found == {**entries, b"gone": None}
    assert change_file.read_header(path) == Header(False, (v(1),))


@pytest.mark.feature("F4")
def test_the_cache_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    cache = TableCache()
    for name in ("a", "b", "c"):
        cache.put(tmp_path / name, HeapTable(v(1), {b"k": b"x" * 1000}), 2500)
    assert cache.take(tmp_path / "a") is None
    assert cache.take(tmp_path / "b") is not None
    cache.put(tmp_path / "huge", HeapTable(v(1), {b"k": b"x" * 10_000}), 2500)
    assert cache.take(tmp_path / "c") is None
    assert cache.take(tmp_path / "huge") is not None


def test_a_table_reports_its_size() -> None:
    table = HeapTable(v(1), {b"a": b"1", b"b": b"22"})
    table.apply({b"a": b"333", b"b": None, b"c": b"4444", b"d": None}, v(2))
    assert table.size_bytes == HeapTable(v(2), {b"a": b"333", b"c": b"4444"}).size_bytes


def test_names_distinguish_full_from_delta(tmp_path: Path) -> None:
    forget()
    step(tmp_path, None, 1, **{f"key{n}": "x" * 100 for n in range(1000)})
    step(tmp_path, 1, 2, a="1")
    names = {path.name for path in version_path(tmp_path, v(2)).iterdir()}
    assert names == {"1-1-1.full", "1-2-1.delta", "manifest.json"}
