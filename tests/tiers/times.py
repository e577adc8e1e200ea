"""How long CI took, as somebody recorded it: `python -m tests.tiers record` adds the last run to `times.jsonl`.

A run leaves its times in `artifacts/`. They are recorded on purpose, not by every run: what counts is a run on a machine that
did nothing else. A run beside other work says nothing about budgets (`record --beside-other-work`).

A change is compared with the commit of the last recorded run. At the first one every test ran; at each later one every test ran
that the changes since the one before reach. So at that commit every test has passed, except those that the run names as failed:
they run with every change until they have passed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from tests.tiers.budgets import PARTS_S, PHASES_S, TOLERANCE, WHOLE_S
from tests.tiers.parts import CI, part_of
from tests.tiers.reach import unit_of
from tests.tiers.summary import Summary

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "tiers" / "times.jsonl"
LAST = ROOT / "artifacts" / "ci-times.json"
PHASES = "phases.tsv"
"""`.ci/run` leaves the seconds of each phase in this file, beside the times of the tests."""
NOTABLE_S = 10.0
"""Tests below this are not recorded one by one."""


class Kind(StrEnum):
    """How much of CI a run was."""

    WHOLE = "whole"
    SELECTED = "selected"
    SOME_PARTS = "some parts"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTimes:
    """One run of CI's tests. Times are seconds of a clock on the wall."""

    date: str
    commit: str
    kind: Kind
    passed: bool
    took_s: float
    parts: Mapping[str, float]
    tests: Mapping[str, float] = field(default_factory=dict)
    """The notable ones, by name."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """What `.ci/run` did before the tests."""
    failed: Sequence[str] = ()
    """What has to run again: files and pages with tests that failed."""
    alone: bool = True
    """Whether the machine did nothing else."""


def recorded(file: Path = FILE) -> list[RunTimes]:
    """All recorded runs, oldest first."""
    if not file.exists():
        return []
    return [RunTimes(**json.loads(line)) for line in file.read_text().splitlines()]


def last_run(file: Path = FILE) -> RunTimes | None:
    """The last recorded run, if a run of everything is among those before it or is it."""
    runs = recorded(file)
    return runs[-1] if any(run.kind == Kind.WHOLE for run in runs) else None


def record(last: Path = LAST, file: Path = FILE, *, alone: bool = True) -> RunTimes:
    """Add the last run to the file. Raises ValueError for one that says too little: parts were missing, or tests failed. Of a
    run of everything, it is enough to know which failed."""
    run = replace(RunTimes(**json.loads(last.read_text())), phases=_phases(last.with_name(PHASES)), alone=alone)
    knows_all = run.passed
    if run.kind == Kind.WHOLE and not run.passed:
        run = replace(run, failed=_failed(last.parent))
        knows_all = bool(run.failed)
    if run.kind == Kind.SOME_PARTS or not knows_all:
        raise ValueError(f"Only a run of all parts in which every test passed is recorded. This one: {run}")
    with file.open("a") as out:
        out.write(json.dumps(asdict(run)) + "\n")
    return run


def exceeded(runs: Sequence[RunTimes]) -> list[str]:
    """What took longer than its budget in the newest run of each kind, each with the tests that grew."""
    complaints = []
    for kind, budgets in ((Kind.WHOLE, WHOLE_S), (Kind.SELECTED, PARTS_S)):
        alike = [run for run in runs if run.kind == kind and run.alone]
        if not alike:
            continue
        for part, took_s in alike[-1].parts.items():
            if took_s > TOLERANCE * budgets[part]:
                complaints.append(_complaint(part, took_s, budgets[part], grown(alike, part)))
        phases = _by_budget(alike[-1].phases)
        if kind == Kind.SELECTED:
            # Parts wait for each other: each may keep within its budget while all of them together do not.
            phases["tests"] = alike[-1].took_s
        for phase, took_s in phases.items():
            if took_s > TOLERANCE * PHASES_S[phase]:
                complaints.append(_complaint(phase, took_s, PHASES_S[phase], []))
    return complaints


def grown(runs: Sequence[RunTimes], part: str) -> list[str]:
    """The tests of a part that take longer in the newest run than in the one before it, most growth first."""
    if not runs:
        return []
    before = runs[-2].tests if len(runs) > 1 else {}
    growth = {
        name: seconds - before.get(name, 0.0)
        for name, seconds in runs[-1].tests.items()
        if part_of(name.split("::")[0]) == part
    }
    return [f"{name}: +{by:.0f} s" for name, by in sorted(growth.items(), key=lambda item: -item[1]) if by > 1]


def _failed(artifacts: Path) -> list[str]:
    """The units with tests that failed, as the JUnit files of all parts say. Empty if one of these is missing: its part was
    broken off."""
    summary = Summary()
    for part in CI:
        junit = artifacts / f"ci-{part.name}.xml"
        if not junit.exists():
            return []
        summary.add(junit)
    return sorted({unit_of(_node(line.partition(" ")[2])) for line in summary.failed})


def _node(name: str) -> str:
    """The name of a test as pytest writes it. In a JUnit file it has neither the ending of the file, nor `::` before a class."""
    path, _, test = name.partition("::")
    while path and not (ROOT / f"{path}.py").exists():
        path = path.rpartition("/")[0]
    return f"{path}.py::{test}"


def _complaint(what: str, took_s: float, budget_s: float, tests: Sequence[str]) -> str:
    named = "".join(f"\n  {test}" for test in tests[:10])
    return f"{what} took {took_s:.0f} s of {budget_s:.0f} s (tests/tiers/budgets.py){named}"


def _by_budget(phases: Mapping[str, float]) -> dict[str, float]:
    """The phases as they have budgets. Checks run beside each other; each line says how long its own end was waited for."""
    sums: dict[str, float] = {}
    for phase, took_s in phases.items():
        budget = phase if phase in PHASES_S else "checks"
        sums[budget] = sums.get(budget, 0.0) + took_s
    return sums


def _phases(file: Path) -> dict[str, float]:
    if not file.exists():
        return {}  # the tests were run without `.ci/run`
    lines = [line.split("\t") for line in file.read_text().splitlines()]
    return {name: float(seconds) for name, seconds in lines}
