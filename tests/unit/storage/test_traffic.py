"""Counted requests to storage."""

from __future__ import annotations

from pathlib import Path

from tidegate.storage import LocalStorage, RoutedStorage
from tidegate.storage.traffic import Traffic
from tidegate.testing.storage import MemoryStorage


def test_every_kind_of_request_is_counted_with_its_bytes(tmp_path: Path) -> None:
    storage = RoutedStorage(LocalStorage(tmp_path))
    storage.put("a", b"12345")
    storage.get("a")
    storage.get_range("a", 1, 2)
    storage.list()
    storage.delete(["a"])
    assert storage.traffic.total() == {"write": (1, 5), "read": (2, 7), "list": (1, 0), "delete": (1, 0)}


def test_a_thousand_names_are_listed_or_deleted_with_one_request() -> None:
    storage = RoutedStorage(MemoryStorage())
    for number in range(1_001):
        storage.home.put(f"a/{number}", b"")
    storage.list("a")
    storage.delete([f"a/{number}" for number in range(1_000)])
    storage.folders()
    assert storage.traffic.total() == {"list": (3, 0), "delete": (1, 0)}


def test_what_was_taken_is_not_reported_again() -> None:
    traffic = Traffic()
    traffic.add("write", 10)
    assert traffic.take() == {"write": (1, 10)}
    traffic.add("read", 3)
    assert traffic.take() == {"read": (1, 3)}
    assert traffic.take() == {}
    assert traffic.total() == {"write": (1, 10), "read": (1, 3)}
