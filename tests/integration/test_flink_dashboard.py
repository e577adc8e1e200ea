"""Flink's own dashboard in front of a running job: the contract of the REST paths that it asks."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.browser import Browser, Page, PageRequest
from tests.integration.inputs import stream
from tests.servers.flink_dashboard import FlinkDashboard, pages
from tests.waiting import eventually
from tidegate.control.jobs.service import JobService
from tidegate.control.rest.server import application

BATCHES = [[(n, f"k{n % 4}") for n in range(first, first + 5)] for first in range(0, 20, 5)]


class Count(tg.KeyedProcessFunction):
    """Fails in the first tries of row 12, so that the job restarts once."""

    n = tg.ValueState(int, default=0)

    def __init__(self, tries: str) -> None:
        self.tries = tries

    def process_element(self, row, ctx):
        if row.v == 12:
            with open(self.tries, "a+") as tries:
                tries.write("x")
                tries.seek(0)
                if len(tries.read()) <= 2:
                    raise ConnectionError("row 12 is not to my taste")
        self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()


@pytest.fixture
def running(spark, tmp_path):
    """A job that has failed once, and completed a checkpoint after that."""
    job = tg.Job("shown", parallelism=2)
    rows = job.source("in", stream(spark, tmp_path / "in", "v int, k string", BATCHES)).key_by("k")
    rows.process("n", Count(str(tmp_path / "tries")), schema="k string, n bigint").sink("out", tg.DiscardSink())
    run = job.start(
        spark,
        checkpoint=tg.Checkpointing(dir=str(tmp_path / "c"), interval="100 ms"),
        options={"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 3},
    )
    eventually(lambda: is_well_again(run), "the job runs again", timeout_s=150, pause_s=0.1)
    yield run
    run.cancel()


def is_well_again(run) -> bool:
    last = run.checkpoints.latest_completed
    return bool(run.failures) and last is not None and last.trigger_timestamp > run.failures[-1].at_ms


def shows(page: Page, *texts: str) -> None:
    # Its editor shows spaces as another character.
    for text in texts:
        page.wait_for(f"document.body.innerText.replaceAll('\\u00a0', ' ').includes({text!r})", 30)


def click(page: Page, elements: str, text: str = "") -> None:
    """Click the first visible one of these elements that has this text."""
    chosen = (
        f"[...document.querySelectorAll({elements!r})]"
        f".find(each => each.offsetParent && each.innerText.trim() === {text!r})"
    )
    page.wait_for(chosen, 30)
    page.evaluate(f"{chosen}.click()")


def refused(request: PageRequest) -> bool:
    """A page that is left gives up what it has asked for."""
    return request.status not in (None, 200, 304) or request.error not in (None, "net::ERR_ABORTED")


def test_flinks_dashboard_renders_the_job_its_checkpoints_and_its_failure(running, tmp_path):
    app = application(JobService(running), FlinkDashboard.token)
    with FlinkDashboard(app, pages(tmp_path)) as dashboard, Browser() as browser:
        page = browser.open_page(f"{dashboard.url}/#/overview")
        shows(page, "Available Task Slots", "Total Task Slots", "shown")

        job = f"{dashboard.url}/#/job/running/{running.lineage}"
        page.goto(f"{job}/overview")
        shows(page, "Source: in", "n -> Sink: out", "HASH", "Parallelism: 2")
        page.goto(f"{job}/overview/level-1/subtasks")
        shows(page, "Records Received")
        page.goto(f"{job}/overview/level-1/backpressure")
        shows(page, "Back Pressure Status")

        page.goto(f"{job}/checkpoints")
        shows(page, "Latest Completed Checkpoint")
        click(page, ".ant-tabs-tab", "History")
        click(page, ".ant-table-tbody .ant-table-row-expand-icon")
        shows(page, "Checkpoint Detail:", "0/0", "2/2 (100%)")

        page.goto(f"{job}/exceptions")
        shows(page, "ConnectionError: row 12 is not to my taste")
        page.goto(f"{job}/configuration")
        shows(page, "fixed-delay (attempts: 3")

        assert page.console_errors == []
        assert [request for request in page.requests if refused(request)] == []
        assert all(dashboard.url in request.url for request in page.requests)
