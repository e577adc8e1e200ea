"""The fake keeps the contract of the real ones."""

from __future__ import annotations

import uuid

import pytest

from tidegate.connectors.outcome import CommitRefused
from tidegate.testing.sink_contract import SinkContract
from tidegate.testing.table_sink import TableSink, table_named


class TableTarget:
    ordered = True

    def __init__(self):
        self.name = uuid.uuid4().hex
        self.table = table_named(self.name)

    def sink(self):
        return TableSink(self.name)

    def rows(self):
        return list(self.table.rows)

    def take_away(self):
        self.table.rows.clear()

    def outage(self):
        return self.table.outage()

    def refusing(self):
        self.table.missing = CommitRefused(f"there is no table {self.name}")
        return self.sink(), self.name

    def leavings(self):
        return []

    def commits(self):
        return self.table.commits

    def markers(self):
        return [str(channel) for channel in self.table.markers]


class TestTableSink(SinkContract):
    @pytest.fixture
    def target(self):
        return TableTarget()
