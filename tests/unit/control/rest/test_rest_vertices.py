"""The vertices of a job and their metrics over REST, as Flink's dashboard asks for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.control.rest.test_server import ID, VERTEX, Pretended, asking
from tests.unit.runtime.driver.run_kit import TASK_LINE
from tidegate.config.effective import EffectiveOption
from tidegate.control.jobs.service import JobService
from tidegate.control.rest.server import application
from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.runtime.monitoring.run_report import RunReport

IO_FIELDS = {
    "read-bytes",
    "read-bytes-complete",
    "write-bytes",
    "write-bytes-complete",
    "read-records",
    "read-records-complete",
    "write-records",
    "write-records-complete",
    "accumulated-backpressured-time",
    "accumulated-idle-time",
    "accumulated-busy-time",
}
SOURCE_STAGE = f"/jobs/{ID}/vertices/level-0"


class Shown(Pretended):
    """A job whose report has two tasks, one of them held by whoever reads from it."""

    told: dict[str, Any] = {}  # noqa: RUF012

    def report(self) -> RunReport:
        held = replace(TASK_LINE, task="L1-S1", slot=1, host="h2", busy=0.25, idle=0.15, held=0.6, rows_in=30)
        options = (
            EffectiveOption("execution.checkpointing.interval", "10 s", "code"),
            EffectiveOption("restart-strategy.fixed-delay.attempts", "3", "-D"),
            EffectiveOption("restart-strategy.fixed-delay.delay", "1 s", "default"),
            EffectiveOption("restart-strategy.type", "fixed-delay", "-D"),
        )
        shown = {"tasks": (TASK_LINE, held), "restarts": 2, "watermark_ms": 1_000, "options": options}
        return replace(super().report(), **(shown | self.told))


@pytest.fixture
def run() -> Shown:
    return Shown()


@pytest.fixture
def client(run: Shown) -> TestClient:
    return asking(application(JobService(run)))  # type: ignore[arg-type]


def test_every_level_is_a_vertex_and_checkpoints_have_a_part_for_each(client: TestClient) -> None:
    """Flink's dashboard reads the parts of a checkpoint by the ids of the job's vertices."""
    job = client.get(f"/jobs/{ID}").json()
    assert [(each["id"], each["name"]) for each in job["vertices"]] == [
        ("level-0", "Source: lines"),
        ("level-1", "totals -> Sink: out"),
    ]
    ids = {vertex["id"] for vertex in job["vertices"]}
    assert {node["id"] for node in job["plan"]["nodes"]} == ids
    assert set(client.get(f"/jobs/{ID}/checkpoints/details/1").json()["tasks"]) == ids
    for id in ids:
        assert client.get(f"/jobs/{ID}/checkpoints/details/1/subtasks/{id}").status_code == 200


def test_a_vertex_adds_up_its_tasks(run: Shown, client: TestClient) -> None:
    vertex = client.get(f"/jobs/{ID}").json()["vertices"][1]
    assert set(vertex["metrics"]) == IO_FIELDS
    assert (vertex["metrics"]["read-records"], vertex["metrics"]["read-records-complete"]) == (40, True)
    assert vertex["tasks"]["RUNNING"] == vertex["parallelism"] == 2
    assert client.get(f"/jobs/{ID}").json()["status-counts"]["RUNNING"] == 2
    run.told = {"tasks": (TASK_LINE,)}
    metrics = client.get(f"/jobs/{ID}").json()["vertices"][1]["metrics"]
    assert (metrics["read-records"], metrics["read-records-complete"]) == (10, False)


def test_the_subtasks_of_a_vertex_with_their_hosts_and_figures(client: TestClient) -> None:
    found = client.get(VERTEX).json()
    task = found["subtasks"][0]
    assert (task["subtask"], task["status"], task["attempt"]) == (0, "RUNNING", 2)
    assert task["endpoint"] == task["taskmanager-id"] == "h1"
    assert set(task["metrics"]) == IO_FIELDS
    assert (task["metrics"]["write-bytes"], task["metrics"]["accumulated-busy-time"]) == (90, 12_000)
    assert task["status-duration"]["INITIALIZING"] == 7
    rows = found["aggregated"]["metrics"]["read-records"]
    assert (rows["min"], rows["median"], rows["max"], rows["sum"]) == (10, 20, 30, 40)
    assert set(rows) == {"min", "max", "avg", "sum", "median", "p25", "p75", "p95"}


def test_a_task_whose_rows_are_not_read_is_under_back_pressure(client: TestClient) -> None:
    found = client.get(f"{VERTEX}/backpressure").json()
    assert (found["status"], found["backpressure-level"]) == ("ok", "high")
    assert [task["backpressure-level"] for task in found["subtasks"]] == ["low", "high"]
    task = found["subtasks"][1]
    assert (task["ratio"], task["idleRatio"], task["busyRatio"]) == (0.6, 0.15, 0.25)


def test_metrics_are_listed_by_id_and_have_values_on_request(client: TestClient) -> None:
    listed = client.get(f"{VERTEX}/metrics").json()
    assert {"id": "0.busyTimeMsPerSecond"} in listed
    assert {"id": "totals.numRecordsIn"} in listed
    asked = client.get(f"{VERTEX}/metrics?get=0.busyTimeMsPerSecond,totals.numRecordsIn,0.unknown").json()
    assert asked == [{"id": "0.busyTimeMsPerSecond", "value": "250"}, {"id": "totals.numRecordsIn", "value": "7"}]
    assert client.get(f"{VERTEX}/metrics?get=").json() == []


def test_metrics_of_the_subtasks_are_aggregated(run: Shown, client: TestClient) -> None:
    run.samples = lambda: [  # type: ignore[method-assign]
        Sample(catalog.BUSY, value, {"task": f"L1-S{slot}"}) for slot, value in enumerate((100, 300))
    ]
    at = f"{VERTEX}/subtasks/metrics"
    assert client.get(at).json() == [{"id": "busyTimeMsPerSecond"}]
    (found,) = client.get(f"{at}?get=busyTimeMsPerSecond").json()
    assert found == {"id": "busyTimeMsPerSecond", "min": 100, "max": 300, "avg": 200, "sum": 400, "skew": 50}
    assert client.get(f"{at}?get=busyTimeMsPerSecond&agg=max").json() == [{"id": "busyTimeMsPerSecond", "max": 300}]
    assert client.get(f"{at}?get=busyTimeMsPerSecond&agg=most").status_code == 400


def test_watermarks_are_those_of_tasks_that_read_from_others(client: TestClient) -> None:
    assert client.get(f"{VERTEX}/watermarks").json() == [
        {"id": f"{slot}.currentInputWatermark", "value": "1000"} for slot in range(2)
    ]
    assert client.get(f"{SOURCE_STAGE}/watermarks").json() == []


def test_a_source_stage_without_python_has_no_subtasks_and_no_figures(client: TestClient) -> None:
    found = client.get(SOURCE_STAGE).json()
    assert (found["parallelism"], found["subtasks"]) == (-1, [])
    (busy,) = client.get(f"{SOURCE_STAGE}/subtasks/metrics?get=busyTimeMsPerSecond&agg=max").json()
    assert busy == {"id": "busyTimeMsPerSecond", "max": "NaN"}
    part = client.get(f"/jobs/{ID}/checkpoints/details/1/subtasks/level-0").json()
    assert (part["num_subtasks"], part["subtasks"], part["latest_ack_timestamp"]) == (0, [], -1)


def test_python_before_the_first_shuffle_has_subtasks(run: Shown, client: TestClient) -> None:
    run.told = {"tasks": tuple(replace(TASK_LINE, task=f"L0-S{n}", level=0, slot=n) for n in (10, 9))}
    assert [task["subtask"] for task in client.get(SOURCE_STAGE).json()["subtasks"]] == [9, 10]
    assert client.get(f"/jobs/{ID}").json()["vertices"][0]["metrics"]["write-records"] == 8


def test_a_host_is_shown_by_its_name_and_keeps_its_id(run: Shown, client: TestClient) -> None:
    run.told = {"tasks": (replace(TASK_LINE, host="6f1c@boot", host_name="worker-1"),)}
    task = client.get(VERTEX).json()["subtasks"][0]
    assert (task["endpoint"], task["taskmanager-id"]) == ("worker-1", "6f1c@boot")
    hosts = client.get(f"{VERTEX}/taskmanagers").json()["taskmanagers"]
    assert ("worker-1", "6f1c@boot") in [(each["endpoint"], each["taskmanager-id"]) for each in hosts]
    (manager,) = client.get("/taskmanagers").json()["taskmanagers"]
    assert (manager["id"], manager["path"]) == ("6f1c@boot", "worker-1")


def test_a_vertex_lists_its_hosts_and_the_start_times_of_its_tasks(client: TestClient) -> None:
    hosts = client.get(f"{VERTEX}/taskmanagers").json()["taskmanagers"]
    assert [(each["taskmanager-id"], each["metrics"]["read-records"]) for each in hosts] == [("h1", 10), ("h2", 30)]
    assert hosts[0]["status-counts"]["RUNNING"] == 1
    task, _ = client.get(f"{VERTEX}/subtasktimes").json()["subtasks"]
    assert task["timestamps"]["RUNNING"] == client.get(f"/jobs/{ID}").json()["start-time"]


def test_the_overview_counts_hosts_slots_and_jobs(run: Shown, client: TestClient) -> None:
    found = client.get("/overview").json()
    assert [found[name] for name in ("taskmanagers", "slots-total", "jobs-running")] == [2, 2, 1]
    run.status = "FAILED"
    found = client.get("/overview").json()
    assert [found[name] for name in ("taskmanagers", "jobs-running", "jobs-failed")] == [0, 0, 1]


def test_hosts_are_flinks_task_managers(client: TestClient) -> None:
    hosts = client.get("/taskmanagers").json()["taskmanagers"]
    assert [(host["id"], host["slotsNumber"], host["timeSinceLastHeartbeat"]) for host in hosts] == [
        ("h1", 1, 8_000),
        ("h2", 1, 8_000),
    ]
    (rows,) = client.get("/taskmanagers/metrics?get=numRecordsIn&agg=sum,max").json()
    assert rows == {"id": "numRecordsIn", "sum": 40, "max": 30}


def test_metrics_of_the_job_and_of_the_driver(client: TestClient) -> None:
    assert {"id": "numRestarts"} in client.get(f"/jobs/{ID}/metrics").json()
    assert client.get(f"/jobs/{ID}/metrics?get=numRestarts").json() == [{"id": "numRestarts", "value": "2"}]
    assert client.get("/jobs/metrics?get=numRestarts&agg=max").json() == [{"id": "numRestarts", "max": 2}]
    assert client.get("/jobmanager/metrics?get=taskSlotsTotal").json() == [{"id": "taskSlotsTotal", "value": "2"}]


def test_the_configuration_of_the_job_and_of_the_dashboard(client: TestClient) -> None:
    config = client.get(f"/jobs/{ID}/config").json()["execution-config"]
    assert (config["job-parallelism"], config["restart-strategy"]) == (2, "fixed-delay (attempts: 3, delay: 1 s)")
    assert config["user-config"]["execution.checkpointing.interval"] == "10 s"
    assert "restart-strategy.fixed-delay.delay" not in config["user-config"]
    assert {"key": "restart-strategy.fixed-delay.delay", "value": "1 s"} in client.get(
        f"/jobs/{ID}/jobmanager/config"
    ).json()
    features = client.get("/config").json()["features"]
    assert features == dict.fromkeys(("web-submit", "web-cancel", "web-rescale", "web-history"), False)


@pytest.mark.parametrize("path", ["", "/metrics", "/watermarks", "/backpressure"])
def test_an_unknown_vertex_is_not_found(client: TestClient, path: str) -> None:
    answer = client.get(f"/jobs/{ID}/vertices/totals{path}")
    assert answer.status_code == 404
    assert "no vertex 'totals'" in answer.json()["errors"][0]


@pytest.mark.parametrize(
    ("status", "state"),
    [("RESTARTING", "scheduled"), ("CANCELLING", "canceling"), ("FINISHED", "finished"), ("LOST", "failed")],
)
def test_tasks_are_in_the_state_that_flink_would_show(run: Shown, client: TestClient, status: str, state: str) -> None:
    run.status = status
    tasks: dict[str, Any] = client.get("/jobs/overview").json()["jobs"][0]["tasks"]
    assert {name: count for name, count in tasks.items() if count} == {"total": 2, state: 2}
    assert client.get(f"/jobs/{ID}").json()["vertices"][1]["status"] == state.upper()
