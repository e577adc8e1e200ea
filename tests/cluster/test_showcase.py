"""The showcase as its page starts it, and with its driver killed. Twenty kills: `make nightly PARTS=showcase`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import sparks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(920)]


def test_the_showcase_runs_verifies_itself_and_ends(tmp_path: Path) -> None:
    sparks.end()
    command = [sys.executable, "-m", "examples.showcase", "--seconds", "20", "--folder", str(tmp_path / "shop")]
    done = subprocess.run(command, cwd=sparks.ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    for output in ("settled", "revenue", "sessions", "alerts"):
        [line] = [line for line in done.stdout.splitlines() if f"] {output} " in line and "expected" in line]
        assert "0 lost, 0 doubled, 0 wrong" in line
        assert " 0 rows expected" not in line


def test_no_row_of_the_showcase_is_lost_or_doubled_when_its_driver_is_killed(tmp_path: Path) -> None:
    sparks.end()
    report = tmp_path / "showcase.json"
    command = [sys.executable, "-m", "chaos", "showcase", "--kills", "1", "--only", "driver", "--rate", "5"]
    command += ["--json", str(report), "--folder", str(tmp_path / "shop")]
    done = subprocess.run(command, cwd=sparks.ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(report.read_text())
    assert (result["rounds"], result["lost"], result["duplicated"], result["wrong"]) == (1, 0, 0, [])
    assert result["driver_starts"] >= 2
    assert all(result["outputs"].values())
