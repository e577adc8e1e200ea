"""A short walk through the fault matrix on a real cluster. The whole of it is `python -m chaos run --matrix --rounds 100`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import sparks

pytestmark = pytest.mark.timeout(920)
"""A walk has a limit of its own."""


@pytest.mark.feature("H1", "H4", "H5")
@pytest.mark.parametrize(("backend", "unique"), [("rocksdb", False), ("hashmap", True)])
@pytest.mark.feature("C1", "C3")
def test_no_row_is_lost_or_doubled_whatever_dies(tmp_path: Path, backend: str, unique: bool) -> None:
    sparks.end()
    report = tmp_path / "chaos.json"
    command = [
        sys.executable,
        "-m",
        "chaos",
        "run",
        "--rounds",
        "3",
        "--seed",
        "8" if unique else "1",
        "--json",
        str(report),
    ]
    command += ["--backend", backend, *(["--unique"] if unique else []), "--folder", str(tmp_path / "chaos")]
    done = subprocess.run(command, cwd=sparks.ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(report.read_text())
    assert (result["lost"], result["duplicated"], result["wrong"], result["problem"]) == (0, 0, [], None)
    assert result["rounds"] >= 3
    assert result["rows"] > 100


@pytest.mark.feature("I14", "I15", "I18", "I20")
def test_a_driver_dies_at_the_first_checkpoint_after_a_start_from_a_savepoint(tmp_path: Path) -> None:
    """With CLAIM and with NO_CLAIM. All moves and all steps: `python -m chaos run --savepoints --matrix --rounds 0`."""
    sparks.end()
    report = tmp_path / "chaos.json"
    command = [sys.executable, "-m", "chaos", "run", "--savepoints", "--matrix", "--rounds", "0", "--seed", "1"]
    command += ["--only", "publish.1-metadata", "--json", str(report), "--folder", str(tmp_path / "chaos")]
    done = subprocess.run(command, cwd=sparks.ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(report.read_text())
    assert (result["lost"], result["duplicated"], result["wrong"], result["problem"]) == (0, 0, [], None)
    assert sorted(result["hits"]) == [
        "start from a savepoint, CLAIM / publish.1-metadata / driver",
        "start from a savepoint, NO_CLAIM / publish.1-metadata / driver",
    ]
