"""The marks that say which line of the specification a test proves."""

from __future__ import annotations

import pytest

from tests.features import UnreadableMark, answers, marks_in, report, spans


def test_the_specification_has_all_its_lines():
    capabilities = [section for section in report().sections if section.capabilities]

    assert sum(len(section.ids) for section in capabilities) == 323
    assert all(feature[0] == section.letter for section in report().sections for feature in section.ids)


def test_every_mark_names_a_line_that_exists():
    known = report().known

    assert [f"{m.feature} at {m.path}:{m.line}" for m in report().marks if m.feature not in known] == []


def test_no_line_is_both_proven_and_answered():
    assert set(report().answered) <= report().known
    assert set(report().answered) & report().proven == set()


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


def test_answers_are_read_from_their_form():
    assert answers("# Head\n\n- C7 — No buffers here.\n- not an answer\n") == {"C7": "No buffers here."}


def test_spans_are_short():
    assert spans(["A1", "A2", "A3", "A7", "B1"]) == "A1–A3, A7, B1"
