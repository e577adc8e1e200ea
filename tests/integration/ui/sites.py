"""The web UI of each sample job on a real server, one at a time."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.integration.ui import sample_jobs
from tests.integration.ui.sample_jobs import CHECKPOINTS, completed
from tests.sparks import ROOT
from tests.waiting import eventually
from tidegate.control.jobs.stored_service import StoredJobs
from tidegate.control.rest.server import RestServer

PAGES = ("overview", "checkpoints", "state", "output", "exceptions", "savepoints", "configuration")


def is_shown(page: str) -> str:
    """A script that is true when a page, and not the one before it, is drawn."""
    name = page.partition("?")[0].partition("/")[0]
    tab = f"document.querySelector('.tabs [aria-current]')?.getAttribute('href').endsWith('/{name}')"
    here = "document.querySelector('h1.page-title')" if name == "jobs" else tab
    return f"{here} && document.querySelector('main .panel') && !document.body.innerText.includes('Reading')"


@dataclass(frozen=True, slots=True)
class Site:
    """`job` is the id of the sample job, `checkpoints` its directory."""

    server: RestServer
    job: str
    checkpoints: str

    @property
    def ui_url(self) -> str:
        return self.server.ui_url

    def page_url(self, page: str) -> str:
        return f"{self.server.url}/ui/#/{page}" if page == "jobs" else f"{self.server.url}/ui/#/jobs/{self.job}/{page}"


@contextlib.contextmanager
def running(spark, folder: Path) -> Iterator[Site]:
    run = sample_jobs.orders(spark, folder)
    try:
        with tg.serve(run, port=0, allow_actions=True, show_values=True) as server:
            eventually(lambda: completed(run) >= 2 and len(run.reports) >= 4)
            yield Site(server, str(run.lineage), str(folder / CHECKPOINTS))
    finally:
        run.cancel()


@contextlib.contextmanager
def failed(spark, folder: Path) -> Iterator[Site]:
    run = sample_jobs.failing(spark, folder)
    with tg.serve(run, port=0) as server:
        eventually(lambda: run.has_ended)
        yield Site(server, str(run.lineage), str(folder / CHECKPOINTS))


@contextlib.contextmanager
def waiting(spark, folder: Path) -> Iterator[Site]:
    run = sample_jobs.waiting(spark, folder)
    try:
        with tg.serve(run, port=0) as server:
            yield Site(server, str(run.lineage), str(folder / CHECKPOINTS))
    finally:
        run.cancel()


@contextlib.contextmanager
def starting(spark, folder: Path) -> Iterator[Site]:
    """Its operator is not open yet."""
    run = sample_jobs.starting(spark, folder)
    try:
        with tg.serve(run, port=0) as server:
            yield Site(server, str(run.lineage), str(folder / CHECKPOINTS))
    finally:
        (folder / "go").touch()
        run.cancel()


@contextlib.contextmanager
def idle(spark, folder: Path) -> Iterator[Site]:
    """Has read its files, and no more come."""
    run = sample_jobs.counting(spark, folder, "idle")
    try:
        with tg.serve(run, port=0) as server:
            eventually(lambda: completed(run) >= 1 and sum(each.rows_in for each in run.reports) >= 4)
            yield Site(server, str(run.lineage), str(folder / CHECKPOINTS))
    finally:
        run.cancel()


@contextlib.contextmanager
def held(spark, folder: Path) -> Iterator[Site]:
    """Cannot write any more: where its sink had a folder is a file. Rows go on coming."""
    run = sample_jobs.counting(spark, folder, "held")
    out = folder / "out"
    try:
        with tg.serve(run, port=0) as server:
            eventually(lambda: out.is_dir() and list(out.iterdir()))
            shutil.rmtree(out)
            out.write_text("not a folder")
            for number in range(6):
                write_batches(folder / "in", "k string, v int", [[("a", 1 + number)]], first=2 + number)
            eventually(lambda: run.held_by is not None)
            yield Site(server, str(run.lineage), str(folder / CHECKPOINTS))
    finally:
        run.cancel()


@contextlib.contextmanager
def restarted(spark, folder: Path) -> Iterator[Site]:
    """Its previous driver got SIGKILL."""
    kill_a_driver(folder)
    run = sample_jobs.orders(spark, folder)
    try:
        with tg.serve(run, port=0) as server:
            eventually(lambda: completed(run) >= 2 and len(run.reports) >= 4)
            yield Site(server, str(run.lineage), str(folder / CHECKPOINTS))
    finally:
        run.cancel()


@contextlib.contextmanager
def dead(spark, folder: Path) -> Iterator[Site]:
    """The driver gets SIGKILL; the pages come from its checkpoint directory."""
    kill_a_driver(folder)
    checkpoints = str(folder / CHECKPOINTS)
    jobs = StoredJobs(checkpoints)
    with RestServer(jobs) as server:
        yield Site(server, jobs.all()[0].id, checkpoints)


def kill_a_driver(folder: Path) -> None:
    """Run the sample job in a process of its own until its record has checkpoints and its savepoint, and kill it."""
    command = [sys.executable, "-m", sample_jobs.__name__, str(folder)]
    with (folder / "driver.log").open("wb") as log:
        driver = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            said = driver.stdout.readline()
            if said == "ready\n":
                stored = StoredJobs(str(folder / CHECKPOINTS))
                eventually(lambda: recorded(stored))
        finally:
            driver.kill()
            driver.wait()
    assert said == "ready\n", (folder / "driver.log").read_text()[-3000:]


def recorded(jobs: StoredJobs) -> bool:
    """Whether the record of the only job is as far as the job was when it said that it is ready. It is a few seconds behind."""
    found = jobs.all()[0].report().checkpoints
    return found is not None and found.counts.completed >= 3 and found.latest_savepoint is not None


SITES: dict[str, Callable[..., AbstractContextManager[Site]]] = {
    "running": running,
    "failed": failed,
    "dead": dead,
    "waiting": waiting,
}

SITUATIONS: dict[str, Callable[..., AbstractContextManager[Site]]] = {
    "starting": starting,
    "idle": idle,
    "restarted": restarted,
    "held": held,
    "failed": failed,
    "dead": dead,
}
"""What an operator meets. The overview of each is looked at; the other pages are the same as those of `SITES`."""
