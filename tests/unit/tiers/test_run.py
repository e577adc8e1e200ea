"""A part of a tier counts only if pytest came to its end."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.tiers.parts import Part
from tests.tiers.run import Running, _ended
from tests.tiers.summary import Summary


@pytest.mark.parametrize("code", [0, 1, 5])
def test_a_part_that_was_ended_from_within_has_failed(tmp_path, code, capsys):
    """Code 5 is pytest's for "no tests", and may be that of whatever ended the process."""
    process = subprocess.Popen([sys.executable, "-S", "-c", f"raise SystemExit({code})"])
    process.wait()
    summary = Summary()
    part = Part("unit", ("tests/unit",), 1)
    assert not _ended(Running(part, process, tmp_path / "log", tmp_path / "none.xml", time.monotonic()), summary)
    assert f"pytest ended with {code} before it was done" in summary.failed[0]
    assert "FAILED" in capsys.readouterr().out
