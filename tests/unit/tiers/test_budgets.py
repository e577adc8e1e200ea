"""A test that takes longer than its tier allows fails and is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sparks import ROOT
from tests.tiers.budgets import BUDGETS_S, VARIABLE, budget_of

SLEEPER = """
import time, pytest
from tests.tiers.budgets import pytest_runtest_makereport  # noqa: F401
"""


@pytest.mark.parametrize(
    ("path", "budget"),
    [
        ("tests/unit/state/keys/test_entry_keys.py", BUDGETS_S["ci"]["tests"]),
        ("tests/cluster/test_chaos.py", BUDGETS_S["ci"]["tests/cluster"]),
        ("examples/word_count.py", None),
    ],
)
def test_the_budget_of_the_closest_folder_counts(path, budget):
    assert budget_of(path, "ci") == budget


def test_a_mark_replaces_the_budget_of_the_folder():
    assert budget_of("tests/cluster/test_chaos.py", "ci", own=300) == 300


def test_without_a_tier_there_is_no_budget():
    assert budget_of("tests/unit/state/keys/test_entry_keys.py", None) is None


@pytest.mark.parametrize(("tier", "code"), [("ci", 1), ("", 0)])
def test_a_test_over_its_budget_fails_with_its_name(tmp_path: Path, tier: str, code: int):
    folder = tmp_path / "tests"
    folder.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = budget(seconds)\n")
    (folder / "conftest.py").write_text(SLEEPER)
    (folder / "test_naps.py").write_text(
        "import time, pytest\n@pytest.mark.budget(0.01)\ndef test_nap(): time.sleep(0.05)\n"
    )
    environment = {**os.environ, VARIABLE: tier, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert ("tests/test_naps.py::test_nap took" in done.stdout) == (tier == "ci")
