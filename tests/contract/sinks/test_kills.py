"""Real deaths: a process of its own writes or commits, and is killed with SIGKILL at each step that it comes to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import count

import pytest

from tests.contract.sinks.test_file_sink import DirectoryTarget
from tests.contract.sinks.test_postgres_sink import PostgresTarget, TwoPhaseTarget, _no_prepared_transactions_left
from tests.servers.fixtures import postgres_server
from tidegate.core.faults import arm
from tidegate.testing.sink_contract import check
from tidegate.testing.sink_trial import SinkTrial, new_rows

__all__ = ["_no_prepared_transactions_left", "postgres_server"]


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Have a child do it, killed at the fault point number `step`. False: it was done before."""
    child = os.fork()
    if child == 0:
        seen = count()
        arm(lambda point, **context: os.kill(os.getpid(), signal.SIGKILL) if next(seen) == step else None)
        try:
            work()
        except BaseException:
            os._exit(9)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


@pytest.fixture(params=["files", "postgres", "postgres-upsert", "postgres-two-phase"])
def target(request, tmp_path):
    if request.param == "files":
        return DirectoryTarget(tmp_path / "out", partition_by=["name"])
    server = request.getfixturevalue("postgres_server")
    match request.param:
        case "postgres":
            return PostgresTarget(server)
        case "postgres-upsert":
            return PostgresTarget(server, ", PRIMARY KEY (n)", mode="upsert", key=["n"])
    return TwoPhaseTarget(server, two_phase=True)


def numbers(rows):
    return sorted(row[0] for row in rows)


@pytest.mark.feature("J26")
def test_a_driver_killed_at_any_step_of_a_commit(target):
    for step in count():
        trial = SinkTrial(target.sink())
        trial.epoch(3, 3)
        trial.epoch(3, 3)
        trial.complete()

        def commit(trial=trial):
            trial.new_committer().commit(trial.requests())

        killed = killed_at(step, commit)
        seen = target.rows()
        target.take_away()
        assert trial.restart()
        assert numbers(seen + target.rows()) == numbers(trial.expected)
        target.take_away()
        if not killed:
            break
    assert step >= 4


def test_a_task_killed_at_any_step_of_its_attempt(target):
    if isinstance(target, PostgresTarget) and not target.choices.get("two_phase"):
        pytest.skip("stages in the job's storage, not in the target")
    for step in count():
        trial = SinkTrial(target.sink(), parallelism=1)
        trial.at = trial.at.next()
        rows = new_rows(4)
        killed = killed_at(step, lambda trial=trial, rows=rows: trial.attempt(0, rows))
        assert target.rows() == []
        trial.open_writer(0)  # the number of the child's attempt is used up
        trial.accept([trial.attempt(0, rows)], rows)
        assert trial.checkpoint()
        assert numbers(target.rows()) == numbers(trial.expected)
        trial.sweep()
        assert target.leavings() == []
        target.take_away()
        if not killed:
            break
    assert step >= 4


@pytest.mark.feature("J25")
def test_the_target_itself_is_killed_between_the_phases(postgres_server):
    target = TwoPhaseTarget(postgres_server, two_phase=True)
    trial = SinkTrial(target.sink())
    for _ in range(3):
        trial.epoch(2, 2)
        trial.complete()
        postgres_server.stop()
        postgres_server.start()
    assert trial.restart()
    check(target, trial)
