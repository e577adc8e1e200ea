"""Storage that measures what is read through it."""

from __future__ import annotations

import threading
from pathlib import Path

from tidegate.storage import LocalStorage, MeteredStorage


def test_bytes_are_counted_and_everything_else_is_passed_on(tmp_path: Path) -> None:
    inner = LocalStorage(tmp_path)
    storage = MeteredStorage(inner)
    storage.put("a/b", b"0123456789")
    assert storage.read_bytes == 0
    assert storage.get("a/b") == b"0123456789"
    assert storage.get_range("a/b", 2, 3) == b"234"
    assert (storage.read_bytes, storage.size("a/b"), storage.url) == (13, 10, inner.url)


class Slow(LocalStorage):
    """Two reads must be under way before either ends."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.both = threading.Barrier(2)

    def get(self, path: str) -> bytes:
        self.both.wait(60)
        self.both.wait(60)
        return super().get(path)


def test_reads_at_the_same_time_count_once(tmp_path: Path) -> None:
    inner = Slow(tmp_path)
    inner.put("a", b"xy")
    storage = MeteredStorage(inner)
    taken: list[float] = []

    def read() -> None:
        storage.get("a")
        taken.append(storage.read_seconds)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert storage.read_bytes == 4
    assert 0.0 in taken or len(set(taken)) == 1
    assert storage.read_seconds > 0
