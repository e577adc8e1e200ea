"""The cells of the support matrix, what is recorded of them, and the table on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix import environment
from tests.matrix.cells import CELLS, DEFAULT, Cell, Dependencies, chosen, in_turn
from tests.matrix.environment import find_java, find_python, requirements
from tests.matrix.record import BEGIN, END, Result, in_page, known_to_work, result_of, table
from tests.matrix.suite import FAILED, PASSED, QUICK, SUITE, Outcome

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "0123456789abcdef"
ALL_PASSED = {step.name: Outcome(PASSED, 10, {"passed": 5}) for step in SUITE[:-1]} | {
    "walk": Outcome(PASSED, 60, {"faults": 3, "rows": 900, "lost": 0, "doubled": 0})
}


def executable(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def rows(results: list[Result]) -> dict[str, list[str]]:
    """The lines of the table by what distinguishes a cell."""
    lines = [[word.strip() for word in line.strip("| \n").split("|")] for line in table(results).splitlines()[2:]]
    return {" ".join(line[:4]): line[4:] for line in lines}


# -- cells -------------------------------------------------------------------------------------------------------------


def test_every_python_meets_every_spark_and_both_javas_every_spark() -> None:
    assert len(set(CELLS)) == len(CELLS)
    for spark in ("4.1.4", "4.2.1", "4.3.0"):
        assert {cell.python for cell in CELLS if cell.spark == spark} == {"3.11", "3.12", "3.13", "3.14"}
        assert {cell.java for cell in CELLS if cell.spark == spark} == {"17", "21"}


def test_cells_are_chosen_by_a_part_of_their_name() -> None:
    assert chosen(["python3.12-spark4.1.4"]) == [Cell("3.12", "4.1.4")]
    assert {cell.java for cell in chosen(["java21"])} == {"21"}
    assert chosen([]) == list(CELLS)


def test_consecutive_commits_take_every_cell_but_the_default_and_those_that_change_by_themselves() -> None:
    fixed = {cell for cell in CELLS if cell.dependencies != Dependencies.NEWEST}
    turns = [in_turn(turn, CELLS) for turn in range(100, 100 + len(fixed) - 1)]
    assert {*turns} == fixed - {DEFAULT}


def test_a_cell_takes_its_turn_once_a_suite_has_passed_in_it() -> None:
    quick = Outcome(PASSED, 10, {"passed": 5})
    results = [
        result_of(DEFAULT, COMMIT, {}, ALL_PASSED),
        result_of(Cell("3.11", "4.1.4"), COMMIT, {}, {QUICK.name: Outcome(FAILED, 10)}),
        result_of(Cell("3.11", "4.2.1"), COMMIT, {}, {QUICK.name: quick}),
        result_of(Cell("3.12", "4.2.1"), COMMIT, {}, {"unit": quick}),
        result_of(Cell("3.13", "4.2.1"), COMMIT, {}, {step.name: quick for step in SUITE}),
    ]
    assert known_to_work(results) == [Cell("3.11", "4.2.1"), Cell("3.13", "4.2.1")]


def test_consecutive_commits_take_another_spark() -> None:
    of_3_11 = [cell for cell in CELLS if cell.python == "3.11" and cell.dependencies == Dependencies.LOCKED]
    assert [in_turn(turn, of_3_11).spark for turn in range(3)] == ["4.1.4", "4.2.1", "4.1.4"]


@pytest.mark.parametrize("step", [*SUITE, QUICK], ids=lambda step: step.name)
def test_every_path_of_a_step_exists(step) -> None:
    for path in step.paths:
        assert (ROOT / path.split("::")[0]).exists(), path


# -- environments ------------------------------------------------------------------------------------------------------


def test_an_interpreter_that_pyenv_has_is_found(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    wanted = executable(tmp_path / "versions" / "3.99.2" / "bin" / "python3.99", "echo 3.99")
    assert find_python("3.99") == wanted


def test_a_shim_of_a_version_that_is_not_selected_is_no_interpreter(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    executable(tmp_path / "python3.99", "exit 127")
    assert find_python("3.99") is None


def test_a_jvm_is_known_by_what_it_says(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(environment, "ARTIFACTS", tmp_path)
    home = tmp_path / "javas" / "99"
    executable(home / "bin" / "java", """echo 'openjdk version "99.0.1" 2050-01-01' >&2""")
    assert find_java("99") == home
    assert find_java("98") is None


def test_only_spark_differs_from_the_lock_file(monkeypatch) -> None:
    monkeypatch.setattr(environment, "_uv", lambda *words: "pandas==2.3.3\npyspark==4.3.0\nrich==14.0\n")
    assert requirements(Cell("3.12", "4.1.4")) == "pandas==2.3.3\nrich==14.0\npyspark[sql]==4.1.4\n"


# -- the record --------------------------------------------------------------------------------------------------------


def test_a_cell_has_passed_when_every_step_has() -> None:
    assert result_of(DEFAULT, COMMIT, {}, ALL_PASSED).outcome == "passed"


def test_a_cell_of_which_steps_are_left_has_not_passed() -> None:
    result = result_of(DEFAULT, COMMIT, {}, {"unit": ALL_PASSED["unit"]})
    [outcome, *_] = rows([result])["3.11 4.3.0 17 locked"]
    assert outcome == "passed, but not run: contracts, checkpoints, kills, upgrade, walk"


def test_one_failed_step_fails_the_cell_and_is_named() -> None:
    result = result_of(DEFAULT, COMMIT, {}, ALL_PASSED | {"kills": Outcome(FAILED, 1, {"passed": 2, "failed": 1})})
    [outcome, tests, *_] = rows([result])["3.11 4.3.0 17 locked"]
    assert outcome == "failed: kills"
    assert tests == "22 passed, 1 failed"


def test_a_row_has_exact_versions_and_the_figures_of_the_walk() -> None:
    result = result_of(Cell("3.12", "4.1.4"), COMMIT, {"python": "3.12.1", "java": "17.0.15"}, ALL_PASSED)
    [outcome, tests, walk, date, commit] = rows([result])["3.12.1 4.1.4 17.0.15 locked"]
    assert (outcome, tests, walk) == ("passed", "25 passed", "3 faults, 900 rows: 0 lost, 0 doubled")
    assert (date, commit) == (result.date, "`01234567`")


def test_cells_that_have_not_run_are_rows_as_well() -> None:
    assert len(rows([])) == len(CELLS)
    assert rows([])["3.14 4.1.4 17 locked"][0] == "not run"
    assert rows([])["3.11 4.3.0 17 locked"][0] == "CI runs everything"


def test_the_table_replaces_what_is_between_its_marks() -> None:
    page = f"before\n{BEGIN}old\n{END}after\n"
    assert in_page(page, []) == f"before\n{BEGIN}{table([])}{END}after\n"
