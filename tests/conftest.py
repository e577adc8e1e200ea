"""Fixtures for every folder. Importing this starts nothing and imports no pyspark: unit tests run without a JVM."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import sparks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Derandomised in CI so that a red run can be repeated; more examples by hand with HYPOTHESIS_PROFILE=thorough.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("thorough", max_examples=2_000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


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
