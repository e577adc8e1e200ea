"""`tidegate plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tidegate.control.cli import main

GIVEN = ("--rows", "1e5", "--keys", "1e6", "--state-per-key", "100 b")


def plan(*options: str) -> Result:
    return CliRunner().invoke(main, ["plan", *options])


def test_plan_prints_size_checkpoints_and_recovery() -> None:
    done = plan(*GIVEN)
    assert done.exit_code == 0, done.output
    for part in ("Executors", "Uploaded by a checkpoint", "a month", "Exactly-once output"):
        assert part in done.output


def test_json_has_inputs_results_and_constants(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("key_cpu = 7\ntask_cpu = 0.2\n")
    done = plan(
        *GIVEN, "-o", "json", "--constants", str(tmp_path / "mine.toml"), "--constant", "key_cpu=9", "--epoch", "5 s"
    )
    told = json.loads(done.output)
    assert told["workload"]["rows_per_s"] == 1e5
    assert told["workload"]["epoch_s"] == 5
    assert told["capacity"]["requests"]["writes"] >= 2
    assert (told["constants"]["key_cpu"], told["constants"]["task_cpu"]) == (9, 0.2)


def test_an_impossible_workload_exits_with_1_and_says_why() -> None:
    done = plan(*GIVEN, "--uplink", "1 kb", "--keys", "1e9")
    assert done.exit_code == 1
    assert "This cannot work" in done.output
    assert "its line carries" in done.output


def test_constants_are_listed_with_their_sources() -> None:
    done = plan("--show-constants", "--constant", "key_cpu=9", "-o", "json")
    listed = {each["name"]: each for each in json.loads(done.output)["constants"]}
    assert listed["key_cpu"]["source"] == "given"
    assert listed["task_cpu"] == {
        "name": "task_cpu",
        "value": 0.14,
        "unit": "s per task and epoch",
        "source": "wide: 600 tasks on 2 cores",
    }


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (("--rows", "1e5"), 2, "Missing --keys, --state-per-key"),
        ((*GIVEN, "--epoch", "soon"), 2, "is not a duration"),
        ((*GIVEN, "--keys", "0"), 2, "is not above 0"),
        ((*GIVEN, "--constant", "key_cpus=1"), 3, "BAD_OPTION"),
    ],
)
def test_wrong_input_is_explained(options: tuple[str, ...], code: int, text: str) -> None:
    done = plan(*options)
    assert done.exit_code == code
    assert text in done.output
