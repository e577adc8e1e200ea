"""Server-sent events: a page hears that something has changed without asking again and again."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.control.rest.test_server import Pretended
from tests.unit.runtime.driver.epoch_kit import epoch_report
from tests.unit.runtime.monitoring.test_progress import complete
from tidegate.control.jobs.service import JobService
from tidegate.control.rest import access_token
from tidegate.control.rest.server import RestServer
from tidegate.core.ids import EpochId, Term
from tidegate.runtime.monitoring.run_report import RunReport


class Counted(Pretended):
    """Counts how often its report is made."""

    restarts = 0

    def __init__(self) -> None:
        super().__init__()
        self.reports, self.reports_made = [epoch_report(EpochId(Term(1), 4))], 0

    def report(self) -> RunReport:
        self.reports_made += 1
        return super().report()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Counted, RestServer]]:
    monkeypatch.setenv(access_token.DIRECTORY_VARIABLE, str(tmp_path))
    monkeypatch.setenv(access_token.VARIABLE, "t")
    run = Counted()
    with RestServer(JobService(run), token="t") as started:  # type: ignore[arg-type]
        yield run, started


def test_each_change_sends_one_event_without_building_a_report(server: tuple[Counted, RestServer]) -> None:
    run, rest = server
    request = urllib.request.Request(f"{rest.url}/jobs/{run.name}/events", headers={"Authorization": "Bearer t"})
    with urllib.request.urlopen(request, timeout=10) as stream:
        lines = (line.decode().strip() for line in stream)
        told = (line for line in lines if line.startswith("data:"))
        assert next(told) == 'data: {"epoch": "1.4"}'
        run.reports.append(epoch_report(EpochId(Term(1), 5)))
        assert next(told) == 'data: {"epoch": "1.5"}'
        for change in (lambda: complete(run.made, 3_000), lambda: setattr(run, "status", "FAILING")):
            change()
            assert next(told) == 'data: {"epoch": "1.5"}'
    assert run.reports_made == 0
