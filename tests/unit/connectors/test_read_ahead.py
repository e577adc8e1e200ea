"""Staged objects are read ahead, in order and not too many."""

from __future__ import annotations

import threading

import pytest

from tidegate.connectors.read_ahead import AHEAD, read_ahead


def test_objects_come_in_the_order_of_their_tokens():
    assert list(read_ahead(str.encode, [str(n) for n in range(50)])) == [str(n).encode() for n in range(50)]
    assert list(read_ahead(str.encode, [])) == []


def test_a_limited_number_of_objects_is_read_at_the_same_time():
    together, most, now, lock = threading.Barrier(AHEAD), 0, 0, threading.Lock()

    def read(token):
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        together.wait(60)
        with lock:
            now -= 1
        return b""

    assert len(list(read_ahead(read, ["x"] * (3 * AHEAD)))) == 3 * AHEAD
    assert most == AHEAD


def test_an_object_that_cannot_be_read_ends_it_where_it_is():
    def read(token):
        if token == "2":
            raise FileNotFoundError(token)
        return token.encode()

    found = read_ahead(read, ["1", "2", "3"])
    assert next(found) == b"1"
    with pytest.raises(FileNotFoundError):
        next(found)
