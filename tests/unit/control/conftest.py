"""A job that only pretends to run, and a server that tells of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.control.rest.test_server import Pretended
from tidegate.control.jobs.service import JobService
from tidegate.control.rest.server import RestServer


@pytest.fixture
def run() -> Pretended:
    return Pretended()


@pytest.fixture
def server(run: Pretended) -> Iterator[RestServer]:
    with RestServer(JobService(run)) as started:  # type: ignore[arg-type]
        yield started
