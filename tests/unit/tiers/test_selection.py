"""CI runs every test that a change reaches, and of the others another quarter with every commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.features import report
from tests.tiers.change import Change, change_since
from tests.tiers.imports import ImportGraph, imports_of
from tests.tiers.reach import ALWAYS, Reach, unit_of
from tests.tiers.selection import TURNS, Selection, select, selection_for

PAGES = "tests/integration/test_docs.py"


@pytest.fixture(scope="module")
def reach() -> Reach:
    return Reach.of_project()


def chosen(reach: Reach, *changed: str, turns: int = 0) -> Selection:
    return selection_for(Change("base", frozenset(changed)), reach, turn=0, turns=turns)


def test_a_public_name_counts_as_an_import_of_its_module():
    assert "src/tidegate/api/windows.py" in imports_of(
        "import tidegate as tg\nwindow = tg.TumblingEventTimeWindows('1 min')\n"
    )
    assert "src/tidegate/api/windows.py" in imports_of("from tidegate import TumblingEventTimeWindows\n")


def test_an_import_within_a_function_counts():
    assert imports_of("def f():\n    from tests import waiting\n") >= {"tests/waiting.py"}


def test_code_that_cannot_be_parsed_imports_nothing():
    assert imports_of("import tests.waiting\n>>> 1\n") == frozenset()


@pytest.mark.large
def test_every_recorded_mutation_is_noticed_by_a_test_that_its_file_selects(reach: Reach):
    """`make prove` has seen these tests fail when the file is broken, so a change of the file must select one of them."""
    trials = [
        (capability.id, mutation) for capability in report().capabilities.values() for mutation in capability.mutations
    ]
    files = {mutation.replacement.file for _, mutation in trials}
    selected = {file: chosen(reach, file).chosen for file in files}
    missed = [
        f"{id}: {mutation.replacement.file}"
        for id, mutation in trials
        if not any(unit_of(test) in selected[mutation.replacement.file] for test in mutation.tests)
    ]
    assert missed == []


@pytest.mark.parametrize(
    ("changed", "unit"),
    [
        ("docs/guide/windows.md", f"{PAGES}::docs/guide/windows.md"),
        ("examples/join.py", f"{PAGES}::examples/join.py"),
        ("src/tidegate/api/windows.py", f"{PAGES}::docs/guide/windows.md"),
        ("src/tidegate/connectors/postgres/marker.py", "tests/contract/sinks/test_postgres_sink.py"),
        ("src/tidegate/connectors/kafka/marker.py", "tests/integration/kafka/test_sink.py"),
        ("src/tidegate/connectors/lakehouse/delta/sink.py", "tests/contract/lakehouse/test_delta.py"),
        ("src/tidegate/runtime/driver/attempt.py", "tests/integration/test_checkpoints.py"),
        ("src/tidegate/control/ui/static/app.js", "tests/integration/ui/test_ui_pages.py"),
        ("src/tidegate/control/messages/plan.py", "tests/integration/ui/test_ui_pages.py"),
        ("src/tidegate/control/spark_import/sql_state.py", "tests/integration/test_spark_import.py"),
        ("src/tidegate/operators/sessions.py", "tests/integration/test_windows_and_failures.py"),
        ("src/tidegate/operators/window_operator.py", f"{PAGES}::docs/guide/windows.md"),
        ("src/tidegate/reporters/lineage/reporter.py", "tests/integration/test_lineage.py"),
        ("src/tidegate/reporters/otel/metric_export.py", "tests/integration/test_otel.py"),
        ("src/tidegate/runtime/placement/anchor.py", "tests/cluster/test_away_from_home.py"),
        ("tests/servers/kafka.py", "tests/integration/kafka/test_job.py"),
        ("tests/cluster/trial.py", "tests/cluster/test_lost_state.py"),
        ("benchmarks/keyed_count.py", "tests/integration/test_benchmarks.py"),
    ],
)
def test_a_change_selects_the_tests_of_what_it_touches(reach: Reach, changed: str, unit: str):
    # With another change: one that reaches nothing at all selects everything.
    assert unit in chosen(reach, changed, "docs/guide/joins.md").chosen


def test_a_change_of_the_simulation_selects_no_cluster(reach: Reach):
    units = chosen(reach, "chaos/simulation/driver.py", "docs/guide/windows.md").chosen
    assert [unit for unit in units if unit.startswith("tests/cluster/")] == ["tests/cluster/test_pipelines.py"]


def test_a_change_of_one_page_selects_no_other_page(reach: Reach):
    pages = [unit for unit, why in chosen(reach, "docs/guide/windows.md").chosen.items() if why != "always"]
    assert pages == [f"{PAGES}::docs/guide/windows.md"]


@pytest.mark.parametrize("changed", ["uv.lock", "tests/sparks.py", ".ci/run", "tests/tiers/reach.py"])
def test_a_change_of_what_decides_how_tests_run_selects_everything(reach: Reach, changed: str):
    assert chosen(reach, changed).left_out == ()


def test_a_change_that_reaches_nothing_selects_everything(reach: Reach):
    assert chosen(reach, "src/tidegate/unheard_of/new.bin").left_out == ()


def test_an_unknown_change_selects_everything(reach: Reach):
    assert selection_for(None, reach, turn=0).left_out == ()


def test_four_consecutive_commits_run_every_test(reach: Reach):
    runs = [set(select(reach.units, {}, turn).chosen) for turn in range(17, 17 + TURNS)]
    assert set().union(*runs) == set(reach.units)
    assert all(len(run) < 0.8 * len(reach.units) for run in runs)


def test_what_always_runs_exists(reach: Reach):
    for pattern in ALWAYS:
        assert any(Path(unit).match(pattern) or unit.startswith(pattern.rstrip("*")) for unit in reach.units), pattern


@pytest.mark.parametrize(
    ("node", "unit"),
    [
        ("tests/unit/api/test_mistakes.py::test_a[x]", "tests/unit/api/test_mistakes.py"),
        (f"{PAGES}::test_a_page_runs[docs/guide/state.md]", f"{PAGES}::docs/guide/state.md"),
        (f"{PAGES}::test_an_example_runs_and_prints_what_it_says[join.py-expected6]", f"{PAGES}::examples/join.py"),
        (
            f"{PAGES}::test_an_example_runs_and_prints_what_it_says[network_word_count]",
            f"{PAGES}::examples/network_word_count.py",
        ),
    ],
)
def test_pages_and_examples_are_selected_one_by_one(reach: Reach, node: str, unit: str):
    assert unit_of(node) == unit
    assert unit in reach.units


def test_a_commit_that_this_clone_does_not_have_is_an_unknown_change():
    assert change_since("0" * 40) is None


def test_a_recorded_run_and_a_corrected_budget_are_no_change(tmp_path: Path):
    """The commit that records a whole run is compared with that run: it must not select everything again."""

    base = committed(tmp_path, {})
    committed(tmp_path, {"tests/tiers/times.jsonl": "{}\n", "tests/tiers/budgets.py": "MOST_S = 1\n"})
    assert change_since(base, tmp_path) == Change(base, frozenset())
    (tmp_path / "new.py").touch()
    assert change_since(base, tmp_path) == Change(base, frozenset({"new.py"}))


PROGRAM = 'def double(x):\n    """Return twice x."""\n    return 2 * x\n'
PAGE = "Call it.\n\n```python\ndouble(1)\n```\n"


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("a.py", PROGRAM, PROGRAM.replace("    return", "    # Faster than a sum.\n    return")),
        ("a.py", PROGRAM, PROGRAM.replace("2 * x", "(\n        2 * x\n    )")),
        ("a.md", PAGE, PAGE.replace("Call it.", "Call it once.")),
    ],
)
def test_comments_layout_and_prose_are_no_change(tmp_path: Path, file: str, before: str, after: str):
    base = committed(tmp_path, {file: before})
    committed(tmp_path, {file: after})
    assert change_since(base, tmp_path) == Change(base, frozenset())


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("a.py", PROGRAM, PROGRAM.replace("2 *", "3 *")),
        ("a.py", PROGRAM, PROGRAM.replace("2 * x", "'Return twice x.'")),
        ("a.py", PROGRAM, "def double(x:\n"),
        ("a.md", PAGE, PAGE.replace("double(1)", "double(2)")),
        ("a.md", "<!--\nx = 1\n-->\n", "<!--\nx = 2\n-->\n"),
        ("a.toml", "x = 1  # one\n", "x = 1\n"),
    ],
)
def test_another_program_another_block_and_any_other_file_are_a_change(
    tmp_path: Path, file: str, before: str, after: str
):
    base = committed(tmp_path, {file: before})
    committed(tmp_path, {file: after})
    assert change_since(base, tmp_path) == Change(base, frozenset({file}))


def test_another_picture_is_a_change(tmp_path: Path):
    """It is no text, so nothing of it is compared."""
    picture = tmp_path / "a.png"
    picture.write_bytes(b"\x89PNG\xff1")
    base = committed(tmp_path, {})
    picture.write_bytes(b"\x89PNG\xff2")
    assert change_since(base, tmp_path) == Change(base, frozenset({"a.png"}))


def test_a_deleted_file_is_a_change(tmp_path: Path):
    base = committed(tmp_path, {"a.py": "# nothing\n"})
    (tmp_path / "a.py").unlink()
    assert change_since(base, tmp_path) == Change(base, frozenset({"a.py"}))


def test_other_docstrings_select_the_tests_of_their_examples_only(tmp_path: Path, reach: Reach):
    base = committed(tmp_path, {"src/a.py": PROGRAM})
    committed(tmp_path, {"src/a.py": PROGRAM.replace("twice x", "x doubled")})
    change = change_since(base, tmp_path)
    assert change == Change(base, frozenset(), frozenset({"src/a.py"}))
    chosen = selection_for(change, reach, turn=0, turns=0).chosen
    assert [unit for unit, why in chosen.items() if why != "always"] == ["tests/integration/test_docstring_examples.py"]


def committed(repository: Path, files: dict[str, str]) -> str:
    """A commit with these files, in a repository that is made if it is not there."""

    def git(*words: str) -> str:
        named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        return subprocess.run(
            ["git", *named, *words], cwd=repository, check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet")
    for name, text in files.items():
        file = repository / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    git("add", ".")
    git("commit", "--quiet", "--allow-empty", "--message", "a step")
    return git("rev-parse", "HEAD").strip()


def test_what_failed_in_the_run_before_runs_again(reach: Reach):
    """However little the change reaches, and whoever's turn it is."""
    for turn in range(TURNS):
        failed = "tests/contract/sinks/test_file_sink.py"
        assert failed in selection_for(Change("base", frozenset()), reach, turn, failed=[failed]).chosen


def test_a_run_without_changes_selects_only_part_of_the_tests(reach: Reach):
    assert selection_for(Change("base", frozenset()), reach, turn=0).left_out


def test_imports_of_files_that_are_not_followed_are_not_reached():
    graph = ImportGraph({"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset()})
    assert graph.closure(["a"]) == {"a", "b", "c"}
    assert graph.closure(["a"], through=lambda file: file != "b") == {"a", "b"}
