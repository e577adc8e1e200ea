"""Fixtures for every folder. Importing this starts nothing and imports no pyspark: unit tests run without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests import sparks
from tests.tiers import profiles
from tests.tiers.budgets import pytest_runtest_makereport  # noqa: F401  (a hook of pytest's)
from tests.tiers.selection import pytest_collection_modifyitems  # noqa: F401  (a hook of pytest's)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

profiles.load()


@pytest.fixture
def spark() -> SparkSession:
    """A session on two local cores, shared by all tests that ask for it."""
    return sparks.session()


@pytest.fixture(scope="session", autouse=True)
def _tokens_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """REST servers of tests, in processes of their own too, keep their tokens out of the home directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("TIDEGATE_TOKEN", raising=False)
        patch.setenv("TIDEGATE_TOKEN_DIR", str(tmp_path_factory.mktemp("tokens")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _end_spark() -> Iterator[None]:
    yield
    sparks.end()
