"""Which change files a checkpoint takes over and which it stores."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.checkpoint.task.change_plan import Fresh, plan_changes
from tidegate.core.ids import AttemptId, EpochId, Term
from tidegate.state.changelog.chain import VersionChanges, changes_name
from tidegate.state.version import VersionId


@dataclass(frozen=True)
class File:
    name: str
    origin: VersionId


def version(number: int) -> VersionId:
    return VersionId(EpochId(Term(1), number), AttemptId(1))


def change(number: int, size: int = 10) -> VersionChanges:
    return VersionChanges(changes_name(version(number)), Path("x"), size, version(number))


def stored(last: int, count: int) -> File:
    name = changes_name(version(last))
    return File(name if count == 1 else name.replace(".", f"+{count}."), version(last))


def told(plan: list[File | Fresh]) -> list[str | list[int]]:
    return [[each.version.epoch.number for each in one.changes] if isinstance(one, Fresh) else one.name for one in plan]


@pytest.mark.parametrize(
    ("first", "last", "files", "plan"),
    [
        (2, 5, [], [[2, 3, 4, 5]]),
        (2, 5, [(3, 2)], ["1-v3-1+2.changes", [4, 5]]),
        (2, 5, [(5, 4)], ["1-v5-1+4.changes"]),
        (4, 6, [(3, 2), (5, 2)], ["1-v5-1+2.changes", [6]]),
        (5, 6, [(5, 4)], ["1-v5-1+4.changes", [6]]),
        (2, 4, [(2, 1), (4, 1)], ["1-v2-1.changes", [3], "1-v4-1.changes"]),
        (4, 5, [(9, 1)], [[4, 5]]),
    ],
)
def test_stored_files_are_taken_over_and_the_rest_is_merged(
    first: int, last: int, files: list[tuple[int, int]], plan: list[str | list[int]]
) -> None:
    changes = [change(number) for number in range(first, last + 1)]
    assert told(plan_changes(changes, [stored(*each) for each in files], 1_000)) == plan


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 100))
def test_merged_files_are_small_and_hold_every_change_once(sizes: list[int], most: int) -> None:
    changes = [change(number, size) for number, size in enumerate(sizes, 1)]
    plan = plan_changes(changes, list[File](), most)

    held = [each.changes for each in plan if isinstance(each, Fresh)]
    assert [one for some in held for one in some] == changes
    for some in held:
        assert len(some) == 1 or sum(one.size_bytes for one in some) <= most
    for one, other in pairwise(held):
        assert sum(each.size_bytes for each in one) + other[0].size_bytes > most
