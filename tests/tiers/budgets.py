"""How long one test may take in its tier. A test over its budget fails, and the failure says what to do.

`TIDEGATE_TIER` names the tier. Without it nothing is enforced, so a debugger or a busy laptop breaks no test. The hooks are
installed by `tests/conftest.py`.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

VARIABLE = "TIDEGATE_TIER"

BUDGETS_S: dict[str, dict[str, float]] = {
    "fast": {"tests": 10},
    "ci": {"tests": 60, "tests/integration": 180, "tests/cluster": 240},
    "nightly": {},
}
"""By tier and folder, about three times what the slowest test takes while both cores are busy: a noisy hour of a shared machine
must not fail a test that did not change. The longest folder that contains a test counts."""


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
    if now is not None and budget is not None and call.duration > budget:
        report.outcome = "failed"
        report.longrepr = over_budget(item.nodeid, call.duration, budget, now)
    return report
