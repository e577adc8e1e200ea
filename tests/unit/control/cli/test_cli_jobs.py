"""The verbs on running jobs, against the REST server of a job that only pretends to run."""

from __future__ import annotations

import re
import threading
from concurrent.futures import Future
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.unit.control.rest.test_server import ID, Pretended
from tidegate.config import RecoveryConfig, read_options
from tidegate.config.choices import ClaimMode
from tidegate.control.cli import main
from tidegate.control.jobs.service import JobService, _in_thread
from tidegate.control.rest.client import Client
from tidegate.control.rest.server import RestServer


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="tidegate")


def test_list_is_flinks_line(server: RestServer) -> None:
    assert f" : {ID} : orders (RUNNING)" in call("list", "-m", server.url).output


@pytest.mark.feature("D32")
def test_a_command_finds_the_server_by_the_configuration_for_all_jobs(
    server: RestServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TIDEGATE_CONF_DIR", str(tmp_path))
    port = server.url.rpartition(":")[2]
    for host in ("127.0.0.1", "0.0.0.0"):
        (tmp_path / "config.yaml").write_text(f"rest:\n  port: {port}\n  bind-address: {host}\n")
        assert "orders (RUNNING)" in call("list").output
    assert call("list", "-m", "127.0.0.1:1").exit_code == 3, "-m comes first"
    (tmp_path / "config.yaml").write_text("rest.port: [1]\n")
    refused = call("list")
    assert (refused.exit_code, "line 1" in refused.output) == (2, True)


@pytest.mark.feature("I1", "I10", "N23")
def test_savepoint_stop_checkpoint_and_cancel_say_what_flink_says(server: RestServer, run: Pretended) -> None:
    assert "Savepoint completed. Path: /s/savepoint-1" in call("savepoint", ID, "/s", "-m", server.url).output
    assert "Savepoint completed. Path: /s/savepoint-2" in call("stop", ID, "-p", "/s", "-m", server.url).output
    assert f"Checkpoint 2 for job {ID} completed." in call("checkpoint", ID, "-m", server.url).output
    assert f"Checkpoint(FULL) 2 for job {ID} completed." in call("checkpoint", ID, "-full", "-m", server.url).output
    assert run.asked[-2:] == [("checkpoint", None), ("checkpoint", True)]
    assert f"Cancelled job {ID}." in call("cancel", ID, "-m", server.url).output
    assert ("savepoint", "/s", "CANONICAL") in run.asked
    assert ("stop", "/s", False, "CANONICAL") in run.asked


def test_rescale_says_how_long_the_job_paused_or_why_it_keeps_its_parallelism(
    server: RestServer, run: Pretended
) -> None:
    assert (
        f"Job {ID} runs with parallelism 4 after a pause of " in call("rescale", ID, "-p", "4", "-m", server.url).output
    )
    failed = call("rescale", ID, "-p", "13", "-m", server.url)
    assert (failed.exit_code, "not rescaled: no place" in failed.output) == (3, True)
    refused = call("rescale", ID, "-p", "0", "-m", server.url)
    assert (refused.exit_code, "at least one slot" in refused.output) == (3, True)
    assert "Triggered the rescale" in call("rescale", ID, "-p", "3", "--detached", "-m", server.url).output
    assert [asked[1] for asked in run.asked] == [4, 13, 3]


@pytest.mark.feature("I11", "I14", "N23")
def test_savepoints_have_flinks_types_and_a_stop_may_drain(server: RestServer, run: Pretended) -> None:
    assert call("savepoint", ID, "/s", "--type", "native", "-m", server.url).exit_code == 0
    assert call("stop", ID, "-p", "/s", "--drain", "--type", "native", "-m", server.url).exit_code == 0
    assert run.asked[-2:] == [("savepoint", "/s", "NATIVE"), ("stop", "/s", True, "NATIVE")]
    for command in (["savepoint", ID, "/s"], ["stop", ID, "-p", "/s"]):
        assert call(*command, "-m", server.url).exit_code == 0
    assert run.asked[-2:] == [("savepoint", "/s", "CANONICAL"), ("stop", "/s", False, "CANONICAL")]


def test_a_job_is_found_by_its_name(server: RestServer, run: Pretended) -> None:
    assert call("cancel", "orders", "-m", server.url).output == "Cancelled job orders.\n"
    assert "Path: /s/savepoint-1" in call("savepoint", "orders", "/s", "-m", server.url).output


def test_errors_distinguish_no_server_from_no_such_job(server: RestServer) -> None:
    absent = call("list", "-m", "127.0.0.1:1")
    assert (absent.exit_code, "UNREACHABLE" in absent.output) == (3, True)
    assert absent.output.endswith("\nHelp: tidegate explain UNREACHABLE\n")
    assert "(Connection refused)" in absent.output
    assert "tidegate ui DIR" in absent.output
    unknown = call("cancel", "other", "-m", server.url)
    assert (unknown.exit_code, "not found" in unknown.output) == (3, True)
    assert unknown.output.startswith("NOT_FOUND: "), "the code is the one that the help is about"
    assert re.findall("Help: tidegate explain (.*)", unknown.output) == [
        "NOT_FOUND"
    ]  # what the server said, and no other


class Stranger(BaseHTTPRequestHandler):
    """Another program on the port."""

    def do_GET(self) -> None:
        page = b"<html>Welcome</html>"
        self.send_response(200 if "welcome" in self.path else 404)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None: ...


def test_another_program_at_the_address_is_not_taken_for_a_job_that_refuses() -> None:
    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            told = call("list", "-m", f"127.0.0.1:{server.server_port}")
            welcome = call("list", "-m", f"127.0.0.1:{server.server_port}/welcome")
        finally:
            server.shutdown()
    assert told.exit_code == 3
    assert "is not tidegate (HTTP 404)" in told.output
    assert "is not tidegate (its answer is not JSON)" in welcome.output


class Slow(Pretended):
    """Its savepoints complete when the test says so, or after a minute."""

    def __init__(self) -> None:
        super().__init__()
        self.may_complete = threading.Event()

    def savepoint(self, target: str | None, *, format: str) -> Future[str]:
        return _in_thread(lambda: self.stop_with_savepoint(target, drain=False, format=format), "savepoint")

    def stop_with_savepoint(self, target: str | None, *, drain: bool, format: str) -> str:
        self.may_complete.wait(60)
        return super().stop_with_savepoint(target, drain=drain, format=format)


@pytest.mark.feature("I12", "I14", "N23")
@pytest.mark.parametrize("command", [["savepoint", ID, "/s"], ["stop", ID, "-p", "/s"]])
def test_a_detached_savepoint_is_an_id_to_ask_for_later(command: list[str]) -> None:
    run = Slow()
    with RestServer(JobService(run)) as server:  # type: ignore[arg-type]
        told = call(*command, "-detached", "-m", server.url).output
        path = f"/jobs/{ID}/savepoints/{told.rpartition('triggerId: ')[2].strip()}"
        assert Client(server.url).ask("GET", path)["status"]["id"] == "IN_PROGRESS"
        run.may_complete.set()
        assert Client(server.url).await_operation(path, "failure-cause") == {"location": "/s/savepoint-2"}


class Started(Pretended):
    """A job file that was loaded, and the run that it gives."""

    def start(self, **choices: Any) -> Started:
        self.asked.append(choices["options"])
        return self

    def await_termination(self) -> bool:
        return True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    """What `tidegate run` starts, with the options that it gives."""
    started = Started()
    monkeypatch.setattr("tidegate.control.jobs.job_file.load_job", lambda path, **more: started)
    monkeypatch.setattr("tidegate.control.jobs.job_file.module_of", lambda path: ModuleType("job"))
    monkeypatch.setattr("tidegate.runtime.epochs.pickling.ship_by_value", lambda module: None)
    monkeypatch.setattr("tidegate.runtime.driver.ending.Ending.listening", lambda ending: nullcontext())
    (tmp_path / "job.py").touch()
    return started


@pytest.mark.feature("E15", "I15", "I16", "I20", "I31", "I37", "N23")
def test_flags_of_run_set_the_options_they_stand_for(started: Started, tmp_path: Path) -> None:
    flags = [
        "-s",
        "/sp",
        "-n",
        "-cm",
        "claim",
        "--map-uid",
        "a=b",
        "--map-uid",
        "c=d",
        "--renamed",
        "b/n:x=y",
        "--drop-state",
        "b/old",
        "-p",
        "3",
    ]
    result = call("run", str(tmp_path / "job.py"), *flags, "-D", "rest.port=0")
    assert result.exit_code == 0, result.output
    read = RecoveryConfig.of(read_options(started.asked[0]))
    assert (read.path, read.allow_non_restored_state, read.claim_mode) == ("/sp", True, ClaimMode.CLAIM)
    assert (read.uids, read.renamed_fields) == ({"a": "b", "c": "d"}, {("b", "n"): {"x": "y"}})
    assert read.dropped_states == {("b", "old")}
    assert started.parallelism == 3


@pytest.mark.feature("D33", "H5")
@pytest.mark.parametrize(
    ("flags", "accepted"),
    [
        ([], (False, False)),
        (["--accept-foreign-output"], (True, False)),
        (["--accept-moved-directory"], (False, True)),
        (["--accept-foreign-output", "--accept-moved-directory"], (True, True)),
    ],
)
def test_flags_of_run_accept_the_effects_of_a_restore(
    started: Started, tmp_path: Path, flags: list[str], accepted: tuple[bool, bool]
) -> None:
    result = call("run", str(tmp_path / "job.py"), *flags, "-D", "rest.port=0")
    assert result.exit_code == 0, result.output
    read = RecoveryConfig.of(read_options(started.asked[0]))
    assert (read.accept_foreign_output, read.accept_moved_directory) == accepted
