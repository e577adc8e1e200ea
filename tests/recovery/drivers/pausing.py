"""Fault script: at the point and time named in the environment, say so in a file and wait for another file."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

_point = os.environ.get("PAUSE_AT", "")
_times = int(os.environ.get("PAUSE_TIMES", "1"))
_folder = Path(os.environ.get("PAUSE_FOLDER", "."))
_seen = 0


def reached(point: str, **context: Any) -> None:
    global _seen
    if point != _point:
        return
    _seen += 1
    if _seen != _times:
        return
    (_folder / "paused").touch()
    deadline = time.monotonic() + 60
    while not (_folder / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
