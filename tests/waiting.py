"""Waiting for a condition instead of a time."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.speed import Limit


def eventually(holds: Callable[[], object], what: str = "", timeout_s: float = 120.0, pause_s: float = 0.01) -> None:
    """Return when `holds()` is true; fail with `what` if it never is. A loaded machine gets more time than `timeout_s`."""
    limit = Limit(timeout_s)
    while not holds():
        assert not limit.passed(), f"not within {timeout_s:g} s{': ' if what else ''}{what}"
        time.sleep(pause_s)


class Started(Protocol):
    """A run of a job."""

    def await_termination(self, timeout: float, /) -> bool: ...


def while_running(run: Started, holds: Callable[[], object]) -> Callable[[], object]:
    """A condition to wait for that fails at once, with its error, when the job ends."""

    def checked() -> object:
        assert not run.await_termination(0.05), "the job ended by itself"
        return holds()

    return checked


def files_below(directory: Path) -> list[Path]:
    """All files, also while a job replaces some: `Path.rglob` fails when a folder vanishes that it has just seen."""
    return [Path(folder) / name for folder, _, names in os.walk(directory) for name in names]


def remove(directory: Path) -> None:
    """Delete a directory of a job, also while a worker that has not noticed the end of its job still writes there."""

    def gone() -> bool:
        shutil.rmtree(directory, ignore_errors=True)
        return not directory.exists()

    eventually(gone, f"{directory} without files of a worker that lives on")
