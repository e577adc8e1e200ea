"""Charts of the benchmarks page."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.charts import LEFT, RIGHT, WIDTH, Bar, Margin, bars, margins, number_text

SVG = "{http://www.w3.org/2000/svg}"


def drawn(svg: str, kind: str) -> list[float]:
    """Widths of the bars of one kind."""
    root = ElementTree.fromstring(svg)
    return [float(each.attrib["width"]) for each in root.iter(f"{SVG}rect") if each.attrib["class"] == kind]


def test_bars_are_as_long_as_their_values_and_ours_are_highlighted():
    svg = bars("Counting", "rows per second", [Bar("ours", 50.0, True), Bar("other", 100.0, False)])

    assert drawn(svg, "ours") == [(WIDTH - LEFT - RIGHT) / 2]
    assert drawn(svg, "other") == [WIDTH - LEFT - RIGHT]


def test_spread_fits_into_the_chart():
    svg = bars("Counting", "", [Bar("ours", 50.0, True, (40.0, 100.0))])

    assert drawn(svg, "ours") == [(WIDTH - LEFT - RIGHT) / 2]
    assert f"H{WIDTH - RIGHT:.1f}" in svg


def test_missed_and_reached_goals_are_drawn_symmetrically_around_the_line():
    svg = margins("Goals", "", [Margin("reached", 2.0, "2 (≥ 1)"), Margin("missed", 0.5, "0.5 (≥ 1)")])

    assert drawn(svg, "good") == drawn(svg, "bad")
    assert "2 (≥ 1)" in svg


def test_names_with_signs_of_xml_are_escaped():
    root = ElementTree.fromstring(bars("a < b & c", "", [Bar('"x" > y', 1.0, False)]))

    assert root.findtext(f"{SVG}title") == "a < b & c"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.7236, "0.724"), (12.34, "12.3"), (123.4, "123"), (1_234, "1,230"), (281_765.0, "282,000")],
)
def test_figures_have_three_digits(value, text):
    assert number_text(value) == text
