"""The contract of the state port runs against every backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.state.versions import NAMES, forget
from tidegate.state.backends import backend_named
from tidegate.state.port import StateBackend


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> StateBackend:
    forget()
    return backend_named(request.param)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """The directory of one task."""
    return tmp_path / "job" / "lineage" / "L1-S0"
