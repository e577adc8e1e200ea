"""What a person reads about a job. The golden files are the expected texts: read them when this fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame, shop

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(("format", "file"), [("text", "shop.txt"), ("mermaid", "shop.mmd")])
def test_the_shop_explained(format: Literal["text", "mermaid"], file: str) -> None:
    assert shop().explain(format) == (GOLDEN / file).read_text(encoding="utf-8")


def test_operators_of_the_same_name_are_distinguished() -> None:
    job = tg.Job("j")
    job.source("in", Frame("a int")).map(lambda row: row).map(lambda row: row)
    text = job.explain()
    assert "map#1\n│" in text or "map#1\n   " in text
    assert "reads         map#1" in text
    assert "nothing reads its rows" in text
    assert "There is no sink yet" in text
    assert "parallelism chosen from the Spark session" in text


def test_names_cannot_break_the_flowchart() -> None:
    job = tg.Job("j")
    job.source('a "<b>" #1', Frame("a int"))
    assert 'n0(["source<br/><b>a #quot;#lt;b#gt;#quot; #35;1</b>"])' in job.explain("mermaid")


def test_an_unknown_format() -> None:
    unknown: Any = "svg"
    with pytest.raises(ValueError, match="'text' and 'mermaid'"):
        tg.Job("j").explain(unknown)
