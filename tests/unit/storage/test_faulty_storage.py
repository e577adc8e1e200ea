"""The fault-injecting store strikes as scripted, and only there."""

from __future__ import annotations

import contextlib

import pytest

from tidegate.storage import Lost, OutcomeUnknown, StorageUnavailable, Won, new_nonce
from tidegate.testing.storage import Crash, FaultyStorage, MemoryStorage, StorageFault, Strike


@pytest.mark.parametrize("strike", list(Strike))
def test_each_strike_does_what_it_says(strike: Strike) -> None:
    inner = MemoryStorage()
    storage = FaultyStorage(inner, [StorageFault(strike, "put", path="log/")])
    storage.put("other", b"")
    with pytest.raises(Crash if strike in (Strike.CRASH_BEFORE, Strike.CRASH_AFTER) else StorageUnavailable):
        storage.put("log/1", b"x")
    assert len(inner.list("log")) == (1 if strike in (Strike.FAIL_AFTER, Strike.CRASH_AFTER) else 0)
    storage.put("log/1", b"x")
    assert inner.get("log/1") == b"x"


@pytest.mark.parametrize(("strike", "then"), [(Strike.FAIL_BEFORE, Lost(b"other")), (Strike.FAIL_AFTER, Won())])
def test_a_struck_create_leaves_its_writer_in_doubt(strike: Strike, then: Won | Lost) -> None:
    inner, nonce = MemoryStorage(), new_nonce()
    storage = FaultyStorage(inner, [StorageFault(strike, "create")])
    with pytest.raises(OutcomeUnknown):
        storage.create("log/1", nonce.encode(), nonce)
    if not inner.list():
        inner.put("log/1", b"other")
    assert storage.create("log/1", nonce.encode(), nonce) == then


def test_the_nth_and_how_often() -> None:
    storage = FaultyStorage(MemoryStorage(), [StorageFault(Strike.FAIL_BEFORE, "get", nth=2, times=2)])
    storage.put("x", b"1")
    outcomes = []
    for _ in range(4):
        try:
            outcomes.append(storage.get("x"))
        except StorageUnavailable:
            outcomes.append(b"failed")
    assert outcomes == [b"1", b"failed", b"failed", b"1"]
    assert storage.seen == [("put", "x")] + [("get", "x")] * 4


def test_a_crash_passes_what_catches_exceptions() -> None:
    storage = FaultyStorage(MemoryStorage(), [StorageFault(Strike.CRASH_AFTER, "delete", path="b")])
    for name in "abc":
        storage.put(name, b"")
    with pytest.raises(Crash), contextlib.suppress(Exception):
        storage.delete("abc")
    assert [each.path for each in storage.list()] == ["c"]
