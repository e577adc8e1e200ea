"""Recorded runs of CI keep within their budgets, or name the tests that grew."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.tiers import times
from tests.tiers.parts import CI, Part, part_of
from tests.tiers.run import Tier
from tests.tiers.times import PHASES, Kind, RunTimes, exceeded, last_run, record, recorded

RUN = RunTimes(
    date="2026-11-18",
    commit="c0ffee",
    kind=Kind.SELECTED,
    passed=True,
    took_s=100,
    parts={"kafka": 100, "unit": 50},
    tests={"tests/integration/kafka/test_job::test_a": 20},
)


@pytest.fixture(autouse=True)
def budgets(monkeypatch):
    monkeypatch.setattr(times, "PARTS_S", {"kafka": 100, "unit": 50})
    monkeypatch.setattr(times, "WHOLE_S", {"kafka": 400, "unit": 50})
    monkeypatch.setattr(times, "PHASES_S", {"setup": 10, "checks": 100, "tests": 200})


def test_a_run_within_a_quarter_of_its_budgets_is_fine():
    assert exceeded([replace(RUN, parts={"kafka": 125, "unit": 62})]) == []


def test_a_part_over_its_budget_is_named_with_the_tests_that_grew():
    grown = replace(RUN, parts={"kafka": 126}, tests={**RUN.tests, "tests/integration/kafka/test_job::test_a": 46})
    assert exceeded([RUN, grown]) == [
        "kafka took 126 s of 100 s (tests/tiers/budgets.py)\n  tests/integration/kafka/test_job::test_a: +26 s"
    ]


def test_a_run_of_everything_has_separate_budgets():
    assert exceeded([RUN, replace(RUN, kind=Kind.WHOLE, parts={"kafka": 400})]) == []
    assert len(exceeded([RUN, replace(RUN, kind=Kind.WHOLE, parts={"kafka": 501})])) == 1


def test_phases_without_a_budget_of_their_own_are_checks():
    assert exceeded([replace(RUN, phases={"setup": 12, "lint": 60, "site": 60})]) == []
    [complaint] = exceeded([replace(RUN, phases={"setup": 12, "lint": 60, "site": 70})])
    assert complaint.startswith("checks took 130 s of 100 s")


def test_all_parts_together_have_a_budget_too():
    assert exceeded([replace(RUN, took_s=250)]) == []
    assert exceeded([replace(RUN, took_s=251)]) == ["tests took 251 s of 200 s (tests/tiers/budgets.py)"]
    assert exceeded([replace(RUN, kind=Kind.WHOLE, took_s=900)]) == []


def left_by_a_run(folder: Path, run: RunTimes) -> Path:
    last = folder / "ci-times.json"
    last.write_text(json.dumps(asdict(run)))
    (folder / PHASES).write_text("setup\t7\n")
    return last


def test_a_run_is_recorded_with_its_phases(tmp_path):
    file = tmp_path / "times.jsonl"
    record(left_by_a_run(tmp_path, replace(RUN, kind=Kind.WHOLE)), file)
    record(left_by_a_run(tmp_path, replace(RUN, commit="later")), file)
    assert [run.phases for run in recorded(file)] == [{"setup": 7}] * 2


def test_a_change_is_compared_with_the_last_recorded_run_once_everything_has_run(tmp_path):
    file = tmp_path / "times.jsonl"
    record(left_by_a_run(tmp_path, RUN), file)
    assert last_run(file) is None, "what this run left out may never have run"
    record(left_by_a_run(tmp_path, replace(RUN, kind=Kind.WHOLE, commit="whole")), file)
    record(left_by_a_run(tmp_path, replace(RUN, commit="later")), file)
    found = last_run(file)
    assert found is not None
    assert found.commit == "later"


def test_a_run_of_everything_may_have_failed_if_every_part_says_where(tmp_path):
    """JUnit has neither the ending of a file nor the `::` before a class."""
    cases = {
        "integration": ["tests.integration.ui.test_ui_pages.TestRunning", "tests.integration.ui.test_ui_pages"],
        "docs": ["tests.integration.test_docs"],
    }
    name = "test_a_page[docs/operations/cli.md]"
    for part in CI[1:]:
        failed = [
            f'<testcase classname="{each}" name="{name}"><failure/></testcase>' for each in cases.get(part.name, ())
        ]
        (tmp_path / f"ci-{part.name}.xml").write_text(f"<testsuites>{''.join(failed)}</testsuites>")
    file = tmp_path / "times.jsonl"
    whole = left_by_a_run(tmp_path, replace(RUN, kind=Kind.WHOLE, passed=False))
    with pytest.raises(ValueError, match="Only a run of all parts"):
        record(whole, file)
    failed = [f'<testcase classname="{each}" name="{name}"><failure/></testcase>' for each in cases["integration"]]
    (tmp_path / f"ci-{CI[0].name}.xml").write_text(f"<testsuites>{''.join(failed)}</testsuites>")
    record(whole, file)
    found = last_run(file)
    assert found is not None
    assert found.failed == [
        "tests/integration/test_docs.py::docs/operations/cli.md",
        "tests/integration/ui/test_ui_pages.py",
    ]


def test_a_run_next_to_other_work_does_not_count_for_budgets(tmp_path):
    file = tmp_path / "times.jsonl"
    slow = replace(RUN, parts={"kafka": 1000})
    record(left_by_a_run(tmp_path, slow), file, alone=False)
    assert exceeded(recorded(file)) == []
    record(left_by_a_run(tmp_path, slow), file)
    assert len(exceeded(recorded(file))) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"passed": False},
        {"passed": False, "failed": ["tests/unit/test_a.py"]},
        {"passed": False, "kind": Kind.WHOLE},
        {"kind": Kind.SOME_PARTS},
    ],
)
def test_a_run_that_says_nothing_is_not_recorded(tmp_path, change):
    with pytest.raises(ValueError, match="Only a run of all parts"):
        record(left_by_a_run(tmp_path, replace(RUN, **change)), tmp_path / "times.jsonl")
    assert recorded(tmp_path / "times.jsonl") == []


@pytest.mark.parametrize(
    ("left_out", "parts", "kind"),
    [(["x"], CI, Kind.SELECTED), ([], CI, Kind.WHOLE), ([], CI[:2], Kind.SOME_PARTS)],
)
def test_a_run_records_how_much_of_ci_it_was(tmp_path, left_out, parts, kind):
    selection = tmp_path / "selection.json"
    selection.write_text(json.dumps({"chosen": {}, "left_out": left_out}))
    assert Tier("ci", tmp_path, CI, selection=selection).kind(parts) == kind


def test_a_run_narrowed_by_arguments_is_not_a_whole_one(tmp_path):
    assert Tier("ci", tmp_path, CI, more=["-k", "kafka"]).kind(CI) == Kind.SOME_PARTS


def test_a_test_belongs_to_the_part_with_the_longest_path():
    parts = (Part("folder", ("tests/cluster",), 1), Part("file", ("tests/cluster/test_chaos.py",), 1))
    assert part_of("tests/cluster/test_chaos", parts) == "file"
    assert part_of("tests/cluster/test_chaos.py", parts) == "file"
    assert part_of("tests/cluster/test_chaos_too", parts) == "folder"
    assert part_of("tests/elsewhere/test_a", parts) is None
