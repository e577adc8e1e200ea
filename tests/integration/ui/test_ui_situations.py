"""What the overview says of a real job in each situation that an operator meets, and that it is true."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.browser import Browser, Page
from tests.integration.ui.sites import SITUATIONS, Site, is_shown
from tests.sparks import session
from tidegate.runtime.monitoring import health


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(autouse=True)
def soon_idle() -> Iterator[None]:
    """Half a minute without rows is what counts; nobody needs to wait for it here."""
    with mock.patch.object(health, "IDLE_MS", 2_000):
        yield


STRIP = {
    "starting": {"Healthy?": "Starting", "Keeping up?": "No epoch", "Last problem": "None"},
    "idle": {
        "Healthy?": "Healthy",
        "Keeping up?": "Idle",
        "Last checkpoint": "contains every row",
        "Last problem": "None",
    },
    "restarted": {
        "Healthy?": "after the previous driver died",
        "Keeping up?": "rows/s",
        "Last problem": "driver",
    },
    "held": {"Healthy?": "Output fails", "Keeping up?": "Held by out"},
    "failed": {"Healthy?": "Failed", "Keeping up?": "Not running", "Last problem": "not restarted"},
    "dead": {"Healthy?": "Driver gone", "Keeping up?": "Not running"},
}
"""What each of the five answers contains. Those of a job that does not run are about its end."""


@pytest.mark.parametrize("situation", SITUATIONS)
def test_the_overview_shows_the_state_of_the_job(browser: Browser, tmp_path: Path, situation: str):
    with SITUATIONS[situation](session(), tmp_path) as site:
        page = browser.open_page(site.ui_url)
        show(page, site, "overview")
        for question, part in STRIP[situation].items():
            page.wait_for(f"{answer_to(question)}.includes({json.dumps(part)})")
        assert page.console_errors == []
        if situation in SHOWN:
            SHOWN[situation](page, site)


def a_restarted_job_shows_its_state_and_hosts_by_name(page: Page, site: Site) -> None:
    says(page, socket.gethostname())
    show(page, site, "state")
    page.wait_for("/[1-9][0-9.]*\\s[kM]?B/.test(document.querySelector('main').innerText)")


def a_dead_driver_leaves_a_savepoint_that_is_listed(page: Page, site: Site) -> None:
    show(page, site, "savepoints")
    says(page, "1 savepoint", "savepoint-")
    says_nothing_of(page, r"[0-9a-f]{8}-[0-9a-f]{4}-")


SHOWN = {
    "restarted": a_restarted_job_shows_its_state_and_hosts_by_name,
    "dead": a_dead_driver_leaves_a_savepoint_that_is_listed,
}


def answer_to(question: str) -> str:
    """A script for the text below a question of the strip."""
    asked = json.dumps(question.lower())
    return (
        f"([...document.querySelectorAll('.strip li')].find(li => li.innerText.toLowerCase().includes({asked}))"
        "?.innerText ?? '').replaceAll('\\u00a0', ' ')"
    )


def show(page: Page, site: Site, name: str) -> None:
    page.goto(site.page_url(name))
    page.wait_for(is_shown(name))


def says(page: Page, *texts: str) -> None:
    for text in texts:
        page.wait_for(f"document.body.innerText.includes({json.dumps(text)})")


def says_nothing_of(page: Page, pattern: str) -> None:
    assert re.findall(pattern, page.evaluate("document.querySelector('main').innerText")) == []
