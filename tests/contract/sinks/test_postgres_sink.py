"""PostgreSQL keeps the contract, on a real server: appends, upserts, and prepared transactions."""

from __future__ import annotations

import uuid

import psycopg
import pytest

from tests.servers.fixtures import postgres_server
from tests.servers.postgres import Postgres
from tidegate.connectors.postgres import PostgresSink
from tidegate.testing.sink_contract import SinkContract
from tidegate.testing.sink_trial import failing

__all__ = ["postgres_server"]


class PostgresTarget:
    ordered = True

    def __init__(self, server: Postgres, constraint: str = "", **choices):
        self.server, self.choices = server, choices
        self.schema = f"s{uuid.uuid4().hex}"
        self.do(f"CREATE SCHEMA {self.schema}")
        self.do(f"CREATE TABLE {self.schema}.out (n bigint, name text, place bigserial{constraint})")

    def do(self, statement, *values):
        with psycopg.connect(self.server.conninfo, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def sink(self):
        return PostgresSink(self.server.conninfo, f"{self.schema}.out", **self.choices)

    def rows(self):
        return self.do(f"SELECT n, name FROM {self.schema}.out ORDER BY place")

    def take_away(self):
        self.do(f"DELETE FROM {self.schema}.out")

    def outage(self):
        return self.server.outage()

    def leavings(self):
        prepared = self.do("SELECT gid FROM pg_prepared_xacts p JOIN pg_database ON datname = p.database")
        return [gid for (gid,) in prepared + self.do(f"SELECT gid FROM {self.schema}.tidegate_prepared")]


@pytest.fixture(autouse=True)
def _no_prepared_transactions_left(postgres_server):
    """The number that a server holds is limited, and tests leave some on purpose."""
    yield
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            connection.execute(f"ROLLBACK PREPARED '{gid}'")


@pytest.mark.feature("J16")
class TestAppends(SinkContract):
    @pytest.fixture
    def target(self, postgres_server):
        return PostgresTarget(postgres_server)


@pytest.mark.feature("J15")
class TestUpserts(SinkContract):
    @pytest.fixture
    def target(self, postgres_server):
        return PostgresTarget(postgres_server, ", PRIMARY KEY (n)", mode="upsert", key=["n"])


class TwoPhaseTarget(PostgresTarget):
    def outage(self):
        """Between the phases: without the server there is no first one either."""
        return failing("postgres.commit-1", OSError("no route to host"))


@pytest.mark.feature("J19", "J20", "J21", "J23", "J26")
class TestTwoPhases(SinkContract):
    @pytest.fixture
    def target(self, postgres_server):
        return TwoPhaseTarget(postgres_server, two_phase=True)
