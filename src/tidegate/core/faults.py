"""Fault points: named places in protocols where a test can make the process die, pause or fail. Free when unused.

A point is a call `reach("task.4-sealed", task=...)`. Without `TIDEGATE_FAULTS` in the environment and without `arm`,
that is a call of an empty function. If set, the variable names a Python file that defines `reached(point, **context)`,
which decides what happens: `os.kill`, `raise`, `time.sleep`, or nothing. The name of a point is its protocol and step.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable
from typing import Any

Handler = Callable[..., None]
_handler: Handler | None = None


def reach(point: str, **context: Any) -> None:
    """Report that a numbered step of a protocol has been reached."""
    if _handler is not None:
        _handler(point, **context)


def arm(handler: Handler | None) -> None:
    """Call `handler(point, **context)` at every point reached in this process. None removes the handler."""
    global _handler
    _handler = handler


def _from_environment() -> None:
    path = os.environ.get("TIDEGATE_FAULTS")
    if path:
        arm(runpy.run_path(path)["reached"])


_from_environment()
