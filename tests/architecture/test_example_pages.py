"""Every example has a page with its program, and every page is in the index."""

from __future__ import annotations

import pytest

from tests.example_pages import PAGES, pages, programs_on, refreshed
from tests.features import report
from tests.scratch import ROOT

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_shows_the_program_that_runs(page):
    text = page.read_text()
    assert refreshed(text) == text, "write it again with `python -m tests.example_pages`"


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_has_a_page_with_its_program(example):
    assert f"examples/{example}.py" in programs_on((PAGES / f"{example}.md").read_text())


def test_the_showcase_has_a_page_with_its_job():
    assert "examples/showcase/job.py" in programs_on((PAGES / "showcase.md").read_text())


def test_the_index_has_every_page_and_every_program_of_the_specification():
    index = (PAGES / "README.md").read_text()
    assert [page.name for page in pages() if page.name != "README.md" and f"({page.name})" not in index] == []
    [section] = [section for section in report().sections if section.letter == "N"]
    assert [each.id for each in section.capabilities if f"| {each.id} |" not in index] == []


def test_a_changed_program_is_noticed():
    page = (PAGES / "word_count.md").read_text()
    broken = page.replace("yield row.word", "yield row.work")
    assert broken != page
    assert refreshed(broken) == page
