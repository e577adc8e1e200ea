"""What any table must keep, whoever commits, how often, and whatever its keepers do in between."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pytest

from tests.contract.lakehouse.targets import Target, committer, epoch, stage
from tidegate.connectors.outcome import CommitRefused
from tidegate.core import faults
from tidegate.core.ids import Lineage

D1, D2 = date(2024, 1, 31), date(2024, 2, 1)
FIRST = [(1, D1, "a"), (2, D2, "b"), (3, None, "c/d e"), (4, D1, None)]
SECOND = [(5, D1, "a"), (6, D2, "b")]


def in_order(*rows):
    return sorted((row for some in rows for row in some), key=repr)


@pytest.mark.feature("J20", "J21")
def test_rows_are_seen_after_commit_and_not_before(target: Target):
    commits = committer(target.sink)
    request = stage(target.sink, FIRST, epoch(1, 1))

    assert target.rows() == []
    commits.commit([request])
    assert target.rows() == in_order(FIRST)


def test_a_repeat_by_any_process_changes_nothing(target: Target):
    commits = committer(target.sink)
    requests = [stage(target.sink, FIRST, epoch(1, 1)), stage(target.sink, SECOND, epoch(1, 2))]
    commits.commit(requests[:1])

    commits.commit(requests[:1])
    committer(target.sink).commit(requests)
    committer(pickle.loads(pickle.dumps(target.sink))).commit(pickle.loads(pickle.dumps(requests)))
    assert target.rows() == in_order(FIRST, SECOND)


@pytest.mark.feature("J26")
def test_a_repeat_changes_nothing_after_compaction_and_removal_of_history(target: Target):
    commits = committer(target.sink)
    requests = [stage(target.sink, FIRST, epoch(1, 1)), stage(target.sink, SECOND, epoch(1, 2))]
    for request in requests:
        commits.commit([request])
    target.tidy()

    commits.commit(requests)
    committer(target.sink).commit(requests)
    assert target.rows() == in_order(FIRST, SECOND)


@pytest.mark.parametrize("step", ["1-read", "2-checked", "3-added"])
def test_a_committer_that_dies_at_any_step_is_followed_by_another(target: Target, step):
    committer(target.sink)
    request = stage(target.sink, FIRST, epoch(1, 1))

    def die(point, **context):
        if point.endswith(step):
            raise KeyboardInterrupt(point)

    faults.arm(die)
    try:
        with pytest.raises(KeyboardInterrupt):
            committer(target.sink).commit([request])
    finally:
        faults.arm(None)
    committer(target.sink).commit([request])
    assert target.rows() == in_order(FIRST)


def test_slots_of_several_epochs_go_in_one_commit(target: Target):
    commits = committer(target.sink)
    left, right = stage(target.sink, FIRST, epoch(1, 3), slot=0), stage(target.sink, SECOND, epoch(1, 2), slot=1)

    commits.commit([left, right])
    commits.commit([right])
    assert target.rows() == in_order(FIRST, SECOND)


def test_an_attempt_that_was_thrown_away_is_never_seen(target: Target):
    commits = committer(target.sink)
    stage(target.sink, FIRST, epoch(1, 1), attempt=1)
    stage(target.sink, FIRST, epoch(1, 1), attempt=2, finish=False)
    commits.commit([stage(target.sink, FIRST, epoch(1, 1), attempt=3)])

    assert target.rows() == in_order(FIRST)


def test_a_new_lineage_is_not_taken_for_a_repeat(target: Target):
    commits = committer(target.sink)
    commits.commit([stage(target.sink, FIRST, epoch(5, 9))])

    commits.commit([stage(target.sink, SECOND, epoch(1, 1), lineage=Lineage("fork"))])
    assert target.rows() == in_order(FIRST, SECOND)


def test_after_a_rollback_new_output_is_committed_and_old_output_does_not_return(target: Target):
    commits = committer(target.sink)
    old = [stage(target.sink, [(n, D1, "a")], epoch(1, n)) for n in (7, 8)]
    commits.commit(old)

    again = stage(target.sink, [(9, D2, "b")], epoch(2, 1))
    commits.commit([old[0], again])
    assert target.rows() == in_order([(7, D1, "a"), (8, D1, "a"), (9, D2, "b")])


def test_committers_at_once_add_everything_once(target: Target):
    committer(target.sink)
    slots = [[stage(target.sink, [(10 * s + n, D1, "a")], epoch(1, n), slot=s) for n in range(3)] for s in range(3)]
    everyone = [committer(target.sink) for _ in range(6)]

    def commit_all(number: int) -> None:
        for requests in zip(*slots):
            everyone[number].commit(requests)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(commit_all, range(6)))
    assert [row[0] for row in target.rows()] == [0, 1, 10, 11, 12, 2, 20, 21, 22]


def test_output_whose_epoch_was_committed_without_it_is_refused_and_not_left_out(target: Target):
    commits = committer(target.sink)
    commits.commit([stage(target.sink, FIRST, epoch(1, 1), slot=0)])

    with pytest.raises(CommitRefused, match="was committed without it"):
        commits.commit([stage(target.sink, SECOND, epoch(1, 1), slot=1)])
