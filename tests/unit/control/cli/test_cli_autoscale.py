"""`tidegate autoscale`, against a job that only pretends to run and against recorded traces."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from tests.unit.autoscaler.test_explanation import recorded, steady
from tests.unit.control.rest.test_server import Pretended
from tests.unit.runtime.driver.test_autoscaling import Run
from tidegate.autoscaler.trace import ScalingTrace
from tidegate.control.cli import main
from tidegate.control.rest.server import RestServer


def autoscale(*words: str) -> Result:
    return CliRunner().invoke(main, ["autoscale", *words])


def test_the_autoscaler_of_a_running_job_is_explained(server: RestServer, run: Pretended) -> None:
    run.autoscaler = Run().epochs(12, 12_000, 11_000)
    told = autoscale("explain", "orders", "-m", server.url)
    assert told.exit_code == 0, told.output
    assert told.output.startswith("It would scale the job up from 2 to 4.")
    assert "job.autoscaler.scaling.enabled is false" in told.output
    found = json.loads(autoscale("explain", "orders", "-m", server.url, "-o", "json").output)
    assert (found["decision"]["kind"], found["decision"]["recommended"], found["scaling_enabled"]) == (
        "SCALE_UP",
        4,
        False,
    )


def test_the_autoscaler_has_no_decision_before_the_first_epoch(server: RestServer, run: Pretended) -> None:
    run.autoscaler = Run().scaler
    assert "No decision yet" in autoscale("explain", "orders", "-m", server.url).output


def test_the_error_without_an_autoscaler_says_how_to_enable_it(server: RestServer) -> None:
    told = autoscale("explain", "orders", "-m", server.url)
    assert told.exit_code == 3
    assert "-Djob.autoscaler.enabled=true" in told.output


def test_samples_of_a_running_job_can_be_recorded_and_replayed(
    server: RestServer, run: Pretended, tmp_path: Path
) -> None:
    run.autoscaler = Run().epochs(12, 12_000, 11_000)
    file = tmp_path / "trace.json"
    done = autoscale("record", "orders", str(file), "-m", server.url)
    assert (done.exit_code, done.output) == (0, f"12 samples in {file}.\n")
    assert ScalingTrace.from_bytes(file.read_bytes()) == run.autoscaler.trace
    assert "It would scale the job up from 2 to 4." in autoscale("explain", "--trace", str(file)).output


def test_a_replay_shows_when_the_decision_changed(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(recorded(6, **steady(1_000), parallelism=20).to_bytes())
    told = autoscale("explain", "--trace", str(file)).output
    assert [word for word in told.split() if word.isupper() and len(word) > 3] == [
        "STABILIZING",
        "COLLECTING",
        "DELAYED",
        "SCALE_DOWN",
    ]
    other = autoscale(
        "explain",
        "--trace",
        str(file),
        "-Djob.autoscaler.metrics.window=2 min",
        "-Djob.autoscaler.stabilization.interval=0 s",
        "-o",
        "json",
    )
    assert json.loads(other.output)["decisions"][-1]["decision"]["kind"] == "DELAYED"


def test_an_empty_trace_has_no_decisions(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_bytes(recorded(0, **steady(1_000), parallelism=20).to_bytes())
    assert "nothing to decide" in autoscale("explain", "--trace", str(file)).output


def test_wrong_usage_is_explained(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    assert autoscale("explain").exit_code == 2
    assert "is not a trace" in autoscale("explain", "--trace", str(tmp_path / "other.json")).output
    assert "works with --trace" in autoscale("explain", "orders", "-Djob.autoscaler.enabled=true").output
