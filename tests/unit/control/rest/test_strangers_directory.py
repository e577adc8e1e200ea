"""`tidegate ui DIR` of a directory that somebody else wrote: it calls no host that the directory names, and a job that cannot be
read hides no other."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.unit.control.cli.test_cli import name_elsewhere
from tests.unit.control.jobs.test_stored_service import TOTALS, record
from tests.unit.control.rest.test_server import asking
from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.runtime.monitoring.test_progress import complete, coordinator
from tests.unit.savepoint.checkpoint_kit import History
from tidegate.checkpoint.job_log.entry import to_bytes
from tidegate.checkpoint.job_log.log import path_of
from tidegate.checkpoint.layout import JobLayout
from tidegate.config import CheckpointConfig, Checkpointing, read_options
from tidegate.control.jobs import stored_service
from tidegate.control.jobs.stored_service import StoredJobs
from tidegate.control.rest.server import application
from tidegate.storage import open_storage
from tidegate.testing.clock import at

ELSEWHERE = ("s3://stranger/sp", "http://169.254.169.254/latest", "hdfs://stranger/sp", "gs://stranger/sp")

PARAMETERS = {
    "jobid": "orders",
    "uid": "totals",
    "state": "total",
    "cid": "1",
    "vertex": "x",
    "uuid": "1",
    "triggerid": "1",
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stores that are opened. No module has another way to one."""
    found: list[str] = []

    def watched(url: str | Path, **options: object) -> object:
        found.append(str(url))
        return open_storage(url, **options)  # type: ignore[arg-type]

    places = [
        module
        for name, module in tuple(sys.modules.items())
        if name.startswith("tidegate.") and vars(module).get("open_storage") is open_storage
    ]
    assert len(places) > 5
    for module in places:
        monkeypatch.setattr(module, "open_storage", watched)
    return found


def pages(client: TestClient) -> list[str]:
    """Everything that can be read of a job, except the endless stream of its events."""
    routes = [route for route in client.app.routes if "GET" in (getattr(route, "methods", None) or ())]  # type: ignore[attr-defined]
    paths = [route.path for route in routes if not route.path.endswith(("/events", "{path:path}"))]
    assert len(paths) > 40
    return [path.format(**PARAMETERS) for path in paths]


def history_of(tmp_path: Path, job: str = "orders") -> History:
    made = History(tmp_path / job, job=job, url=str(tmp_path / "ckpt"))
    made.checkpoint(1, TOTALS)
    made.checkpoint(2, TOTALS)
    return made


def jobs_shown(client: TestClient) -> list[str]:
    return [job["name"] for job in client.get("/jobs/overview").json()["jobs"]]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_no_page_calls_a_host_that_a_strangers_directory_names(
    tmp_path: Path, opened: list[str], elsewhere: str, recorded: bool
) -> None:
    """Whoever looks has credentials for other stores, and can reach hosts that the stranger cannot."""
    history = history_of(tmp_path)
    name_elsewhere(history, f"{elsewhere}/_metadata")
    if recorded:
        made = coordinator()
        complete(made, 1_000)
        statistics = made.statistics.report(at(2_000))
        taken = replace(statistics.history[0], is_savepoint=True, external_path=elsewhere)
        named = CheckpointConfig.of(read_options(Checkpointing(dir="/c", savepoint_dir=elsewhere).to_options()))
        told = replace(statistics, history=(taken,), latest_savepoint=taken)
        record(history, run_report(checkpoints=told, checkpoint_config=named))
    client = asking(application(StoredJobs(str(tmp_path / "ckpt"), show_values=True)))
    for page in pages(client):
        for parameters in ({}, {"snapshot": elsewhere, "key": "ann", "path": elsewhere}):
            assert client.get(page, params=parameters).status_code < 500, page
    assert jobs_shown(client) == ["orders"]
    assert opened
    assert [url for url in opened if not url.startswith(str(tmp_path))] == []


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("damage", ["log", "claim", "metadata", "record", "heartbeat", "elsewhere"])
def test_a_broken_job_hides_no_other_job(
    tmp_path: Path, damage: str, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is broken, before the server starts and while it runs."""
    monkeypatch.setattr(stored_service, "_FRESH_S", -1.0)
    history_of(tmp_path)
    if not first:
        client = asking(application(StoredJobs(str(tmp_path / "ckpt"))))
        assert jobs_shown(client) == ["orders"]
    broken = history_of(tmp_path, "broken")
    layout, folder = JobLayout("broken"), tmp_path / "ckpt"
    match damage:
        case "log":
            (folder / path_of(layout, broken.log[-1])).write_bytes(b"not an entry")
        case "claim":
            newest = broken.log[-1]
            entry = replace(newest, slot=newest.slot + 1, format=99)
            broken.storage.put(path_of(layout, entry), to_bytes(entry))
        case "metadata":
            for name in ("chk-1", "chk-2"):
                (folder / "broken" / name / "_metadata").write_bytes(b"\x00" * 50)
        case "record":
            broken.storage.put(layout.run(broken.log[-1].term), b'{"unknown": ' + b"[" * 100_000)
        case "heartbeat":
            broken.storage.put(layout.owner, b"\xff\x00")
        case "elsewhere":
            name_elsewhere(broken, "http://169.254.169.254/_metadata")
    if first:
        client = asking(application(StoredJobs(str(tmp_path / "ckpt"))))
    assert "orders" in jobs_shown(client)
    for page in ("", "/report", "/checkpoints", "/snapshots", "/state"):
        assert client.get(f"/jobs/orders{page}").status_code == 200
    for page in ("/overview", "/jobs", "/taskmanagers", "/metrics", "/jobs/metrics"):
        assert client.get(page).status_code < 500
