"""How figures are taken and told."""

from __future__ import annotations

import pytest

from benchmarks.harness import Figure, interleave, ratio, table


def test_contestants_take_turns():
    order = []
    contestants = {name: lambda name=name: order.append(name) or float(len(order)) for name in "ABC"}

    figures = interleave(contestants, 2)

    assert order == ["A", "B", "C", "A", "B", "C"]
    assert figures["B"].samples == (2.0, 5.0)


def test_a_ratio_is_taken_within_each_round_so_a_slow_minute_cancels_out():
    figures = {"ours": Figure("rows/s", (80.0, 8.0, 81.0)), "bare": Figure("rows/s", (100.0, 10.0, 100.0))}

    assert ratio(figures, "ours", "bare", at_least=0.8)["rounds"] == pytest.approx([0.8, 0.8, 0.81])
    assert ratio(figures, "ours", "bare", at_least=0.8)["reached"]
    assert not ratio(figures, "ours", "bare", at_most=0.7)["reached"]


def test_a_ratio_to_somebody_absent_is_left_out():
    assert ratio({"ours": Figure("", (1.0,))}, "ours", "bare") is None


def test_the_spread_lies_around_the_median():
    figure = Figure("ms", (5.0, 1.0, 3.0, 2.0, 4.0)).as_json()

    assert (figure["q1"], figure["median"], figure["q3"], figure["iqr"]) == (2.0, 3.0, 4.0, 2.0)


def test_the_table_says_which_ratio_was_not_reached():
    figures = {"ours": Figure("rows/s", (70.0,)), "bare": Figure("rows/s", (100.0,))}
    report = {
        "figures": {name: figure.as_json() for name, figure in figures.items()},
        "ratios": {"ours / bare": ratio(figures, "ours", "bare", at_least=0.8)},
    }

    assert table(report).splitlines()[-1].split() == ["ours", "/", "bare", "0.70", ">=", "0.8", "NO"]


def test_bound_that_is_a_number_is_shown_with_its_direction():
    ratios = {"new / old": {"value": 5.0, "wanted": 4, "at_most": False, "reached": True}}
    assert table({"ratios": ratios}).splitlines()[-1].split() == ["new", "/", "old", "5.00", ">=", "4", "yes"]
