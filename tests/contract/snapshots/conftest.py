"""What a checkpoint does with a task's state, on every backend: up into storage, and back, anywhere."""

from __future__ import annotations

import pytest

from tests.contract.state.versions import NAMES, forget
from tidegate.state.backends import backend_named
from tidegate.state.port import StateBackend


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> StateBackend:
    forget()
    return backend_named(request.param)
