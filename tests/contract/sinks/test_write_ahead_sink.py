"""A function that minds its token makes any target keep the contract: here a SQLite database."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tidegate.connectors.write_ahead import WriteAheadSink
from tidegate.testing.sink_contract import SinkContract
from tidegate.testing.sink_trial import SinkTrial


class SQLiteTarget:
    ordered = True

    def __init__(self, path):
        self.path, self.down = path, False
        with closing(self.connect()) as db, db:
            db.execute("CREATE TABLE rows (n INTEGER, name TEXT)")
            db.execute("CREATE TABLE tokens (token TEXT PRIMARY KEY)")

    def connect(self):
        return sqlite3.connect(self.path, timeout=10)

    def take(self, rows, token):
        if self.down:
            raise ConnectionError("no database")
        with closing(self.connect()) as db, db:
            if db.execute("INSERT OR IGNORE INTO tokens VALUES (?)", [str(token)]).rowcount:
                db.executemany("INSERT INTO rows VALUES (?, ?)", rows)

    def sink(self):
        # The trial pickles what it is given, and the function stays in the driver.
        return Unpickled(self.take, idempotent=True)

    def rows(self):
        with closing(self.connect()) as db:
            return db.execute("SELECT n, name FROM rows ORDER BY rowid").fetchall()

    def take_away(self):
        with closing(self.connect()) as db, db:
            db.execute("DELETE FROM rows")

    def outage(self):
        return Outage(self)

    def leavings(self):
        return []


class Outage:
    def __init__(self, target):
        self.target = target

    def __enter__(self):
        self.target.down = True

    def __exit__(self, *error):
        self.target.down = False


_functions = {}


class Unpickled(WriteAheadSink):
    """Comes back with its function, as if the driver had never parted with it."""

    def __reduce__(self):
        _functions[id(self)] = self
        return _given, (id(self),)


def _given(key):
    return _functions[key]


@pytest.mark.feature("J17", "J18")
class TestWriteAhead(SinkContract):
    @pytest.fixture
    def target(self, tmp_path):
        return SQLiteTarget(tmp_path / "target.db")


@pytest.mark.feature("J18")
def test_a_repeat_has_the_same_rows_and_an_equal_token():
    calls = []

    def take(rows, token):
        calls.append((token, rows))
        if len(calls) == 1:
            raise ConnectionError("the answer was lost")

    trial = SinkTrial(Unpickled(take), parallelism=1)
    rows = trial.epoch(3)
    assert not trial.checkpoint()
    assert trial.restart()
    assert calls[0] == calls[1]
    assert calls[0][1] == rows
    assert calls[0][1][0].n == rows[0][0]


@pytest.mark.feature("J17")
def test_rows_as_arrow():
    tables = []
    trial = SinkTrial(Unpickled(lambda rows, token: tables.append(rows), form="arrow"), parallelism=1)
    rows = trial.epoch(3)
    assert trial.checkpoint()
    assert list(zip(*tables[0].to_pydict().values())) == rows
