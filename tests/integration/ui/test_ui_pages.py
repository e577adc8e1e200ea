"""Every page of the web UI in a real browser: of a job that runs, one that failed, one whose driver was killed, an empty one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.browser import Browser, Page
from tests.integration.ui.sample_jobs import KEY
from tests.integration.ui.sites import PAGES, SITES, Site, is_shown
from tests.servers.axe import grave_problems
from tests.sparks import session
from tidegate.control.jobs.stored_service import StoredJobs
from tidegate.control.rest.server import RestServer

SIDEWAYS = "document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="module", params=list(SITES))
def site(request, tmp_path_factory) -> Iterator[tuple[str, Site]]:
    with SITES[request.param](session(), tmp_path_factory.mktemp(request.param)) as made:
        yield request.param, made


@pytest.fixture
def page(browser: Browser, site) -> Iterator[Page]:
    """Opened as a person opens it: with the address that the server prints."""
    opened = browser.open_page(site[1].ui_url)
    yield opened
    opened.close()


def show(page: Page, site: Site, name: str) -> None:
    page.goto(site.page_url(name))
    page.wait_for(is_shown(name))


def says(page: Page, *texts: str) -> None:
    for text in texts:
        page.wait_for(f"document.body.innerText.includes({json.dumps(text)})")


def press_button(page: Page, text: str) -> None:
    page.evaluate(f"[...document.querySelectorAll('button')].find(b => b.innerText === {json.dumps(text)}).click()")


def press_buttons(page: Page, text: str) -> None:
    page.evaluate(
        f"[...document.querySelectorAll('button')].filter(b => b.innerText === {json.dumps(text)}).forEach(b => b.click())"
    )


def test_every_page_is_accessible_and_calls_only_its_own_server(page, site):
    for name in ("jobs", *PAGES):
        show(page, site[1], name)
        assert page.console_errors == [], name
        assert grave_problems(page) == [], name
    called = {urlsplit(request.url).netloc for request in page.requests if not request.url.startswith("data:")}
    assert called == {urlsplit(site[1].server.url).netloc}


@pytest.mark.parametrize("site", ["running", "failed"], indirect=True, scope="module")
def test_every_page_is_accessible_in_the_dark(page, site):
    page.emulate_dark()
    for name in PAGES:
        show(page, site[1], name)
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert grave_problems(page) == [], name


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_the_window(page, site, width):
    page.set_viewport(width, 844)
    for name in ("jobs", *PAGES):
        show(page, site[1], name)
        assert not page.evaluate(SIDEWAYS), name


EXPECTED = {
    "running": {
        "overview": ["Healthy?", "Keeping up?", "rows/s", "totals", "L1-S0", "Epoch duration by phase"],
        "checkpoints": ["completed", "99th percentile", "chk-"],
        "output": ["exactly once", "totals-out", "Committed up to"],
        "savepoints": ["No savepoint of this job is known", "chk-"],
        "configuration": ["execution.checkpointing.interval", "1 s"],
        "exceptions": ["Nothing went wrong"],
    },
    "failed": {
        "overview": ["Failed", "user-code"],
        "exceptions": ["ZeroDivisionError", "the job did not restart", "100 // row.v"],
    },
    "dead": {
        "overview": ["The driver is gone", "Driver gone", "totals"],
        "checkpoints": ["completed", "chk-"],
        "state": ["per_hour", "totals", "total"],
    },
    "waiting": {
        "overview": ["No epoch has ended yet", "No epoch yet"],
        "checkpoints": ["takes no checkpoints"],
        "state": ["no snapshot of the state"],
        "exceptions": ["Nothing went wrong"],
    },
}


def test_the_pages_show_the_health_of_the_job(page, site):
    kind, made = site
    for name, texts in EXPECTED[kind].items():
        show(page, made, name)
        says(page, *texts)


def test_the_only_job_is_opened_at_once_and_its_token_leaves_the_address(page, site):
    page.wait_for("location.hash.endsWith('/overview')")
    assert site[1].server.token not in page.evaluate("location.href")


@pytest.mark.parametrize("site", ["waiting"], indirect=True, scope="module")
def test_a_late_response_does_not_replace_the_page_opened_meanwhile(page, site):
    page.wait_for("location.hash.endsWith('/overview')")
    page.evaluate(
        "{ const ask = fetch; window.fetch = async (address, ...more) => { const answer = await ask(address, ...more);"
        "if (String(address).includes('jobs/overview')) location.hash = '#/jobs'; return answer; } }"
    )
    page.evaluate("location.hash = '#/'")
    page.wait_for(is_shown("jobs"))
    assert page.evaluate("location.hash") == "#/jobs"


@pytest.mark.parametrize("site", ["dead"], indirect=True, scope="module")
def test_a_page_without_its_server_keeps_the_last_values_and_says_how_old_they_are(page, site):
    with RestServer(StoredJobs(site[1].checkpoints)) as second:
        page.goto(second.ui_url)
        page.wait_for(is_shown("overview"))
    says(page, "No connection to the server", "ago. Next try in")
    assert page.evaluate("document.querySelector('main').className") == "stale"
    says(page, "totals-out")


@pytest.mark.parametrize("site", ["dead"], indirect=True, scope="module")
def test_the_files_of_a_checkpoint_are_looked_for_without_a_driver(page, site):
    show(page, site[1], "savepoints")
    says(page, "1 savepoint", "1 retained checkpoint")
    press_buttons(page, "Check files")
    says(page, "6 files, ", " present", "complete: all of it is in its metadata")
    assert grave_problems(page) == []


@pytest.mark.parametrize("site", ["waiting"], indirect=True, scope="module")
def test_a_page_without_a_token_asks_for_one(browser, site):
    server = site[1].server
    page = browser.open_page(f"{server.url}/ui/")
    says(page, "This server asks for a token")
    fill(page, "input[name=token]", server.token)
    page.click("button[type=submit]")
    says(page, "waiting", "Overview")
    page.close()


@pytest.mark.parametrize("site", ["running"], indirect=True, scope="module")
class TestRunning:
    """What can be done with a job that runs."""

    def test_a_key_is_looked_up_across_all_states(self, page, site):
        show(page, site[1], "state?uid=totals")
        fill(page, "form.lookup input", KEY)
        page.click("form.lookup button[type=submit]")
        says(page, f"Value for {KEY}", "per_hour")

    def test_the_first_entries_of_a_state_are_shown(self, page, site):
        show(page, site[1], "state?uid=totals&state=total")
        says(page, "First entries of totals.total", "user-")

    def test_all_entries_of_a_state_are_downloaded(self, page, site):
        show(page, site[1], "state?uid=totals&state=total")
        says(page, "Download all:")
        page.evaluate(
            "URL.createObjectURL = (blob) => { blob.text().then((text) => (window.saved = text)); return 'blob:none'; };"
            "HTMLAnchorElement.prototype.click = function () { window.savedAs = this.download; }"
        )
        press_button(page, "CSV")
        page.wait_for("window.saved")
        assert page.evaluate("window.savedAs") == "totals-total.csv"
        assert KEY in page.evaluate("window.saved")

    def test_a_checkpoint_is_taken_and_opened(self, page, site):
        show(page, site[1], "checkpoints")
        press_button(page, "Take a checkpoint")
        page.wait_for("/Checkpoint #\\d+ completed/.test(document.body.innerText)", 60)
        page.click("td a[href*='checkpoints/']")
        says(page, "Tasks, slowest first", "L1-S0", "Snapshot")
        assert grave_problems(page) == []

    def test_a_node_opens_its_tasks_with_the_keyboard(self, page, site):
        show(page, site[1], "overview")
        page.evaluate("[...document.querySelectorAll('.node')].find(n => n.innerText.includes('bands')).focus()")
        page.press("Enter")
        page.wait_for("document.querySelector('#node table')")
        assert page.evaluate("document.querySelector('#node').innerText.includes('L2-S0')")
        assert not page.evaluate("document.querySelector('#node').innerText.includes('L1-S0')")

    def test_a_node_shows_how_long_parts_of_its_function_take(self, page, site):
        show(page, site[1], "overview?node=totals")
        page.wait_for("document.querySelector('#node')?.innerText.includes('count the hour')")
        columns = page.evaluate("[...document.querySelectorAll('#node table')].at(-1).querySelector('thead').innerText")
        assert all(word in columns.lower() for word in ("uses", "total", "mean", "longest"))

    def test_a_stop_names_the_job_and_can_be_called_off(self, page, site):
        show(page, site[1], "overview")
        press_button(page, "Stop…")
        page.wait_for("document.querySelector('dialog[open]')?.innerText.includes('Stop orders?')")
        assert grave_problems(page) == []
        page.press("Escape")
        page.wait_for("!document.querySelector('dialog')")
        assert page.evaluate("document.querySelector('.job-head').innerText.includes('running')")

    def test_values_arrive_without_being_asked_for(self, page, site):
        show(page, site[1], "overview")
        first = page.evaluate("document.querySelector('.readout').innerText")
        page.wait_for(f"document.querySelector('.readout').innerText !== {json.dumps(first)}", 30)


def fill(page: Page, selector: str, text: str) -> None:
    page.wait_for(f"document.querySelector({json.dumps(selector)})")
    page.evaluate(
        f"(e => {{ e.value = {json.dumps(text)}; e.dispatchEvent(new Event('input', {{bubbles: true}})) }})"
        f"(document.querySelector({json.dumps(selector)}))"
    )
