"""PostgreSQL keeps the contract, on a real server: appends, upserts, and prepared transactions."""

from __future__ import annotations

import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from tests.servers.fixtures import postgres_server
from tests.servers.postgres import Postgres
from tests.waiting import eventually
from tidegate.connectors.outcome import CommitInDoubt, CommitRefused
from tidegate.connectors.postgres import PostgresSink
from tidegate.connectors.postgres.table import TableRefused
from tidegate.connectors.sink import CommitterContext, checks_target
from tidegate.core.errors import PreconditionFailed, SchemaError
from tidegate.testing.sink_contract import SinkContract, check, check_order
from tidegate.testing.sink_trial import SCHEMA, SinkTrial, failing

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

    def refusing(self):
        conninfo = self.server.conninfo.replace("dbname=postgres", "dbname=shap")
        return PostgresSink(conninfo, f"{self.schema}.out", **self.choices), "database 'shap'"

    def leavings(self):
        prepared = self.do("SELECT gid FROM pg_prepared_xacts p JOIN pg_database ON datname = p.database")
        return [gid for (gid,) in prepared + self.do(f"SELECT gid FROM {self.schema}.tidegate_prepared")]

    def markers(self):
        return [str(marker) for marker in self.do(f"SELECT lineage, sink, slot FROM {self.schema}.tidegate_commits")]


class CountingTarget(PostgresTarget):
    """Every row knows the transaction that brought it."""

    def commits(self):
        return self.do(f"SELECT count(DISTINCT xmin::text) FROM {self.schema}.out")[0][0]


@pytest.fixture(autouse=True)
def _no_prepared_transactions_left(postgres_server):
    """The number that a server holds is limited, and tests leave some on purpose."""
    yield
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts").fetchall():
            connection.execute(f"ROLLBACK PREPARED '{gid}'")


@pytest.mark.feature("J16", "J23")
class TestAppends(SinkContract):
    @pytest.fixture
    def target(self, postgres_server):
        return CountingTarget(postgres_server)


@pytest.mark.feature("J15")
class TestUpserts(SinkContract):
    @pytest.fixture
    def target(self, postgres_server):
        return CountingTarget(postgres_server, ", PRIMARY KEY (n)", mode="upsert", key=["n"])


class TwoPhaseTarget(PostgresTarget):
    def outage(self):
        """Between the phases: without the server there is no first one either."""
        return failing("postgres.commit-1", OSError("no route to host"))


@pytest.mark.feature("J16", "J20", "J25", "J26")
class TestTwoPhases(SinkContract):
    @pytest.fixture
    def target(self, postgres_server):
        return TwoPhaseTarget(postgres_server, two_phase=True)


@pytest.mark.feature("J25")
def test_a_prepared_transaction_waits_through_a_crash_of_the_server_and_of_the_driver(postgres_server):
    target = TwoPhaseTarget(postgres_server, two_phase=True)
    trial = SinkTrial(target.sink())
    trial.epoch(3, 3)
    trial.complete()
    postgres_server.stop()
    postgres_server.start()
    assert target.rows() == []
    assert trial.restart()
    check(target, trial)


@pytest.mark.feature("J25")
def test_a_prepared_transaction_that_was_rolled_back_by_hand_is_an_error_not_a_gap(postgres_server):
    target = TwoPhaseTarget(postgres_server, two_phase=True)
    trial = SinkTrial(target.sink(), parallelism=1)
    trial.epoch(3)
    trial.complete()
    [gid] = target.leavings()
    target.do(f"ROLLBACK PREPARED '{gid}'")
    with pytest.raises(CommitInDoubt, match="no longer exists, and nothing shows that it was committed"):
        trial.committer.commit(trial.requests())


@pytest.mark.feature("J16")
def test_rows_that_were_staged_before_two_phases_were_chosen_are_committed_all_the_same(postgres_server):
    target = PostgresTarget(postgres_server)
    trial = SinkTrial(target.sink())
    trial.epoch(2, 2)
    trial.complete()
    trial.sink = PostgresSink(postgres_server.conninfo, f"{target.schema}.out", two_phase=True)
    assert trial.restart()
    trial.epoch(2, 2)
    trial.complete()
    trial.sink = target.sink()
    assert trial.restart()
    check(target, trial)


@pytest.mark.feature("J15")
def test_the_last_row_of_a_key_wins(postgres_server):
    target = PostgresTarget(postgres_server, ", PRIMARY KEY (n)", mode="upsert", key=["n"])
    trial = SinkTrial(target.sink(), parallelism=1)
    trial.epoch_of([(1, "a"), (2, "b"), (1, "c"), (1, None), (1, "d")])
    assert trial.checkpoint()
    assert sorted(target.rows()) == [(1, "d"), (2, "b")]
    trial.epoch_of([(2, "e")])
    assert trial.checkpoint()
    assert sorted(target.rows()) == [(1, "d"), (2, "e")]


@pytest.mark.feature("J15")
def test_rows_that_come_again_under_their_primary_key_are_not_doubled(postgres_server):
    """A job that starts from nothing has no marker for what it wrote before: only the key can tell."""
    target = PostgresTarget(postgres_server, ", PRIMARY KEY (n)", mode="upsert", key=["n"])
    trial = SinkTrial(target.sink(), parallelism=1)
    for _ in range(2):
        trial.epoch_of([(1, "a"), (2, "b")])
        assert trial.checkpoint()
        trial.cold_start()
    assert sorted(target.rows()) == [(1, "a"), (2, "b")]


def test_an_upsert_without_a_key_is_refused_in_the_task(postgres_server):
    target = PostgresTarget(postgres_server, ", UNIQUE (name)", mode="upsert", key=["name"])
    trial = SinkTrial(target.sink(), parallelism=1)
    with pytest.raises(SchemaError, match="has a null 'name'"):
        trial.epoch_of([(1, "a"), (2, None)])


def test_a_connection_that_broke_long_ago_is_made_again(postgres_server):
    target = PostgresTarget(postgres_server)
    trial = SinkTrial(target.sink())
    trial.epoch(2, 2)
    assert trial.checkpoint()
    with postgres_server.outage():
        trial.epoch(2, 2)
    assert trial.checkpoint()
    check(target, trial)


def test_a_job_whose_table_does_not_fit_does_not_start(postgres_server):
    target = PostgresTarget(postgres_server)
    target.do(f"ALTER TABLE {target.schema}.out ALTER n TYPE integer")
    with pytest.raises(TableRefused, match="n is int4, but the stream's column is bigint"):
        SinkTrial(target.sink())
    with pytest.raises(TableRefused, match=r"no table nowhere in the database 'postgres' at 127\.0\.0\.1:.*'tidegate'"):
        SinkTrial(PostgresSink(postgres_server.conninfo, "nowhere"))


def test_a_job_whose_database_is_away_starts_all_the_same(postgres_server):
    target = PostgresTarget(postgres_server)
    with postgres_server.outage():
        trial = SinkTrial(target.sink())
        trial.epoch(2, 2)
        assert not trial.checkpoint()
    assert trial.release()
    check(target, trial)


@pytest.mark.feature("J23")
def test_two_phases_are_refused_where_the_table_is_not_for_appends(postgres_server):
    target = PostgresTarget(postgres_server, ", PRIMARY KEY (n)", two_phase=True)
    with pytest.raises(TableRefused, match="Omit two_phase"):
        SinkTrial(target.sink())


@pytest.mark.feature("J23")
def test_two_phases_are_refused_where_the_server_has_no_prepared_transactions():
    # Another user runs the server, who may not look into a test's own directory.
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = Postgres(Path(folder), prepared_transactions=0)
        try:
            with pytest.raises(TableRefused, match="Set max_prepared_transactions"):
                SinkTrial(PostgresTarget(server, two_phase=True).sink())
        finally:
            server.stop()


def test_a_missing_write_permission_is_reported_with_the_grant_to_add(postgres_server):
    target = PostgresTarget(postgres_server)
    target.do(f"CREATE ROLE {target.schema} LOGIN")
    target.do(f"GRANT USAGE ON SCHEMA {target.schema} TO {target.schema}")
    conninfo = postgres_server.conninfo.replace("user=tidegate", f"user={target.schema}")
    with pytest.raises(TableRefused, match=rf"GRANT INSERT ON {target.schema}\.out"):
        SinkTrial(PostgresSink(conninfo, f"{target.schema}.out"))
    target.do(f"GRANT INSERT ON {target.schema}.out TO {target.schema}")
    with pytest.raises(PreconditionFailed, match="CREATE TABLE IF NOT EXISTS"):
        SinkTrial(PostgresSink(conninfo, f"{target.schema}.out"))


def test_a_large_call_is_cut_between_epochs(postgres_server, monkeypatch):
    monkeypatch.setattr("tidegate.connectors.postgres.committer.MOST_BYTES", 200)
    target = CountingTarget(postgres_server)
    trial = SinkTrial(target.sink())
    for _ in range(6):
        trial.epoch(3, 3)
    assert trial.checkpoint()
    assert 1 < target.commits() <= 6
    check_order(target, trial)
    check(target, trial)


@pytest.mark.feature("J15")
def test_the_last_value_of_a_key_wins_over_many_epochs_and_slots_in_one_call(postgres_server):
    target = CountingTarget(postgres_server, ", PRIMARY KEY (n)", mode="upsert", key=["n"])
    trial = SinkTrial(target.sink(), parallelism=3)
    for epoch in range(1, 7):
        slots = [[], [], []]
        slots[-epoch % 3] = [(7, f"value {epoch}"), (epoch + 100, "other")]
        trial.epoch_of(*slots)
    assert trial.checkpoint()
    assert dict(target.rows())[7] == "value 6"
    assert target.commits() == 1


def test_committers_of_overlapping_slots_do_not_deadlock(postgres_server):
    target = CountingTarget(postgres_server)
    trial = SinkTrial(target.sink(), parallelism=6)
    for _ in range(5):
        trial.epoch(*[2] * 6)
    trial.complete()
    with ThreadPoolExecutor(4) as pool:
        shares = [trial.requests(), trial.requests()[::-1], trial.requests()[:15], trial.requests()[10:]]
        done = [pool.submit(trial.new_committer().commit, share) for share in shares]
        assert all(each.exception(60) is None for each in done)
    check(target, trial)


def test_a_closed_committer_opens_its_connection_again(postgres_server):
    target = PostgresTarget(postgres_server)
    trial = SinkTrial(
        PostgresSink(f"{postgres_server.conninfo} application_name={target.schema}", f"{target.schema}.out")
    )
    for _ in range(2):
        trial.epoch(1, 1)
        assert trial.checkpoint()
        trial.committer.close()  # type: ignore[attr-defined]
    connected = "SELECT 1 FROM pg_stat_activity WHERE application_name = %s"
    eventually(lambda: not target.do(connected, target.schema), "the server has noticed the end of the connections")
    check(target, trial)


@pytest.fixture
def password_server(postgres_server):
    """A server that asks the user tide for a password."""
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'tide'").fetchone():
            connection.execute("CREATE ROLE tide LOGIN PASSWORD 'right'")
            postgres_server.ask_for_password("tide")
    eventually(lambda: not _can_log_in(f"{postgres_server.conninfo} user=tide"), "the server asks for a password")
    return postgres_server


def _can_log_in(conninfo):
    try:
        psycopg.connect(conninfo).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.mark.parametrize(
    ("login", "reason"),
    [
        ("user=tide dbname=postgres password=hunter2", 'password authentication failed for user "tide"'),
        ("user=tide dbname=postgres", "no password supplied"),
        ("user=tide dbname=shap password=right", 'database "shap" does not exist'),
        ("user=nobody dbname=postgres", 'role "nobody" does not exist'),
    ],
)
def test_a_refused_login_names_server_database_and_user(password_server, login, reason):
    server = dict(part.split("=") for part in password_server.conninfo.split())
    user, database = (word.partition("=")[2] for word in login.split()[:2])
    conninfo = f"host={server['host']} port={server['port']} {login}"
    committer = PostgresSink(conninfo, "totals").create_committer(CommitterContext(SCHEMA, bytes))
    assert checks_target(committer)
    began = time.monotonic()
    with pytest.raises(CommitRefused) as refused:
        committer.check_target()
    assert time.monotonic() - began < 15
    for part in (f"{server['host']}:{server['port']}", f"database {database!r}", f"user {user!r}", reason, "totals"):
        assert part in str(refused.value), part
    assert "hunter2" not in str(refused.value)
