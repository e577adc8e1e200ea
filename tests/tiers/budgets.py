"""How long CI may take: each test, each part and the whole of it.

A test over its budget fails at once, and the failure says what to do. Parts and phases are compared when somebody records a run
(`tests/tiers/times.py`): the architecture tests then fail and name the tests that grew.

`TIDEGATE_TIER` names the tier. Without it nothing is enforced, so a debugger or a busy laptop breaks no test. The hooks are
installed by `tests/conftest.py`.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.speed import slowness

VARIABLE = "TIDEGATE_TIER"

BUDGETS_S: dict[str, dict[str, float]] = {
    "fast": {"tests": 10},
    "ci": {"tests": 60, "tests/integration": 180, "tests/cluster": 240},
    "nightly": {},
}
"""By tier and folder, about three times what the slowest test takes while both cores are busy: a noisy hour of a shared machine
must not fail a test that did not change. The longest folder that contains a test counts."""


MOST_S = 35 * 60
"""What a change may wait for CI."""
PHASES_S = {"setup": 60, "programs": 90, "checks": 180, "tests": 1770}
"""One after the other, with empty caches. `checks` is everything between the programs and the tests."""
PARTS_S = {
    "integration": 650,
    "kafka": 250,
    "pipelines": 250,
    "chaos": 150,
    "cluster": 250,
    "docs": 500,
    "contract": 200,
    "recovery": 300,
    "engine": 450,
    "unit": 500,
}
"""What a change selects of each part: all that always runs, a quarter of the rest, and a few files that it reaches. Two parts run
at a time."""
WHOLE_S = {
    "integration": 2300,
    "kafka": 900,
    "pipelines": 250,
    "chaos": 450,
    "cluster": 850,
    "docs": 1400,
    "contract": 450,
    "recovery": 300,
    "engine": 450,
    "unit": 500,
}
"""Each part with every test: after a change of what decides how tests run, and every night. CI ends after 90 minutes."""
TOLERANCE = 1.25
"""A recorded run may exceed a budget by a quarter: the machine is shared, and its speed changes by more from hour to hour."""


def tier() -> str | None:
    return os.environ.get(VARIABLE)


def budget_of(path: str, tier: str | None, own: float | None = None) -> float | None:
    """Seconds that a test in this file may take; None for no limit. `own` is what its mark `budget` says."""
    folders = BUDGETS_S.get(tier or "", {})
    inside = [folder for folder in folders if path == folder or path.startswith(f"{folder}/")]
    if not inside:
        return None
    return own if own is not None else folders[max(inside, key=len)]


def over_budget(name: str, took_s: float, budget_s: float, tier: str) -> str:
    return (
        f"{name} took {took_s:.1f} s; a test of the tier {tier!r} may take {budget_s:g} s. Make it wait for a condition "
        "instead of a time, give it less to do, or move the long version to `make nightly` (mark it slow) and keep a short one."
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when != "call" or not report.passed:
        return report
    mark = item.get_closest_marker("budget")
    now = tier()
    budget = budget_of(item.path.relative_to(item.config.rootpath).as_posix(), now, mark.args[0] if mark else None)
    if now is not None and budget is not None and call.duration > budget and call.duration > budget * slowness():
        report.outcome = "failed"
        report.longrepr = over_budget(item.nodeid, call.duration, budget, now)
    return report
