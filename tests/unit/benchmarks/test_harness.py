"""How figures are taken and told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.harness import Figure, Provenance, interleave, ratio, source_commit, table


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


def test_a_ratio_to_an_absent_contestant_is_left_out():
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


def test_a_report_has_its_command_without_the_output_file():
    arguments = ["savepoint", "--json", "/somewhere/out.json", "--megabytes", "500", "--only", "a b"]

    told = Provenance(arguments, {"megabytes": 500}).as_json()

    assert told["command"] == "python -m benchmarks savepoint --megabytes 500 --only 'a b'"
    assert told["reduced"] == {"megabytes": 500}
    assert told["began"].endswith("+00:00")
    assert len(told["load_average"]["before"]) == len(told["load_average"]["after"]) == 3


def test_commit_of_a_report_is_the_last_one_that_changed_the_source(tmp_path: Path):
    commit(tmp_path, "src/a.py", "1")
    of_source = source_commit(tmp_path)
    commit(tmp_path, "docs/page.md", "2")

    assert of_source is not None
    assert source_commit(tmp_path) == of_source

    (tmp_path / "src" / "a.py").write_text("3")
    assert source_commit(tmp_path) == f"{of_source}, changed"


def test_outside_a_repository_there_is_no_commit(tmp_path: Path):
    assert source_commit(tmp_path) is None


def commit(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)
    author = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", name]):
        subprocess.run(["git", "-C", str(root), *command], check=True)
