"""What the pages decide from a report: figures with units, the layout of the graph."""

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
