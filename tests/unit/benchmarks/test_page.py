"""`docs/benchmarks.md` is what the results say, losses included."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from benchmarks.__main__ import NAMES
from benchmarks.page import IMAGES, PAGE, Chart, Page, Recorded, Section, current
from benchmarks.results import Ratio, Result, keep, read_results
from tests.features import Capability

AGAIN = "write it again with `python -m benchmarks.page`"
MACHINE = {
    "cores": 2, "memory_bytes": 24 << 30, "processor": "Some", "system": "Linux", "python": "3.12.1",
    "java": 'openjdk version "17.0.1" 2021', "versions": {"pyspark": "4.1.0", "numpy": None},
}  # fmt: skip
FIGURE = {"unit": "rows/s", "median": 70.0, "q1": 60.0, "q3": 80.0, "n": 3}
PROSE = {
    "opening": "{reached} of {goals}, {absent} of {runs} absent",
    "reading": "How.",
    "claims_title": "Claims",
    "claims": "What holds.",
    "closing": "See.",
}


def result(**more: Any) -> Result:
    report = {
        "benchmark": "count", "command": "python -m benchmarks count", "reduced": {}, "commit": "abc", "seconds": 12.0,
        "began": "2026-01-02T03:04:05+00:00", "load_average": {"before": [1, 1, 1], "after": [2.5, 1, 1]},
        "machine": MACHINE, "figures": {"rate ours": FIGURE},
        "ratios": {
            "ours / bare": {"value": 0.7, "wanted": 0.8, "at_most": False},
            "epoch": {"value": 1.2, "wanted": 1.5, "at_most": True},
        },
    }  # fmt: skip
    return Result("count", report | more)


def page(*results: Result, claims: tuple[Capability, ...] = (), recorded: tuple[Recorded, ...] = ()) -> Page:
    chart = Chart(name="count", title="Counting", subtitle="", result="count", bars=[("rate ours", "tidegate", True)])
    section = Section(
        name="count", title="Counting", text="What.", results=["count"], charts=[chart], recorded=recorded
    )
    return Page({each.name: each for each in results}, [section], claims, PROSE)


def test_page_and_charts_are_in_step_with_the_results():
    now = current()

    assert PAGE.read_text() == now.text(), AGAIN
    assert {path.name: path.read_text() for path in IMAGES.iterdir()} == now.images(), AGAIN


def test_every_benchmark_has_a_section_and_every_result_is_shown():
    sections = current().sections

    assert {section.name for section in sections} == set(NAMES)
    assert {name for section in sections for name in section.results} >= set(read_results())


def test_every_bar_of_a_chart_is_a_figure_of_its_result():
    results = read_results()
    drawn = [chart for section in current().sections for chart in section.charts if chart.result in results]

    assert drawn
    assert [(c.name, bar) for c in drawn for bar, *_ in c.bars if bar not in results[c.result].figures] == []


def test_every_claim_is_measured_or_answered():
    text = current().text()

    assert [claim.id for claim in current().claims] == [f"O{n}" for n in range(1, 29)]
    assert all(f"\n| {claim.id} | " in text for claim in current().claims)
    assert all(claim.status in ("proven", "answered") for claim in current().claims)


def test_a_missed_goal_is_listed_first_and_drawn():
    shown = page(result())

    text = shown.text()
    assert "1 of 2, 0 of 1 absent" in text
    assert "Not reached:" in text
    assert text.index("| ours / bare | 0.70 | ≥ 0.8 |") < text.index("## Counting")
    assert "| ours / bare | 0.70 | ≥ 0.8 | **no** |" in text
    assert "| epoch | 1.20 | ≤ 1.5 | yes |" in text
    assert 'class="bad"' in shown.images()["overview.svg"]


def test_a_run_is_described_by_its_command_date_commit_load_and_reduction():
    text = page(result(reduced={"repetitions": 1})).text()

    assert (
        "`python -m benchmarks count` · 2026-01-02 03:04 UTC, 12 s · commit abc · load average 1.0 before and 2.5 after · "
        "reduced: repetitions" in text
    )
    assert "default size" in page(result()).text()
    assert "2 cores (Some), 24 GiB of memory, Linux; Python 3.12.1, Java 17.0.1, pyspark 4.1.0." in text


def test_benchmark_without_a_result_is_marked_instead_of_left_out():
    shown = page()

    assert "`count`: not run again; see [performance](internals/performance.md)." in shown.text()
    assert "1 of 1 absent" in shown.text()
    assert set(shown.images()) == {"overview.svg"}


def test_recorded_figure_is_shown_until_a_run_replaces_it():
    old = Recorded(what="ours / bare", figure="0.9", wanted="≥ 0.8", source="internals/performance.md", unless="count")
    row = "| ours / bare | 0.9 | ≥ 0.8 | [recorded](internals/performance.md) |"

    assert row in page(recorded=(old,)).text()
    assert row not in page(result(), recorded=(old,)).text()


def test_every_link_of_the_page_leads_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", current().text())

    assert links
    assert [link for link in links if not leads_somewhere(link)] == []


def leads_somewhere(link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = PAGE.parent / path if path else PAGE
    if not anchor:
        return target.is_file()
    headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
    return anchor in {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_claim_shows_the_figures_that_it_names_and_links_to_their_section():
    claim = Capability("O1", "It is fast.", "answered", "It is.", measured=("count: rate ours", "count: epoch"))

    row = next(line for line in page(result(), claims=(claim,)).text().splitlines() if line.startswith("| O1"))

    assert row == "| O1 | It is fast. | It is. | rate ours: **70 rows/s**; epoch: **1.20** | [Counting](#counting) |"


def test_claim_about_a_figure_that_does_not_exist_is_an_error():
    claim = Capability("O1", "It is fast.", "answered", "It is.", measured=("count: rate of nobody",))

    with pytest.raises(KeyError, match="count has no figure or ratio 'rate of nobody'"):
        page(result(), claims=(claim,)).text()


@pytest.mark.parametrize(
    ("ratio", "reached", "margin"),
    [
        (Ratio("r", 0.4, 0.8, at_most=False), False, 0.5),
        (Ratio("r", 1.0, 2.0, at_most=True), True, 2.0),
        (Ratio("r", 0.0, 0.0, at_most=True), True, None),
        (Ratio("r", 1.0, None, at_most=False), None, None),
    ],
)
def test_margin_is_how_many_times_better_than_the_goal(ratio, reached, margin):
    assert (ratio.reached, ratio.margin) == (reached, margin)


def test_kept_report_has_the_number_of_samples_and_no_single_ones(tmp_path):
    report = {"figures": {"a": {"median": 1.23456789, "samples": [1.0, 2.0]}}, "epochs": {"rate": [[{"rows": 1}]]}}
    (tmp_path / "count.json").write_text(json.dumps(report))

    kept = keep(tmp_path / "count.json", tmp_path / "results", note="Beside another run.")

    assert json.loads(kept.read_text()) == {
        "figures": {"a": {"median": 1.23457, "n": 2}},
        "notes": ["Beside another run."],
    }
    assert set(read_results(tmp_path / "results")) == {"count"}
