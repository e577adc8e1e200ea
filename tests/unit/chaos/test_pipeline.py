"""The reader at the end of a pipeline must see what is wrong; and a walk must bring every kind of fault."""

from __future__ import annotations

import pytest

from chaos.pipeline import Kind, count_rows, plan_rounds

FED = [(i % 3, i) for i in range(12)]
FOUND = [(k, i, i // 3 + 1) for k, i in FED]


def test_rows_that_are_there_once_and_in_order_are_fine():
    assert count_rows(FED, FOUND, ordered=True) == count_rows(FED, sorted(FOUND), ordered=False)
    assert (count := count_rows(FED, FOUND, ordered=True)).wrong == ()
    assert (count.expected, count.lost, count.duplicated) == (12, 0, 0)


@pytest.mark.parametrize(
    ("found", "lost", "duplicated", "words"),
    [
        (FOUND[:-1], 1, 0, "key 2"),
        ([*FOUND, FOUND[4]], 0, 1, "key 1"),
        ([*FOUND, (0, 99, 5)], 0, 0, "never sent"),
        ([*FOUND[:3], FOUND[6], FOUND[4], FOUND[5], FOUND[3], *FOUND[7:]], 0, 0, "another order"),
        ([(0, 0, 2), (0, 3, 1), *[row for row in FOUND if row[1] not in (0, 3)]], 0, 0, "key 0"),
    ],
)
def test_problems_are_reported(found, lost, duplicated, words):
    count = count_rows(FED, found, ordered=True)
    assert (count.lost, count.duplicated) == (lost, duplicated)
    assert words in " ".join(count.wrong)


@pytest.mark.parametrize("pipeline", ["kafka-kafka", "kafka-postgres", "kafka-files-s3", "kafka-delta"])
def test_a_walk_brings_every_kind_at_steps_and_at_random(pipeline):
    rounds = plan_rounds(pipeline, 32, seed=1, plain=False, only=None)
    kinds = {kind for kind, _ in rounds}
    missing = {Kind.SOURCE, Kind.CUT_SOURCE} if pipeline == "kafka-kafka" else set()
    assert kinds == set(Kind) - missing
    assert all({point is None for kind, point in rounds if kind is each} == {True, False} for each in kinds)
    assert {point for _, point in plan_rounds(pipeline, 32, seed=1, plain=True, only=None)} == {None}
