"""Waiting for a condition instead of a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(holds: Callable[[], bool], what: str = "", timeout_s: float = 120.0) -> None:
    """Return when `holds()` does; fail with `what` when it never did."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s{': ' if what else ''}{what}"
        time.sleep(0.01)
