"""REST under Flink's names, over a job that only pretends to run."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from starlette.applications import Starlette
from starlette.testclient import TestClient

import tidegate as tg
from tests.tiers.profiles import examples
from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.runtime.monitoring.test_progress import TASK, complete, coordinator
from tests.unit.savepoint.checkpoint_kit import History, Operator, value
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.checkpoint.layout import JobLayout
from tidegate.config import CheckpointConfig, Checkpointing, read_options
from tidegate.config.choices import MetricNaming
from tidegate.control.jobs.service import JobService
from tidegate.control.rest.request_checks import AllowedHosts
from tidegate.control.rest.routes import openapi
from tidegate.control.rest.server import application
from tidegate.core.ids import EpochId, Lineage, Term
from tidegate.core.storage_cost import LIST_PRICES, StorageCalls
from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.runtime.driver.autoscaling import Autoscaler
from tidegate.runtime.driver.rescaler import RescaleRefused
from tidegate.runtime.monitoring.rescale_history import Rescale, RescaleHistory, RescalePhase, RescaleReason
from tidegate.runtime.monitoring.run_report import FailureLine, RunReport
from tidegate.storage import Storage
from tidegate.testing.clock import at

TOTALS = Operator("totals", ("string",), (value("total", float),), {"total": {"ann": 1.0}})


class Pretended:
    """As much of a `JobRun` as the service asks for."""

    name, lineage, parallelism, max_parallelism, state_backend = "orders", Lineage("f" * 32), 2, 128, "rocksdb"
    tasks = (TASK,)
    metric_naming = MetricNaming.TIDEGATE
    status, has_ended = "RUNNING", False
    autoscaler: Autoscaler | None = None

    def __init__(self) -> None:
        made = self.made = coordinator()
        complete(made, 1_000)
        self.checkpoints = made.statistics
        self.checkpoint_config = CheckpointConfig.of(
            read_options(Checkpointing(dir="/c", interval="10 s").to_options())
        )
        self.failures = [FailureLine(at_ms=7, kind="user-code", message="not today", restarted=True)]
        self.place: tuple[Storage, JobLayout] | None = None
        self.asked: list[Any] = []
        self.rescales = RescaleHistory()

    def report(self) -> RunReport:
        return run_report(
            status=self.status,
            ended_ms=9_500 if self.has_ended else None,
            checkpoints=self.checkpoints.report(at(2_000)),
            checkpoint_config=self.checkpoint_config,
            failures=tuple(self.failures),
            rescales=self.rescales.rescales,
            rescale_counts=self.rescales.counts,
        )

    def samples(self) -> list[Sample]:
        return [
            Sample(catalog.RESTARTS, 2),
            Sample(catalog.RECORDS_IN, 7, {"operator": "totals"}),
            Sample(catalog.BUSY, 250, {"task": str(TASK)}),
            Sample(catalog.TOTAL_BUSY, 12_000, {"task": str(TASK)}),
        ]

    def trigger_checkpoint(self, *, full: bool | None) -> Future[CheckpointRef]:
        self.asked.append(("checkpoint", full))
        return _done(
            CheckpointRef(
                id=2, term=Term(1), epoch=EpochId(Term(1), 5), lineage=self.lineage, metadata="m", checksum="c"
            )
        )

    def savepoint(self, target: str | None, *, format: str) -> Future[str]:
        self.asked.append(("savepoint", target, format))
        return _done(f"{target}/savepoint-1")

    def stop_with_savepoint(self, target: str | None, *, drain: bool, format: str) -> str:
        self.asked.append(("stop", target, drain, format))
        return f"{target}/savepoint-2"

    def rescale(self, parallelism: int) -> Future[Rescale]:
        if parallelism < 1:
            raise RescaleRefused("a job has at least one slot")
        self.asked.append(("rescale", parallelism))
        self.rescales.begin(2, parallelism)
        for phase in RescalePhase:
            self.rescales.enter(phase)
        if parallelism == 13:
            return _done(self.rescales.end(RescaleReason.EXCEPTION_OCCURRED, "no place"))
        return _done(self.rescales.end(RescaleReason.SUCCEEDED))

    def cancel(self) -> None:
        self.asked.append("cancel")


def _done(value: Any) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_result(value)
    return answer


VERTEX = f"/jobs/{Pretended.lineage}/vertices/level-1"
FIELDS = {
    "/jobs/overview": "jobs",
    f"/jobs/{Pretended.lineage}": "jid name isStoppable state start-time end-time duration maxParallelism now timestamps "
    "vertices status-counts plan job-type schedulerType application-id",
    f"/jobs/{Pretended.lineage}/exceptions": "exceptionHistory",
    f"/jobs/{Pretended.lineage}/checkpoints": "counts summary latest history",
    f"/jobs/{Pretended.lineage}/checkpoints/config": "mode interval timeout min_pause max_concurrent externalization "
    "state_backend checkpoint_storage unaligned_checkpoints tolerable_failed_checkpoints aligned_checkpoint_timeout "
    "checkpoints_after_tasks_finish state_changelog_enabled changelog_periodic_materialization_interval changelog_storage",
    f"/jobs/{Pretended.lineage}/checkpoints/details/1": "className id status is_savepoint savepointFormat checkpoint_type "
    "trigger_timestamp latest_ack_timestamp checkpointed_size state_size end_to_end_duration alignment_buffered "
    "processed_data persisted_data num_subtasks num_acknowledged_subtasks tasks external_path discarded",
    f"/jobs/{Pretended.lineage}/checkpoints/details/1/subtasks/level-1": "id status latest_ack_timestamp checkpointed_size "
    "state_size end_to_end_duration num_subtasks num_acknowledged_subtasks alignment_buffered processed_data "
    "persisted_data summary subtasks",
    f"/jobs/{Pretended.lineage}/resource-requirements": "level-1",
    f"/jobs/{Pretended.lineage}/rescales/overview": "rescalesCounts latest",
    f"/jobs/{Pretended.lineage}/rescales/summary": "rescalesCounts rescalesDurationStatsInMillis "
    "completedRescalesDurationStatsInMillis ignoredRescalesDurationStatsInMillis failedRescalesDurationStatsInMillis",
    f"/jobs/{Pretended.lineage}/rescales/config": "rescaleHistoryMax schedulerExecutionMode "
    "submissionResourceWaitTimeoutInMillis submissionResourceStabilizationTimeoutInMillis slotIdleTimeoutInMillis "
    "executingCooldownTimeoutInMillis executingResourceStabilizationTimeoutInMillis "
    "maximumDelayForTriggeringRescaleInMillis rescaleOnFailedCheckpointCount",
    "/overview": "taskmanagers slots-total slots-available jobs-running jobs-finished jobs-cancelled jobs-failed "
    "flink-version flink-commit",
    "/config": "refresh-interval timezone-name timezone-offset flink-version flink-revision features",
    "/taskmanagers": "taskmanagers",
    f"/jobs/{Pretended.lineage}/config": "jid name execution-config",
    f"/jobs/{Pretended.lineage}/plan": "plan",
    f"/jobs/{Pretended.lineage}/accumulators": "job-accumulators user-task-accumulators "
    "serialized-user-task-accumulators",
    f"{VERTEX}": "id name parallelism maxParallelism now subtasks aggregated",
    f"{VERTEX}/accumulators": "id user-accumulators",
    f"{VERTEX}/subtasks/accumulators": "id parallelism subtasks",
    f"{VERTEX}/backpressure": "status backpressure-level end-timestamp subtasks",
    f"{VERTEX}/subtasktimes": "id name now subtasks",
    f"{VERTEX}/taskmanagers": "id name now taskmanagers",
}
"""Flink's fields of its answers, spelled as there."""


@pytest.mark.parametrize("path", FIELDS)
def test_responses_have_flinks_fields(client: TestClient, path: str) -> None:
    assert set(client.get(path).json()) == set(FIELDS[path].split())


CODES = {400: "BAD_REQUEST", 404: "NOT_FOUND", 409: "NOT_POSSIBLE"}


@pytest.fixture
def run() -> Pretended:
    return Pretended()


@pytest.fixture
def client(run: Pretended) -> TestClient:
    return asking(application(JobService(run)))  # type: ignore[arg-type]


def asking(app: Starlette, **headers: str) -> TestClient:
    """A client that calls the server by its address, as programs on the same machine do."""
    return TestClient(app, base_url="http://127.0.0.1:8081", headers=headers)


ID = Pretended.lineage


def test_flinks_path_lists_ten_checkpoints_and_the_report_all_of_them(client: TestClient, run: Pretended) -> None:
    for number in range(2, 16):
        complete(run.made, 1_000 * number)
    assert [each["id"] for each in client.get(f"/jobs/{ID}/checkpoints").json()["history"]] == list(range(15, 5, -1))
    assert len(client.get(f"/jobs/{ID}/report").json()["checkpoints"]["history"]) == 15


@pytest.mark.feature("K4")
def test_the_report_has_the_estimated_size_of_each_state(client: TestClient) -> None:
    (size,) = client.get(f"/jobs/{ID}/report").json()["states"]
    assert size == {"operator": "totals", "state": "total", "bytes": 4096}


def test_the_report_answers_the_five_questions_with_rates_of_now(client: TestClient) -> None:
    found = client.get(f"/jobs/{ID}/report").json()
    assert [each["question"] for each in found["answers"]] == [
        "Healthy?",
        "Keeping up?",
        "Last checkpoint",
        "Slowest task",
        "Last problem",
    ]
    assert found["rates"] == {"rows_in": 0.0, "operators": {"totals": [0.0, 0.0]}}


def test_jobs_are_served_with_and_without_the_version_prefix(client: TestClient) -> None:
    for prefix in ("", "/v1"):
        assert client.get(f"{prefix}/jobs").json() == {"jobs": [{"id": ID, "status": "RUNNING"}]}
    assert client.get(f"/jobs/{ID}").json()["name"] == "orders"
    assert client.get("/jobs/overview").json()["jobs"][0]["jid"] == ID


def required(upper: int, lower: int = 1, **others: int) -> dict[str, Any]:
    wanted = {"level-1": upper} | {name.replace("_", "-"): bound for name, bound in others.items()}
    return {name: {"parallelism": {"lowerBound": lower, "upperBound": bound}} for name, bound in wanted.items()}


def test_a_rescale_is_reported_with_flinks_fields(client: TestClient, run: Pretended) -> None:
    where = f"/jobs/{ID}/resource-requirements"
    assert client.get(where).json() == required(2)
    answer = client.put(where, json=required(4))
    assert (answer.status_code, answer.json()) == (200, {})
    assert client.put(where, json=required(13)).status_code == 200
    assert run.asked == [("rescale", 4), ("rescale", 13)]
    failed, done = client.get(f"/jobs/{ID}/rescales/history").json()
    assert done["vertices"]["level-1"] == {
        "jobVertexId": "level-1",
        "jobVertexName": "totals -> Sink: out",
        "slotSharingGroupId": "default",
        "slotSharingGroupName": "default",
        "desiredParallelism": 4,
        "sufficientParallelism": 1,
        "preRescaleParallelism": 2,
        "postRescaleParallelism": 4,
    }
    assert (done["terminalState"], done["terminatedReason"]) == ("COMPLETED", "SUCCEEDED")
    assert (done["triggerCause"], done["schedulerStates"]) == ("UPDATE_REQUIREMENT", None)
    assert (failed["terminalState"], failed["slots"]["default"]["postRescaleSlots"]) == ("FAILED", 2)
    overview = client.get(f"/jobs/{ID}/rescales/overview").json()
    assert overview["rescalesCounts"] == {"ignored": 0, "inProgress": 0, "completed": 1, "failed": 1}
    assert (overview["latest"]["completed"], overview["latest"]["ignored"]) == (done, None)
    details = client.get(f"/jobs/{ID}/rescales/details/{failed['rescaleUuid']}").json()
    states = [(span["state"], span["stringifiedException"]) for span in details["schedulerStates"]]
    assert states == [("Executing", None), ("Restarting", None), ("CreatingExecutionGraph", "no place")]
    assert client.get(f"/jobs/{ID}/rescales/details/none").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (required(0), 409, "at least one slot"),
        ({}, 409, "every vertex"),
        (required(4, level_2=4), 409, "every vertex"),
        (required(4, lower=5), 409, "lowerBound"),
        (required(4, lower=0), 409, "lowerBound"),
        ({"level-1": {"parallelism": 4}}, 400, "A body is"),
    ],
)
def test_an_impossible_rescale_is_refused(client: TestClient, body: Any, status: int, why: str) -> None:
    answer = client.put(f"/jobs/{ID}/resource-requirements", json=body)
    assert answer.status_code == status
    assert why in answer.json()["errors"][0]
    assert answer.json()["errors"][1] == f"Help: tidegate explain {CODES[status]}"


@pytest.mark.feature("K4")
def test_checkpoints_have_flinks_fields(client: TestClient) -> None:
    found = client.get(f"/jobs/{ID}/checkpoints").json()
    assert found["counts"] == {"restored": 0, "total": 1, "in_progress": 0, "completed": 1, "failed": 0}
    assert found["latest"]["completed"]["checkpointed_size"] == 4_100_000
    assert found["summary"]["state_size"]["max"] == 80_200_000
    one = client.get(f"/jobs/{ID}/checkpoints/details/1").json()
    assert one["tasks"]["level-1"]["num_acknowledged_subtasks"] == 1
    parts = client.get(f"/jobs/{ID}/checkpoints/details/1/subtasks/level-1").json()
    assert parts["subtasks"][0]["state_size"] == 80_200_000
    config = client.get(f"/jobs/{ID}/checkpoints/config").json()
    assert (config["mode"], config["interval"]) == ("exactly_once", 10_000)


def test_a_checkpoint_reports_its_requests_bytes_and_estimated_cost(client: TestClient, run: Pretended) -> None:
    made = StorageCalls(writes=12, lists=3, reads=2, deletes=1, written_bytes=4_200_000, read_bytes=90)
    run.checkpoints.record_calls(1, made)
    told = {
        "requests": {"write": 12, "list": 3, "read": 2, "delete": 1},
        "written_bytes": 4_200_000,
        "read_bytes": 90,
        "estimated_cost_dollars": None,
    }
    assert client.get(f"/jobs/{ID}/checkpoints/details/1").json()["storage"] == told, "a directory costs nothing"
    run.checkpoints.prices = LIST_PRICES
    run.checkpoints.record_calls(1, StorageCalls())
    for one in (
        client.get(f"/jobs/{ID}/checkpoints/details/1").json(),
        client.get(f"/jobs/{ID}/checkpoints").json()["latest"]["completed"],
        client.get(f"/jobs/{ID}/checkpoints").json()["history"][0],
    ):
        assert one["storage"]["estimated_cost_dollars"] == pytest.approx(15 * 5e-6 + 2 * 4e-7)


@pytest.mark.feature("I11", "K1")
def test_the_start_delay_of_a_task_excludes_the_time_of_its_snapshot(client: TestClient) -> None:
    (task,) = client.get(f"/jobs/{ID}/checkpoints/details/1/subtasks/level-1").json()["subtasks"]
    assert (task["end_to_end_duration"], task["checkpoint"]) == (800, {"sync": 0, "async": 300})
    assert task["start_delay"] == 500


@pytest.mark.feature("I12")
def test_a_savepoint_is_triggered_once_for_each_trigger_id(client: TestClient, run: Pretended) -> None:
    body = {"target-directory": "/s", "triggerId": "mine"}
    for _ in range(2):
        answer = client.post(f"/jobs/{ID}/savepoints", json=body)
        assert (answer.status_code, answer.json()) == (202, {"request-id": "mine"})
    assert run.asked == [("savepoint", "/s", "CANONICAL")]
    status = client.get(f"/jobs/{ID}/savepoints/mine").json()
    assert status == {"status": {"id": "COMPLETED"}, "operation": {"location": "/s/savepoint-1"}}


@pytest.mark.feature("I14")
def test_stop_checkpoint_and_cancel(client: TestClient, run: Pretended) -> None:
    stop = client.post(
        f"/jobs/{ID}/stop", json={"targetDirectory": "/s", "drain": True, "formatType": "NATIVE"}
    ).json()["request-id"]
    while (status := client.get(f"/jobs/{ID}/savepoints/{stop}").json())["status"]["id"] == "IN_PROGRESS":
        pass
    assert status["operation"] == {"location": "/s/savepoint-2"}
    taken = client.post(f"/jobs/{ID}/checkpoints", json={"checkpointType": "CONFIGURED"}).json()["request-id"]
    assert client.get(f"/jobs/{ID}/checkpoints/{taken}").json()["operation"] == {"checkpointId": 2}
    assert client.patch(f"/jobs/{ID}?mode=cancel").status_code == 202
    assert set(run.asked) >= {("stop", "/s", True, "NATIVE"), ("checkpoint", None)}


@pytest.mark.feature("I21")
def test_a_savepoint_is_disposed_of_and_a_checkpoint_is_not(client: TestClient, tmp_path: Path) -> None:
    tg.SavepointWriter.new("orders").write(tmp_path / "sp")
    checkpoint = History(tmp_path).checkpoint(1, TOTALS)

    def dispose(path: object) -> dict[str, Any]:
        trigger = client.post("/savepoint-disposal", json={"savepoint-path": str(path)}).json()["request-id"]
        while (status := client.get(f"/savepoint-disposal/{trigger}").json())["status"]["id"] == "IN_PROGRESS":
            pass
        found: dict[str, Any] = status["operation"]
        return found

    assert dispose(tmp_path / "sp") == {}
    assert not (tmp_path / "sp" / "_metadata").exists()
    assert dispose(checkpoint)["failure-cause"]["class"] == "NOT_A_SAVEPOINT"
    assert dispose(tmp_path / "sp")["failure-cause"]["class"] == "SNAPSHOT_NOT_FOUND"
    assert client.post("/savepoint-disposal", json={}).status_code == 400


def test_the_server_knows_whether_clients_await_a_result(run: Pretended) -> None:
    """A job ends before whoever stopped it has heard of its savepoint."""
    service = JobService(run)  # type: ignore[arg-type]
    client = asking(application(service))
    assert not service.has_unreported_results
    trigger = client.post(f"/jobs/{ID}/savepoints", json={"target-directory": "/s"}).json()["request-id"]
    assert service.has_unreported_results
    client.get(f"/jobs/{ID}/savepoints/{trigger}")
    assert not service.has_unreported_results


def test_a_checkpoint_under_way_is_in_the_history(run: Pretended, client: TestClient) -> None:
    run.made.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=5_000), at(5_000))
    history = client.get(f"/jobs/{ID}/checkpoints").json()["history"]
    assert [(c["id"], c["status"], c["num_acknowledged_subtasks"]) for c in history] == [
        (2, "IN_PROGRESS", 0),
        (1, "COMPLETED", 1),
    ]
    parts = client.get(f"/jobs/{ID}/checkpoints/details/2/subtasks/level-1").json()
    assert parts["subtasks"] == [{"className": "pending", "index": 0, "status": "pending_or_failed"}]
    run.made.decline(2, CheckpointFailureReason.CHECKPOINT_DECLINED, at(5_500), "disk full")
    failed = client.get(f"/jobs/{ID}/checkpoints").json()["latest"]["failed"]
    assert (failed["failure_timestamp"], failed["failure_message"]) == (5_500, "disk full")


def test_failures_are_listed(client: TestClient) -> None:
    (entry,) = client.get(f"/jobs/{ID}/exceptions").json()["exceptionHistory"]["entries"]
    told = "not today\nHelp: tidegate explain USER_CODE"
    assert (entry["exceptionName"], entry["stacktrace"], entry["timestamp"]) == ("user-code", told, 7)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/jobs/unknown", None, 404),
        ("GET", f"/jobs/{ID}/checkpoints/details/99", None, 404),
        ("GET", f"/jobs/{ID}/checkpoints/details/x", None, 400),
        ("GET", f"/jobs/{ID}/savepoints/never", None, 404),
        ("POST", f"/jobs/{ID}/savepoints", b"[]", 400),
        ("POST", f"/jobs/{ID}/savepoints", b"{", 400),
        ("PATCH", f"/jobs/{ID}?mode=stop", None, 400),
    ],
)
def test_errors_have_flinks_form(client: TestClient, method: str, path: str, body: Any, status: int) -> None:
    answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["errors"][1:] == [f"Help: tidegate explain {CODES[status]}"]


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (f"/jobs/{ID}/savepoints", {"target-directory": 1}, "target-directory must be text."),
        (f"/jobs/{ID}/savepoints", {"cancel-job": "yes"}, "cancel-job must be true or false."),
        (f"/jobs/{ID}/savepoints", {"formatType": "AVRO"}, "formatType is CANONICAL or NATIVE."),
        (f"/jobs/{ID}/savepoints", {"triggerId": "x" * 201}, "triggerId has at most 200 characters."),
        (f"/jobs/{ID}/stop", {"targetDirectory": []}, "targetDirectory must be text."),
        (f"/jobs/{ID}/stop", {"drain": 1}, "drain must be true or false."),
        (f"/jobs/{ID}/checkpoints", {"checkpointType": True}, "checkpointType must be text."),
        (f"/jobs/{ID}/checkpoints", {"checkpointType": "HALF"}, "checkpointType is CONFIGURED, FULL or INCREMENTAL."),
        ("/savepoint-disposal", {}, "savepoint-path is missing."),
        ("/savepoint-disposal", {"savepoint-path": None}, "savepoint-path is missing."),
        ("/savepoint-disposal", {"savepoint-path": ""}, "savepoint-path is missing."),
        ("/savepoint-disposal", {"savepoint-path": 5}, "savepoint-path must be text."),
        (f"/jobs/{ID}/stop", [], "The body must be a JSON object."),
    ],
)
def test_the_error_names_the_wrong_field(client: TestClient, run: Pretended, path: str, body: Any, said: str) -> None:
    answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()) == (400, {"errors": [said, "Help: tidegate explain BAD_REQUEST"]})
    assert run.asked == []


def test_nulls_and_empty_texts_count_as_absent(client: TestClient, run: Pretended) -> None:
    body = {"target-directory": "", "cancel-job": None, "formatType": "", "triggerId": ""}
    assert client.post(f"/jobs/{ID}/savepoints", json=body).status_code == 202
    assert client.post(f"/jobs/{ID}/checkpoints", json={"checkpointType": ""}).status_code == 202
    assert run.asked == [("savepoint", None, "CANONICAL"), ("checkpoint", None)]


def test_requests_without_the_token_are_refused(run: Pretended) -> None:
    client = asking(application(JobService(run), token="secret"))  # type: ignore[arg-type]
    assert client.get("/jobs").status_code == 401
    assert client.get("/jobs", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.get("/jobs", headers={"Authorization": "Bearer secret"}).status_code == 200


def test_prometheus_reads_the_metrics(client: TestClient) -> None:
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'tidegate_operator_num_records_in_total{job="orders",operator="totals"} 7.0' in answer.text


EXPORT = "/jobs/{jobid}/state/{uid}/{state}/export"
NOT_JSON = {(path, "get") for path in ("/metrics", "/jobs/{jobid}/events", EXPORT, "/", "/ui", "/ui/{path:path}")}
"""What answers with text, events or files, which the document does not describe."""


def test_openapi_describes_exactly_the_routes(run: Pretended) -> None:
    app = application(JobService(run))  # type: ignore[arg-type]
    routes = {(r.path, m.lower()) for r in app.routes if hasattr(r, "methods") for m in r.methods if m != "HEAD"}  # type: ignore[attr-defined]
    described = {(path, verb) for path, verbs in openapi()["paths"].items() for verb in verbs}
    assert routes - {("/openapi.json", "get"), *NOT_JSON} == described


_run = Pretended()
_app = application(JobService(_run), token="secret", hosts=AllowedHosts.of("127.0.0.1", ["testserver"]))  # type: ignore[arg-type]
_bearing = {"Authorization": "Bearer secret"}
schema = schemathesis.openapi.from_asgi("/openapi.json", _app, headers=_bearing)


TAKE_ANYTHING = ("/jobmanager/metrics", "/taskmanagers/metrics", "/jobs/metrics")


@schema.parametrize()
@settings(max_examples=examples(15), deadline=None, derandomize=True)
def test_generated_requests_cause_no_server_error(case: Any) -> None:
    answer = case.call(headers=_bearing)
    assert answer.status_code < 500
    # Parameters that nobody knows are ignored, as in Flink; these paths take nothing else that could be wrong.
    lenient = ["negative_data_rejection"] if case.operation.path in TAKE_ANYTHING else []
    excluded = [schemathesis.checks.CHECKS.get_one(name) for name in ("unsupported_method", *lenient)]
    case.validate_response(answer, excluded_checks=excluded)
