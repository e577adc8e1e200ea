"""A job in a notebook cell."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.runtime.monitoring.test_progress import complete, coordinator
from tidegate.runtime.driver.notebook import NotebookCell
from tidegate.runtime.monitoring.job_html import job_html
from tidegate.runtime.monitoring.run_report import FailureLine, RunEnd, RunReport, SinkLine
from tidegate.testing.clock import at

WAITING = SinkLine(sink="db", guarantee="EXACTLY_ONCE", waiting_epochs=7, error="connection refused <b>")


class Balanced(HTMLParser):
    """Collects text and attributes, and fails if a tag is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.names: set[str] = set()
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}
        if tag not in ("br", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("br", "rect"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def text_of(**more: Any) -> str:
    return " ".join(Balanced(job_html(run_report(**more))).texts)


def test_a_job_shows_its_last_epoch_and_its_status() -> None:
    text = text_of()
    for part in (
        "orders",
        "RUNNING",
        "up 8 s",
        "3.41: 6,200 rows in 500 ms, 12,400 rows/s",
        "not enabled",
        "nothing waits",
    ):
        assert part in text, part


def test_the_questions_of_someone_on_call_are_answered() -> None:
    """Two as questions, the others as rows; a cell leaves out only the slowest task."""
    made = coordinator()
    complete(made, 1_000)
    failed = FailureLine(at_ms=8_500, kind="engine", message="a task was lost", restarted=True)

    text = text_of(checkpoints=made.statistics.report(at(2_000)), failures=(failed,), restarts=1)

    for question, answer in (
        ("Healthy?", "Restarted, 1 restart, last 0 s ago"),
        ("Keeping up?", "Yes"),
        ("Checkpoints", "1 completed, 0 failed"),
        ("Last failure", "engine; the job restarted. a task was lost"),
    ):
        assert re.search(f"{re.escape(question)} +{re.escape(answer)}", text), (question, text)
    assert text.count("?") == 2, "no question is answered twice"
    assert "Slowest task" not in text


def test_a_job_that_was_stopped_is_not_called_canceled() -> None:
    text = text_of(status="CANCELED", end=RunEnd.STOPPED)
    assert "Stopped" in text
    assert "CANCELED" not in text


def test_a_job_that_has_just_started_has_something_to_show() -> None:
    assert "none yet" in text_of(epochs=())


def test_checkpoints_are_counted() -> None:
    made = coordinator()
    complete(made, 1_000)
    assert "1 completed, 0 failed" in text_of(checkpoints=made.statistics.report(at(2_000)))


def test_waiting_output_and_the_last_failure_are_shown() -> None:
    failures = (
        FailureLine(at_ms=7, kind="user-code", message="not today\nline 2", restarted=False),
        FailureLine(at_ms=1, kind="engine", message="long ago", restarted=True),
    )
    text = text_of(sinks=(WAITING,), held_by="db", failures=failures, watermark_ms=4_000)
    assert "the job reads nothing until db" in text
    assert "db: output of 7 epochs waits: connection refused <b>" in text
    assert "user-code; the job ended. not today" in text
    assert "5 s behind" in text
    assert "long ago" not in text


@pytest.mark.parametrize("field", ["job", "status"])
def test_markup_in_names_is_text(field: str) -> None:
    html = job_html(run_report(**{field: "<script>alert(1)</script>"}))
    assert "script" not in Balanced(html).names


def test_the_page_needs_nothing_from_elsewhere() -> None:
    names = Balanced(job_html(run_report(sinks=(WAITING,)))).names
    assert not names & {"script", "link", "img", "src", "href", "iframe", "onclick"}


class Run(NotebookCell):
    """A run that a test changes."""

    has_ended = False

    def __init__(self) -> None:
        self.told: dict[str, Any] = {}

    def report(self) -> RunReport:
        return run_report(**self.told)


def test_a_run_says_in_one_line_what_it_is() -> None:
    assert repr(Run()) == "<job orders RUNNING, epoch 3.41>"


def test_a_notebook_without_ipython_shows_the_current_state() -> None:
    run = Run()
    run.told["restarts"] = 3
    assert "restarts 3" in run._repr_html_()
