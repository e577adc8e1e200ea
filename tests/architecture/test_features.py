"""The marks that say which line of the specification a test proves."""

from __future__ import annotations

import pytest

from tests.features import PAGE, Report, read, report, spans
from tests.marks import UnreadableMark, marks_in

PROVEN = """
[A]
title = "State"
kind = "capabilities"
[A.A1]
text = "Something holds."
status = "proven"
[[A.A1.mutation]]
file = "tests/marks.py"
before = "class UnreadableMark(Exception):"
after = "class UnreadableMark(ValueError):"
tests = ["tests/unit/test_a.py::test_one"]
"""
MARKED = '@pytest.mark.feature("A1")\ndef test_one(): ...'


def problems(capabilities: str, source: str = MARKED) -> list[str]:
    return Report(read(capabilities), marks_in(source, "tests/unit/test_a.py")).problems()


def test_every_capability_has_its_evidence():
    assert report().problems() == []


def test_no_capability_is_lost():
    counted = [section for section in report().sections if section.kind == "capabilities"]

    assert sum(len(section.capabilities) for section in counted) == 323


def test_the_page_is_what_the_data_file_says():
    assert PAGE.read_text() == report().as_page(), "write it again with `python -m tests.features --page`"


def test_a_proven_capability_with_mark_and_mutation_has_no_problem():
    assert problems(PROVEN) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('"Something holds."', '""', "A1: has no sentence"),
        ('"proven"', '"done"', "A1: has the status 'done'"),
        ('"proven"', '"open"', "A1: is open, and tests/unit/test_a.py::test_one is marked with it"),
        ("class UnreadableMark(Exception)", "class Gone(Exception)", "no longer fits"),
        ("(ValueError):", "(ValueError)", "is no Python"),
        ("::test_one", "::test_two", "A1: has a mutation whose test does not carry its mark"),
        ("tests = [", "tests = []\n# [", "A1: has a mutation without a test"),
    ],
)
def test_a_statement_without_its_evidence_is_a_problem(before, after, problem):
    assert before in PROVEN

    found = problems(PROVEN.replace(before, after))

    assert any(problem in each for each in found), found


def test_a_mark_without_a_capability_is_a_problem():
    source = MARKED.replace('"A1"', '"A1", "A9"')

    assert problems(PROVEN, source) == ["tests/unit/test_a.py:1 is marked A9, which has no text"]


def test_a_proven_capability_without_marks_or_mutations_is_a_problem():
    without = PROVEN.partition("[[")[0]

    assert problems(without, "") == [
        "A1: is proven, and no test is marked with it",
        "A1: is proven, and no mutation shows that its tests can fail",
    ]


def test_marks_are_found_on_functions_classes_modules_and_parameters():
    source = """
pytestmark = pytest.mark.feature("A1")
@pytest.mark.feature("A2", "A3")
class TestAll:
    @pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.feature("A4"))])
    def test_one(self, x): ...
@pytest.mark.slow
@pytest.mark.feature("A5")
async def test_two(): ...
@pytest.mark.skip(reason="later")
@pytest.mark.feature("A6")
def test_three(): ...
"""
    found = marks_in(source, "somewhere.py")

    assert [mark.feature for mark in found] == ["A1", "A2", "A3", "A4", "A5"]
    assert [mark.feature for mark in found if mark.slow] == ["A5"]


@pytest.mark.parametrize("ids", ["*IDS", "f'A{n}'", "", "ids='A1'"])
def test_a_mark_that_cannot_be_read_is_refused(ids):
    with pytest.raises(UnreadableMark, match=r"somewhere\.py:1"):
        marks_in(f"@pytest.mark.feature({ids})\ndef test(): ...", "somewhere.py")


def test_a_mark_covers_its_test_and_all_cases_of_it():
    [mark] = marks_in(MARKED, "tests/unit/test_a.py")

    assert mark.covers("tests/unit/test_a.py::test_one")
    assert mark.covers("tests/unit/test_a.py::test_one[case]")
    assert not mark.covers("tests/unit/test_a.py::test_one_more")


def test_spans_are_short():
    assert spans(["A1", "A2", "A3", "A7", "B1"]) == "A1–A3, A7, B1"
