"""The examples in docstrings that need Spark. The others run in `tests/architecture/test_docstrings.py`."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from tests.docstring_examples import examples, run


@pytest.mark.parametrize("example", list(examples(with_spark=True)), ids=lambda example: example.name)
def test_the_example_in_a_docstring_shows_what_happens(
    example: doctest.DocTest, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert run(example, spark=spark) == ""
