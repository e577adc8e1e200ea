"""The verbs on running jobs, against the REST server of a job that only pretends to run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from tests.unit.control.test_rest import ID, Pretended
from tidegate.control.cli import main
from tidegate.control.rest import RestServer


@pytest.fixture
def run() -> Pretended:
    return Pretended()


@pytest.fixture
def server(run: Pretended) -> Iterator[RestServer]:
    with RestServer(run) as started:  # type: ignore[arg-type]
        yield started


def call(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="tidegate")


def test_list_is_flinks_line(server: RestServer) -> None:
    assert f" : {ID} : orders (RUNNING)" in call("list", "-m", server.url).output


def test_savepoint_stop_checkpoint_and_cancel_say_what_flink_says(server: RestServer, run: Pretended) -> None:
    assert "Savepoint completed. Path: /s/savepoint-1" in call("savepoint", ID, "/s", "-m", server.url).output
    assert "Savepoint completed. Path: /s/savepoint-2" in call("stop", ID, "-p", "/s", "-m", server.url).output
    assert f"Checkpoint 2 for job {ID} completed." in call("checkpoint", ID, "-m", server.url).output
    assert f"Cancelled job {ID}." in call("cancel", ID, "-m", server.url).output
    assert ("savepoint", "/s") in run.asked


def test_a_job_is_called_by_its_name(server: RestServer, run: Pretended) -> None:
    assert call("cancel", "orders", "-m", server.url).output == "Cancelled job orders.\n"
    assert "Path: /s/savepoint-1" in call("savepoint", "orders", "/s", "-m", server.url).output


def test_nobody_there_and_nobody_of_that_name(server: RestServer) -> None:
    absent = call("list", "-m", "127.0.0.1:1")
    assert (absent.exit_code, "UNREACHABLE" in absent.output) == (3, True)
    unknown = call("cancel", "other", "-m", server.url)
    assert (unknown.exit_code, "not found" in unknown.output) == (3, True)
