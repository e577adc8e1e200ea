"""A walk of `python -m chaos run`, as a test makes it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import sparks

LIMIT_S = 900


def walked(folder: Path, *arguments: str) -> dict[str, Any]:
    """The report of a walk that ended well, with every row once and every result right."""
    sparks.end()
    report = folder / "chaos.json"
    command = [
        sys.executable,
        "-m",
        "chaos",
        "run",
        *arguments,
        "--json",
        str(report),
        "--folder",
        str(folder / "chaos"),
    ]
    done = subprocess.run(command, cwd=sparks.ROOT, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(report.read_text())
    assert (result["lost"], result["duplicated"], result["wrong"], result["problem"]) == (0, 0, [], None)
    return result
