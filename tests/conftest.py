"""Fixtures for every folder. Importing this starts nothing and imports no pyspark: unit tests run without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests import sparks
from tests.tiers import profiles
from tests.tiers.budgets import pytest_runtest_makereport  # noqa: F401  (a hook of pytest's)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

profiles.load()


@pytest.fixture
def spark() -> SparkSession:
    """A session on two local cores, shared by all tests that ask for it."""
    return sparks.session()


@pytest.fixture(scope="session", autouse=True)
def _end_spark() -> Iterator[None]:
    yield
    sparks.end()
