"""The five answers on the overview, in every situation of a job. No Spark: the report of each situation is made up."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from tests.browser import Browser, Page
from tests.integration.ui.sites import is_shown
from tests.unit.control.rest.test_server import Pretended
from tests.unit.runtime.monitoring.test_health import NOW, SITUATIONS, report
from tidegate.control.jobs import reported_job
from tidegate.control.jobs.service import JobService
from tidegate.control.rest.server import RestServer
from tidegate.core.clock import Instant, MonotonicMs, WallMs
from tidegate.runtime.monitoring.health import answers
from tidegate.runtime.monitoring.run_report import RunReport


class StoppedClock:
    def now(self) -> Instant:
        return Instant(MonotonicMs(0), WallMs(NOW))


class Situated(Pretended):
    """A job in one situation."""

    restarts, reports = 0, ()

    def __init__(self) -> None:
        super().__init__()
        self.changes: dict[str, Any] = {}

    def report(self) -> RunReport:
        return report(**self.changes)


@contextlib.contextmanager
def overviews(browser: Browser) -> Iterator[tuple[Situated, Page]]:
    run = Situated()
    with (
        mock.patch.object(reported_job, "SYSTEM_CLOCK", StoppedClock()),
        RestServer(JobService(run)) as server,  # type: ignore[arg-type]
    ):
        page = browser.open_page(server.ui_url)
        page.goto(f"{server.url}/ui/#/jobs/{run.lineage}/overview")
        yield run, page


def show(run: Situated, page: Page, situation: str) -> None:
    run.changes = SITUATIONS[situation][0]
    page.evaluate("location.reload()")
    page.wait_for(is_shown("overview"))
    question = json.dumps(answers(run.report(), NOW)[0].answer)
    page.wait_for(f"document.querySelector('.strip')?.innerText.includes({question})")


@pytest.fixture(scope="module")
def overview() -> Iterator[tuple[Situated, Page]]:
    with Browser() as browser, overviews(browser) as opened:
        yield opened


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_overview_shows_what_the_driver_has_decided(overview: tuple[Situated, Page], situation: str) -> None:
    run, page = overview
    show(run, page, situation)
    read = "JSON.stringify([...document.querySelectorAll('.strip li')].map(li => [li.className, li.innerText]))"
    shown = json.loads(page.evaluate(read))
    expected = answers(run.report(), NOW)
    assert [tone for tone, _ in shown] == [str(each.tone) for each in expected]
    for (_, text), each in zip(shown, expected):
        assert each.question.lower() in text.lower()
        assert each.answer in text or each.answer_at_ms is not None
        assert each.detail.replace("\u00a0", " ") in text.replace("\u00a0", " ")
    assert page.console_errors == []
