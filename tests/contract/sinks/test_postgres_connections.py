"""The connections of a PostgreSQL sink: one for each process and sink, none while idle, and no lock that outlives its process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.contract.sinks.test_postgres_sink import PostgresTarget
from tests.servers.fixtures import postgres_server
from tests.waiting import eventually
from tidegate.connectors.postgres import PostgresSink, lock_watch, shared_connection
from tidegate.core.faults import arm
from tidegate.testing.sink_contract import check
from tidegate.testing.sink_trial import SinkTrial

__all__ = ["postgres_server"]


class NamedTarget(PostgresTarget):
    """Its connections can be told from those of other tests."""

    def sink(self):
        return PostgresSink(
            f"{self.server.conninfo} options='-c tidegate.test={self.schema}'", f"{self.schema}.out", **self.choices
        )

    def connections(self):
        """How many there are, apart from this one."""
        rows = self.do("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
        return rows[0][0] - 1


def test_the_committers_of_many_slots_share_one_connection(postgres_server):
    """A process publishes for many slots, each with a committer of its own: the server has about a hundred connections."""
    shared_connection.close_all()
    target = NamedTarget(postgres_server)
    trial = SinkTrial(target.sink(), parallelism=20)
    trial.epoch(*[1] * 20)
    trial.complete()
    before = target.connections()
    committers = [trial.new_committer() for _ in range(20)]
    for committer, request in zip(committers, trial.requests()):
        committer.commit([request])
    assert target.connections() <= max(before, 1)
    check(target, trial)


def test_a_connection_that_is_not_used_is_closed(postgres_server, monkeypatch):
    shared_connection.close_all()
    monkeypatch.setattr(shared_connection, "IDLE_S", 0.2)
    target = NamedTarget(postgres_server)
    eventually(lambda: target.connections() == 0)
    trial = SinkTrial(target.sink())
    for _ in range(2):
        trial.epoch(1, 1)
        assert trial.checkpoint()
        eventually(lambda: target.connections() == 0)
    check(target, trial)


@contextmanager
def frozen_at(point: str, work: Callable[[], object]) -> Iterator[int]:
    """Have a child do it, stopped with SIGSTOP at a fault point, and killed at the end."""
    child = os.fork()
    if child == 0:
        arm(lambda reached, **context: os.kill(os.getpid(), signal.SIGSTOP) if reached == point else None)
        try:
            work()
        except BaseException:
            os._exit(9)
        os._exit(0)
    try:
        _, status = os.waitpid(child, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("point", ["postgres.1-marked", "postgres.copying", "postgres.2-copied"])
def test_a_frozen_committer_does_not_delay_the_next_one(postgres_server, monkeypatch, point):
    """Its connection stays open, and the kernel of its host answers for it: without help the next one waits for ever."""
    monkeypatch.setattr(lock_watch, "FROZEN_S", 1.0)
    target = NamedTarget(postgres_server)
    trial = SinkTrial(target.sink(), parallelism=1)
    trial.epoch(3)
    trial.complete()
    shared_connection.close_all()
    with frozen_at(point, lambda: trial.new_committer().commit(trial.requests())):
        assert trial.release()
        check(target, trial)
    check(target, trial)


def test_a_foreign_lock_is_waited_for_and_never_ended(postgres_server, monkeypatch):
    """Only a transaction of the same sink and lineage is ended. The output waits, and the message says who holds it up."""
    monkeypatch.setattr(lock_watch, "FROZEN_S", 0.5)
    monkeypatch.setattr(lock_watch, "LOCK_TIMEOUT_MS", 2_000)
    target = NamedTarget(postgres_server)
    trial = SinkTrial(target.sink(), parallelism=1)
    trial.epoch(2)
    assert trial.checkpoint()
    trial.epoch(2)
    trial.complete()
    with psycopg.connect(postgres_server.conninfo) as other:
        other.execute(f"SELECT * FROM {target.schema}.tidegate_commits FOR UPDATE")
        refused = trial.release()
        assert "waits for a lock" in str(refused.refused_by)
        assert other.execute("SELECT 1").fetchone() == (1,)
    assert trial.release()
    check(target, trial)


def test_a_slow_committer_that_still_copies_is_not_ended(postgres_server, monkeypatch):
    """As long as bytes arrive at the server, the next one waits."""
    monkeypatch.setattr(lock_watch, "FROZEN_S", 1.0)
    target = NamedTarget(postgres_server)
    trial = SinkTrial(target.sink(), parallelism=1)
    trial.epoch(1)
    trial.complete()
    [request] = trial.requests()
    name = lock_watch.holder_name(request.lineage, request.sink)
    with psycopg.connect(postgres_server.conninfo) as slow:
        slow.execute("SELECT set_config('application_name', %s, true)", [name])
        slow.execute(
            f"INSERT INTO {target.schema}.tidegate_commits (lineage, sink, slot, term, epoch) VALUES (%s, %s, 0, 0, 0)",
            [request.lineage, request.sink],
        )
        with slow.cursor().copy(f"COPY {target.schema}.out (n, name) FROM STDIN") as copy:
            done = threading.Thread(target=trial.release)
            done.start()
            for n in range(30):
                copy.write(f"{-n}\tslow{'x' * 9000}\n")
                time.sleep(0.1)
        slow.rollback()
        done.join(60)
    check(target, trial)


@pytest.mark.feature("J16")
def test_rows_that_another_committer_commits_meanwhile_are_not_committed_twice(postgres_server):
    """The markers are read once before the rows, and once more when they are locked."""
    target = NamedTarget(postgres_server)
    trial = SinkTrial(target.sink(), parallelism=1)
    trial.epoch(3)
    trial.complete()
    mine, trial.sink = (
        trial.committer,
        PostgresSink(f"{postgres_server.conninfo} connect_timeout=6", f"{target.schema}.out"),
    )
    other = trial.new_committer()

    def publish(reached, **context):
        if reached == "trial.read":
            arm(None)
            other.commit(trial.requests())

    arm(publish)
    try:
        mine.commit(trial.requests())
    finally:
        arm(None)
    check(target, trial)
