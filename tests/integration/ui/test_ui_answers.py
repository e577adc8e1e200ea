"""What the pages decide from a report: the five answers, figures with units, the layout of the graph."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser import Browser, Page
from tests.sparks import ROOT

UI = ROOT / "src" / "tidegate" / "control" / "ui"
NOW = 1_700_000_000_000
TASK = {"task": "L1-S0", "level": 1, "slot": 0, "busy": 0.4, "idle": 0.6, "held": 0.0, "rows_in": 10}


class Files(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    handler = functools.partial(Files, directory=str(UI))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, Browser() as browser:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield browser.open_page(f"http://127.0.0.1:{server.server_port}/icon.svg")
        server.shutdown()


def call(page: Page, module: str, function: str, *arguments: object) -> Any:
    given = ", ".join(json.dumps(each) for each in arguments)
    return json.loads(page.evaluate(f"import('/{module}').then(m => JSON.stringify(m.{function}({given}) ?? null))"))


def checkpoint(number: int, age_s: int, **more: object) -> dict[str, Any]:
    at = NOW - 1000 * age_s
    return {"id": number, "trigger_timestamp": at - 500, "latest_ack_timestamp": at, "end_to_end_duration": 500, **more}


def report(**changes: Any) -> dict[str, Any]:
    """A healthy job with a checkpoint every 10 seconds."""
    epoch = {"epoch": "1.1", "ended_ms": NOW, "duration_ms": 1000, "rows_in": 500, "phases": {}, "operators": {}}
    latest = {"completed": checkpoint(7, 4), "failed": None, "savepoint": None, "restored": None}
    return {
        "status": "RUNNING", "started_ms": NOW - 60_000, "ended_ms": None, "written_ms": NOW, "restarts": 0, "epochs": [epoch],
        "tasks": [TASK], "sources": [], "sinks": [], "held_by": None, "failures": [], "checkpoint_config": {"interval": 10_000},
        "checkpoints": {"latest": latest, "counts": {"in_progress": 0}}, **changes,
    }  # fmt: skip


def latest(**changes: Any) -> dict[str, Any]:
    found = {"completed": checkpoint(7, 4), "failed": None, "savepoint": None, "restored": None, **changes}
    return {"latest": found, "counts": {"in_progress": 0}}


def tones(page: Page, **changes: Any) -> dict[str, tuple[str, str]]:
    """Question → tone and answer."""
    found = call(page, "health.js", "answers", report(**changes), [], NOW)
    return {each["question"]: (each["tone"], each.get("answer", "")) for each in found}


FAILURE = {"at_ms": NOW - 5000, "kind": "UserCodeError", "message": "…", "restarted": True}
FAILED = {"failed": checkpoint(8, 1, failure_timestamp=NOW - 1000)}


def test_a_job_without_problems_is_healthy_and_keeps_up(page):
    assert [tone for tone, _ in tones(page).values()] == ["ok", "ok", "ok", "none", "none"]


@pytest.mark.parametrize(
    ("changes", "question", "answer"),
    [
        ({"status": "FAILED", "failures": [FAILURE]}, "Healthy?", ("bad", "Failed")),
        ({"status": "LOST"}, "Healthy?", ("bad", "Driver gone")),
        ({"status": "FINISHED"}, "Healthy?", ("none", "Finished")),
        ({"failures": [FAILURE], "restarts": 1}, "Healthy?", ("warn", "Restarted")),
        ({"sinks": [{"sink": "out", "error": "refused"}]}, "Healthy?", ("bad", "Output fails")),
        ({"checkpoints": latest(**FAILED)}, "Healthy?", ("bad", "Checkpoints fail")),
        ({"checkpoints": latest(completed=checkpoint(7, 45))}, "Healthy?", ("warn", "Checkpoint late")),
        ({"checkpoints": None}, "Last checkpoint", ("none", "Off")),
        ({"held_by": "out"}, "Keeping up?", ("bad", "Held by out")),
        ({"epochs": []}, "Keeping up?", ("none", "No epoch yet")),
        ({"failures": [FAILURE]}, "Last problem", ("warn", "UserCodeError")),
        ({"failures": [FAILURE], "status": "FAILED"}, "Last problem", ("bad", "UserCodeError")),
        ({"checkpoints": latest(**FAILED)}, "Last problem", ("bad", "Checkpoint #8")),
    ],
)
def test_a_problem_changes_the_answer_to_its_question(page, changes, question, answer):
    assert tones(page, **changes)[question] == answer


def test_a_lag_that_grows_with_every_epoch_means_falling_behind(page):
    growing = [{"pending": None, "lag": lag} for lag in range(1000, 7000, 1000)]
    steady = [*growing[:-1], {"pending": None, "lag": 900}]
    assert call(page, "health.js", "answers", report(), growing, NOW)[1]["answer"] == "Falling behind"
    assert call(page, "health.js", "answers", report(), steady, NOW)[1]["answer"] == "Yes"


def test_the_slowest_task_is_the_busiest_and_its_rows_are_compared_with_its_level(page):
    tasks = [TASK, {**TASK, "task": "L1-S1", "busy": 0.8, "rows_in": 90}, {**TASK, "task": "L2-S0", "level": 2}]
    found = call(page, "health.js", "answers", report(tasks=tasks), [], NOW)[3]
    assert found["answer"] == "L1-S1"
    assert "1.8×" in found["detail"]


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        ("duration", 0.0412, "41 µs"), ("duration", 7.661, "7.66 ms"), ("duration", 812, "812 ms"), ("duration", 1240, "1.24 s"),
        ("duration", 125_000, "2 min 5 s"),
        ("bytes", 0, "0 B"), ("bytes", 3_400_000, "3.4 MB"), ("count", 12_345, "12,345"), ("count", 1_500_000, "1.5 M"),
        ("rate", 12_400, "12.4 k rows/s"), ("percent", 0.004, "<1 %"), ("percent", None, "–"), ("age", 59_999, "59 s"),
        ("dollars", 12.3, "$12.30"), ("dollars", 0.00012345, "$0.000123"), ("dollars", 0, "$0.00"), ("dollars", None, "–"),
    ],
)  # fmt: skip
def test_figures_have_units(page, function, value, text):
    assert call(page, "format.js", function, value).replace("\u00a0", " ") == text


def test_phases_of_an_epoch_add_up_to_its_duration(page):
    epoch = {"duration_ms": 1000, "phases": {"plan": 50, "run": 900, "level 1": 500, "level 2": 300}}
    parts = call(page, "figures.js", "phaseParts", epoch)
    assert parts == {"plan": 50, "level 1": 500, "level 2": 300, "rest of run": 100, "other": 50}


def test_source_stage_and_collecting_are_parts_of_the_run_and_what_lies_between_epochs_is_not(page):
    phases = {"repeat": 0, "plan": 50, "run": 900, "source": 300, "level 1": 500, "collect": 100, "streaming": 250}
    parts = call(page, "figures.js", "phaseParts", {"duration_ms": 950, "phases": phases})
    assert parts == {"plan": 50, "source": 300, "level 1": 500, "collect": 100}


def test_every_edge_of_the_graph_leads_to_the_right(page):
    nodes = [{"uid": uid, "level": level} for uid, level in (("a", 0), ("b", 0), ("c", 1), ("d", 2), ("out", 2))]
    edges = [{"source": s, "target": t} for s, t in (("a", "c"), ("b", "c"), ("c", "d"), ("d", "out"), ("a", "d"))]
    placed = call(
        page, "graph_layout.js", "layout", nodes, edges, {"along": 200, "across": 96, "gap": 100, "chain": 20}
    )
    for edge in placed["edges"]:
        along = [point["along"] for point in edge["points"]]
        assert along == sorted(along)
    assert len(placed["edges"][-1]["points"]) == 4  # around the column between
