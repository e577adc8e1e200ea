"""What an attempt reads and writes: bytes in byte order, its own writes included, nothing visible outside."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.contract.state.versions import EVERYTHING, KEY_GROUPS, build, contents, v
from tidegate.core.errors import StateError
from tidegate.state.port import StateBackend


def test_an_empty_store_reads_as_empty(backend: StateBackend, task: Path) -> None:
    store = backend.begin(task, None, v(1), KEY_GROUPS)
    assert store.get(b"a") is None
    assert store.get_many([]) == []
    assert store.get_many([b"a", b"b"]) == [None, None]
    assert list(store.scan(*EVERYTHING)) == []
    store.seal()
    assert contents(backend, task, v(1)) == {}


@pytest.mark.feature("F1")
def test_reads_see_base_and_own_writes(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1", b"b": b"2", b"c": b"3"})
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    store.write([(b"b", b"two"), (b"d", b"4")], deletes=[b"c"])
    assert [store.get(key) for key in (b"a", b"b", b"c", b"d", b"e")] == [b"1", b"two", None, b"4", None]
    assert store.get_many([b"d", b"e", b"c", b"b", b"a", b"a"]) == [b"4", None, None, b"two", b"1", b"1"]
    store.abandon()


@pytest.mark.feature("F1")
def test_puts_come_before_deletes(backend: StateBackend, task: Path) -> None:
    store = backend.begin(task, None, v(1), KEY_GROUPS)
    store.write([(b"a", b"1"), (b"a", b"2"), (b"b", b"1")], deletes=[b"b"])
    assert (store.get(b"a"), store.get(b"b")) == (b"2", None)
    store.write([(b"b", b"again")])
    store.seal()
    assert contents(backend, task, v(1)) == {b"a": b"2", b"b": b"again"}


@pytest.mark.feature("F11")
def test_scans_are_in_byte_order_within_bounds(backend: StateBackend, task: Path) -> None:
    keys = [b"", b"\x00", b"\x00\x00", b"a", b"a\xff", b"b", b"\xfe", b"\xff", b"\xff\xff", "é".encode()]
    shuffled = random.Random(3).sample(keys, len(keys))
    build(backend, task, None, v(1), dict.fromkeys(shuffled[:5], b"base"))
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    store.write([(key, b"own") for key in shuffled[5:]])
    assert [key for key, _ in store.scan(*EVERYTHING)] == sorted(keys)
    assert [key for key, _ in store.scan(*EVERYTHING, reverse=True)] == sorted(keys, reverse=True)
    assert [key for key, _ in store.scan(b"a", b"b", reverse=True)] == [b"a\xff", b"a"]
    assert [key for key, _ in store.scan(b"a", b"b")] == [b"a", b"a\xff"]
    assert [key for key, _ in store.scan(b"b", b"a")] == []
    assert [key for key, _ in store.scan(b"a", b"a")] == []
    store.abandon()


def test_empty_values_are_not_absence(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"", b"": b"x"})
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    assert (store.get(b"a"), store.get(b"")) == (b"", b"x")
    assert list(store.scan(*EVERYTHING)) == [(b"", b"x"), (b"a", b"")]
    store.abandon()


@pytest.mark.feature("F1", "F11")
def test_delete_range_takes_base_and_own_writes_and_no_more(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"a": b"1", b"b1": b"1", b"b2": b"1", b"c": b"1"})
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    store.write([(b"b3", b"own")])
    store.delete_range(b"b", b"c")
    store.delete_range(b"z", b"a")
    store.write([(b"b2", b"after")])
    assert dict(store.scan(*EVERYTHING)) == {b"a": b"1", b"b2": b"after", b"c": b"1"}
    assert store.get(b"b1") is None
    store.seal()
    assert contents(backend, task, v(2)) == {b"a": b"1", b"b2": b"after", b"c": b"1"}


@pytest.mark.feature("F1")
def test_writing_while_a_scan_is_open_is_not_seen_by_it(backend: StateBackend, task: Path) -> None:
    entries = {b"%04d" % n: b"old" for n in range(3000)}
    build(backend, task, None, v(1), entries)
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    store.write([(b"own", b"old")])
    seen = {}
    for key, value in store.scan(*EVERYTHING):
        seen[key] = value
        store.write([(key, b"new"), (key + b"+", b"new"), (b"own", b"new")], deletes=[b"2999"])
    assert seen == {**entries, b"own": b"old"}
    assert store.get(b"0000") == b"new"
    assert sum(1 for _ in store.scan(*EVERYTHING)) == 6002 - 1
    store.abandon()


def test_open_scans_do_not_hinder_seal_and_fail_afterwards(backend: StateBackend, task: Path) -> None:
    build(backend, task, None, v(1), {b"%05d" % n: b"x" for n in range(5000)})
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    scan = store.scan(*EVERYTHING)
    next(scan)
    store.write([(b"a", b"1")])
    store.seal()
    with pytest.raises(StateError, match="scan"):
        list(scan)
    assert len(contents(backend, task, v(2))) == 5001


def test_large_values(backend: StateBackend, task: Path) -> None:
    big = random.Random(1).randbytes(10 << 20)
    build(backend, task, None, v(1), {b"a": big, b"b": b"small", b"c": big[::-1]})
    store = backend.begin(task, v(1), v(2), KEY_GROUPS)
    assert store.get(b"a") == big
    assert store.get(b"c") == big[::-1]
    store.abandon()


@pytest.mark.feature("C25", "F1")
def test_many_keys_through_many_versions(backend: StateBackend, task: Path) -> None:
    dice = random.Random(5)
    model: dict[bytes, bytes] = {}
    base = None
    for number in range(1, 31):
        puts = {b"%07d" % dice.randrange(50_000): dice.randbytes(20) for _ in range(2_000)}
        deletes = dice.sample(sorted(model), min(200, len(model)))
        build(backend, task, base, v(number), puts, deletes)
        model.update(puts)
        for key in deletes:
            model.pop(key, None)
        base = v(number)
        backend.tidy(task, base.epoch.term, [base])
    assert contents(backend, task, v(30)) == model


def test_a_closed_store_refuses(backend: StateBackend, task: Path) -> None:
    store = backend.begin(task, None, v(1), KEY_GROUPS)
    store.write([(b"a", b"1")])
    store.seal()
    store.abandon()
    for use in (lambda: store.get(b"a"), lambda: store.write([(b"a", b"2")]), store.seal):
        with pytest.raises(StateError, match=r"1/v1-1 is sealed"):
            use()
    assert contents(backend, task, v(1)) == {b"a": b"1"}
