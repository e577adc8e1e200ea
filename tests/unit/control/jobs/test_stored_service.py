"""A job read from its directory: what REST answers when no driver is alive."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.unit.control.rest.test_server import asking
from tests.unit.runtime.driver.run_kit import run_report
from tests.unit.runtime.monitoring.test_progress import complete, coordinator
from tests.unit.savepoint.checkpoint_kit import History, Operator, value
from tidegate.config import CheckpointConfig, Checkpointing, read_options
from tidegate.control.jobs import job_snapshots
from tidegate.control.jobs.stored_service import StoredJobs
from tidegate.control.rest.server import application
from tidegate.core.clock import SYSTEM_CLOCK
from tidegate.core.processes import this_process
from tidegate.runtime.monitoring.run_report import FailureLine, RunEnd, RunReport
from tidegate.savepoint.copy import copy_snapshot
from tidegate.savepoint.snapshot import StoredSnapshot
from tidegate.storage import open_storage
from tidegate.testing.clock import at

STORED = {"ann": 1.5, "bob": 2.0}
TOTALS = Operator("totals", ("string",), (value("total", float),), {"total": STORED})


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History(tmp_path)
    made.checkpoint(1, TOTALS)
    return made


def asked(history: History, show_values: bool = False) -> TestClient:
    return asking(application(StoredJobs(str(history.url), show_values)))


def record(history: History, report: RunReport) -> None:
    newest, now_ms = history.log[-1], SYSTEM_CLOCK.now().wall_ms
    written = replace(report, lineage=newest.lineage, term=newest.term, written_ms=now_ms)
    history.storage.put(history.layout.run(newest.term), written.to_bytes())


def dead_process() -> str:
    code = "from tidegate.core.processes import this_process; print(this_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_a_job_whose_driver_was_killed_is_lost_and_shows_its_last_exception(history: History) -> None:
    failure = FailureLine(at_ms=7, kind="user-code", message="division by zero", restarted=True)
    record(history, run_report(process=dead_process(), failures=(failure,)))
    client = asked(history)
    report = client.get("/jobs/orders/report").json()
    assert (report["status"], report["live"], report["allows"]) == ("LOST", False, {"actions": False, "values": False})
    assert report["failures"][0]["message"] == "division by zero\nHelp: tidegate explain USER_CODE"
    assert (
        client.get("/jobs/orders/exceptions").json()["exceptionHistory"]["entries"][0]["exceptionName"] == "user-code"
    )


def test_a_stopped_job_has_flinks_state_and_is_shown_as_stopped(history: History) -> None:
    record(history, run_report(status="CANCELED", end=RunEnd.STOPPED, ended_ms=8))
    client = asked(history)
    report = client.get("/jobs/orders/report").json()
    assert (report["status"], report["end_text"], report["answers"][0]["answer"]) == ("CANCELED", "Stopped", "Stopped")
    assert client.get("/jobs/overview").json()["jobs"][0]["state"] == "CANCELED"


def test_a_job_whose_driver_is_alive_is_not_lost(history: History) -> None:
    record(history, run_report(process=this_process()))
    assert asked(history).get("/jobs/orders/report").json()["status"] == "RUNNING"


def test_one_key_is_looked_up_without_a_driver(history: History) -> None:
    found = asked(history, show_values=True).get("/jobs/orders/state/totals/lookup?key=ann").json()
    assert [(each["name"], each["value"]) for each in found["states"]] == [("total", 1.5)]


def test_values_are_hidden_by_default(history: History) -> None:
    client = asked(history)
    (state,) = client.get("/jobs/orders/state/totals/lookup?key=ann").json()["states"]
    assert (state["found"], state["value"], state["redacted"]) == (True, None, True)
    entries = client.get("/jobs/orders/state/totals/total/entries").json()
    assert (entries["entries"], entries["redacted"]) == ([], True)


def test_states_and_first_entries(history: History) -> None:
    client = asked(history, show_values=True)
    (operator,) = client.get("/jobs/orders/state").json()["operators"]
    assert (operator["uid"], [state["name"] for state in operator["states"]]) == ("totals", ["total"])
    entries = client.get("/jobs/orders/state/totals/total/entries?limit=1").json()
    assert (len(entries["entries"]), entries["more"]) == (1, True)


@pytest.mark.parametrize("format", ["csv", "jsonl", "parquet"])
def test_a_state_is_downloaded_as_a_whole_file(history: History, format: str) -> None:
    answer = asked(history, show_values=True).get(f"/jobs/orders/state/totals/total/export?format={format}")
    assert f'filename="totals-total.{format}"' in answer.headers["content-disposition"]
    if format == "parquet":
        import pyarrow.parquet as pq

        found = {row["key"]: row["value"] for row in pq.read_table(io.BytesIO(answer.content)).to_pylist()}
    elif format == "jsonl":
        found = {row["key"]: row["value"] for row in map(json.loads, answer.text.splitlines())}
    else:
        found = {row["key"]: float(row["value"]) for row in csv.DictReader(answer.text.splitlines())}
    assert found == STORED


def test_a_download_of_hidden_values_or_in_an_unknown_format_is_refused(history: History) -> None:
    hidden = asked(history).get("/jobs/orders/state/totals/total/export")
    assert (hidden.status_code, "--show-values" in hidden.text) == (409, True)
    unknown = asked(history, show_values=True).get("/jobs/orders/state/totals/total/export?format=xls")
    assert (unknown.status_code, ".csv" in unknown.text) == (400, True)
    outside = asked(history, show_values=True).get("/jobs/orders/state/totals/total/export?format=/../../x.csv")
    assert (outside.status_code, "tmp" in outside.text) == (400, False)


@pytest.mark.parametrize("limit", [("EXPORT_S", -1.0), ("EXPORT_BYTES", 1)])
def test_a_download_that_is_too_large_names_the_command_to_use_instead(
    history: History, monkeypatch: pytest.MonkeyPatch, limit: tuple[str, float]
) -> None:
    monkeypatch.setattr(job_snapshots, *limit)
    answer = asked(history, show_values=True).get("/jobs/orders/state/totals/total/export")
    assert (answer.status_code, "tidegate state export" in answer.text) == (400, True)


def test_states_are_exported_one_at_a_time(history: History) -> None:
    with job_snapshots._EXPORTING:
        answer = asked(history, show_values=True).get("/jobs/orders/state/totals/total/export")
    assert (answer.status_code, "Another state is being exported" in answer.text) == (409, True)


def test_a_missing_file_of_a_snapshot_is_found(history: History) -> None:
    client = asked(history)
    whole = client.get("/jobs/orders/snapshots/check").json()
    assert (whole["whole"], whole["problems"], whole["files"] > 0) == (True, [], True)
    lost = next(path for path in sorted(Path(history.url, "orders", "shared").rglob("*")) if path.is_file())
    lost.unlink()
    found = client.get("/jobs/orders/snapshots/check").json()
    assert [problem["what"] for problem in found["problems"]] == [f"{lost.relative_to(history.url)} is missing"]


def test_a_check_that_runs_out_of_time_reports_a_partial_result(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_snapshots, "CHECK_S", -1.0)
    assert asked(history).get("/jobs/orders/snapshots/check").json()["whole"] is False


def test_a_job_without_a_record_shows_its_checkpoints(history: History) -> None:
    report = asked(history).get("/jobs/orders/report").json()
    assert [each["id"] for each in report["checkpoints"]["history"]] == [1]
    assert asked(history).get("/jobs/orders/snapshots").json()["snapshots"][0]["restart_from"] is True


def test_only_snapshots_of_the_job_can_be_read(history: History, tmp_path: Path) -> None:
    answer = asked(history).get("/jobs/orders/state", params={"snapshot": str(tmp_path / "elsewhere")})
    assert (answer.status_code, "not a retained checkpoint or a savepoint" in answer.text) == (404, True)


def test_a_stored_job_is_read_only(history: History) -> None:
    client = asked(history)
    for path in ("checkpoints", "savepoints", "stop"):
        answer = client.post(f"/jobs/orders/{path}", json={})
        assert (answer.status_code, "read from storage" in answer.text) == (409, True)
    assert client.patch("/jobs/orders").status_code == 409


def test_a_savepoint_that_the_run_took_is_listed_and_can_be_read_until_it_is_disposed_of(
    history: History, tmp_path: Path
) -> None:
    """A savepoint is the user's: the job's log does not name it, only the record of the run does."""
    place = tmp_path / "savepoints" / "savepoint-1"
    copy_snapshot(StoredSnapshot.open(f"{history.url}/orders/chk-1"), open_storage(str(place)))
    made = coordinator()
    complete(made, 1_000)
    statistics = made.statistics.report(at(2_000))
    taken = replace(statistics.history[0], is_savepoint=True, external_path=str(place))
    record(history, run_report(checkpoints=replace(statistics, history=(taken,))))
    client = asked(history)
    assert str(place) in [each["path"] for each in client.get("/jobs/orders/snapshots").json()["snapshots"]]
    assert client.get("/jobs/orders/state", params={"snapshot": str(place)}).json()["snapshot"] == str(place)
    shutil.rmtree(place)
    assert str(place) not in [each["path"] for each in client.get("/jobs/orders/snapshots").json()["snapshots"]]


def config(**more: str) -> CheckpointConfig:
    return CheckpointConfig.of(read_options(Checkpointing(dir="/c", interval="10 s", **more).to_options()))


def test_savepoints_of_earlier_runs_are_found_in_the_savepoint_directory(history: History, tmp_path: Path) -> None:
    """The record of the last run knows only the savepoints that this run took."""
    folder = tmp_path / "savepoints"
    places = [folder / "savepoint-ffffff-1", folder / "before-the-upgrade"]
    checkpoint = StoredSnapshot.open(f"{history.url}/orders/chk-1")
    for place in places:
        copy_snapshot(checkpoint, open_storage(str(place)))
    of_another_job = replace(checkpoint, metadata=replace(checkpoint.metadata, job="other"))
    copy_snapshot(of_another_job, open_storage(str(folder / "savepoint-other")))
    (folder / "savepoint-broken").mkdir()
    (folder / "savepoint-broken" / "_metadata").write_bytes(b"not a savepoint")
    record(history, run_report(checkpoint_config=config(savepoint_dir=str(folder))))
    client = asked(history)
    listed = client.get("/jobs/orders/snapshots").json()["snapshots"]
    assert {each["path"] for each in listed if each["kind"] == "SAVEPOINT"} == {str(place) for place in places}
    assert client.get("/jobs/orders/state", params={"snapshot": str(places[1])}).json()["snapshot"] == str(places[1])


def test_a_savepoint_directory_that_does_not_exist_yet_is_not_created(history: History, tmp_path: Path) -> None:
    record(history, run_report(checkpoint_config=config(savepoint_dir=str(tmp_path / "savepoints"))))
    kinds = [each["kind"] for each in asked(history).get("/jobs/orders/snapshots").json()["snapshots"]]
    assert kinds == ["CHECKPOINT"]
    assert not (tmp_path / "savepoints").exists()


def test_the_row_on_which_a_function_failed_is_hidden_unless_values_are_shown(history: History) -> None:
    message = (
        "user code failed\n  row:  (card='4111 1111', n=0), key '4111 1111'\n  line: job.py:13\n  key:  '4111 1111'"
    )
    record(history, run_report(failures=(FailureLine(at_ms=7, kind="user-code", message=message, restarted=False),)))
    for path in ("report", "exceptions"):
        assert "4111" not in asked(history).get(f"/jobs/orders/{path}").text
        assert "job.py:13" in asked(history).get(f"/jobs/orders/{path}").text
        assert "4111" in asked(history, show_values=True).get(f"/jobs/orders/{path}").text
