"""Which tests of CI run for a change: all that it reaches, and of the others every fourth, another with every commit.

1. What always runs: unit tests, the simulation, a walk with kills for each family of sinks, the first five minutes, the upgrade.
2. What the change reaches (`tests/tiers/reach.py`), compared with the commit of the last recorded run, and what failed in that.
   Comments and the prose of a page reach nothing, docstrings the tests of the examples in them.
3. Of the rest one quarter: four consecutive commits run everything, and so does `make nightly`.

Without a recorded commit, in a clone without its history, or when a change reaches no test at all, everything runs.
`python -m tests.tiers ci` writes the selection to a file; pytest leaves out what the file does not contain.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiers.change import Change, base_commit, change_since, failed_before, turn_of_head
from tests.tiers.reach import Reach, runs_always, unit_of

VARIABLE = "TIDEGATE_SELECTION"
"""The file with the selection. Without it every test runs."""
TURNS = 4
DOCSTRING_TESTS = ("tests/integration/test_docstring_examples.py",)
"""Those of the examples that need Spark. The others are among the architecture tests, which always run."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The units that run, each with the reason. `left_out` take their turn with a later commit."""

    chosen: Mapping[str, str]
    left_out: tuple[str, ...] = ()

    def summary(self) -> str:
        turns = sum(reason == _TURN for reason in self.chosen.values())
        always = sum(reason == _ALWAYS for reason in self.chosen.values())
        reached = len(self.chosen) - turns - always
        return (
            f"{always} test files and pages always run, the change reaches {reached} more, {turns} are here in their turn, "
            f"{len(self.left_out)} are left for other commits"
        )

    def write(self, file: Path) -> None:
        file.write_text(json.dumps({"chosen": dict(self.chosen), "left_out": self.left_out}, indent=1))


_ALWAYS = "always"
_TURN = "turn"
_WHOLE = "everything"
_FAILED = "failed before"


def select(units: Iterable[str], reached: Mapping[str, str], turn: int, turns: int = TURNS) -> Selection:
    """Decide for every unit. `turns` of 0 leaves out whatever the change does not reach."""
    chosen: dict[str, str] = {}
    left_out = []
    for unit in units:
        if runs_always(unit):
            chosen[unit] = _ALWAYS
        elif unit in reached:
            chosen[unit] = reached[unit]
        elif turns and _place(unit) % turns == turn % turns:
            chosen[unit] = _TURN
        else:
            left_out.append(unit)
    return Selection(chosen, tuple(left_out))


def selection_for(
    change: Change | None, reach: Reach, turn: int, turns: int = TURNS, failed: Iterable[str] = ()
) -> Selection:
    """The selection for a change; everything if it is unknown what has changed, or what that reaches. `failed`: units that
    failed in the run with which the change is compared."""
    if change is None:
        return Selection(dict.fromkeys(reach.units, _WHOLE))
    reached = reach.reached(change.files)
    if change.files and not reached:
        return Selection(dict.fromkeys(reach.units, _WHOLE))
    if change.described:
        reached |= dict.fromkeys(DOCSTRING_TESTS, min(change.described))
    return select(reach.units, dict.fromkeys(failed, _FAILED) | reached, turn, turns)


def current_selection(turns: int = TURNS) -> Selection:
    """The selection for the working tree."""
    base = base_commit()
    change = None if base is None else change_since(base)
    return selection_for(change, Reach.of_project(), turn_of_head(), turns, failed_before())


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the selection does not contain. A unit that it does not know is new, and runs."""
    file = os.environ.get(VARIABLE)
    if not file:
        return
    left_out = set(json.loads(Path(file).read_text())["left_out"])
    skipped = [item for item in items if unit_of(item.nodeid) in left_out]
    if skipped:
        config.hook.pytest_deselected(items=skipped)
        items[:] = [item for item in items if unit_of(item.nodeid) not in left_out]


def _place(unit: str) -> int:
    """A number that stays the same while the name does."""
    return int.from_bytes(hashlib.sha256(unit.encode()).digest()[:4])
