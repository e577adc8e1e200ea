"""The deployment page: its manifests parse, and agree with the exit codes, time limits and Spark settings of the code."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import yaml

from tidegate.core.durations import duration_ms
from tidegate.runtime.driver.ending import ExitCode
from tidegate.runtime.spark_versions import OLDEST, requirements

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations" / "deploy.md").read_text()


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def stop_within_s(command: str) -> float:
    found = re.search(r"--stop-within[\",]* +\"(\d+ s)\"", command)
    assert found is not None
    return duration_ms(found[1]) / 1000


def manifests() -> dict[str, Any]:
    return {manifest["kind"]: manifest for manifest in yaml.safe_load_all(block("yaml"))}


def test_the_manifests_run_one_driver_at_a_time_and_give_it_time_to_stop() -> None:
    found = manifests()
    spec = found["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    [driver] = pod["containers"]
    command = driver["command"]

    assert spec["replicas"] == 1
    assert spec["strategy"]["type"] == "Recreate"
    assert (
        spec["selector"]["matchLabels"]
        == spec["template"]["metadata"]["labels"]
        == found["Service"]["spec"]["selector"]
    )
    assert command[:2] == ["tidegate", "run"]
    within = command[command.index("--stop-within") + 1]
    assert pod["terminationGracePeriodSeconds"] > duration_ms(within) / 1000
    ports = {str(port["port"]) for port in found["Service"]["spec"]["ports"]}
    [submitted] = [each["value"] for each in driver["env"] if each["name"] == "PYSPARK_SUBMIT_ARGS"]
    assert ports == set(re.findall(r"[.]port=(\d+)", submitted))
    assert submitted.endswith("pyspark-shell")


def test_the_unit_gives_the_driver_time_to_stop_and_does_not_restart_what_must_not_be() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(block("ini"))
    service = unit["Service"]

    assert int(service["TimeoutStopSec"]) > stop_within_s(service["ExecStart"])
    assert service["KillMode"] == "mixed"
    assert {ExitCode.CANCELLED, ExitCode.TAKEN_OVER} < set(map(int, service["RestartPreventExitStatus"].split()))
    assert ExitCode.FAILED not in map(int, service["RestartPreventExitStatus"].split())


def test_the_page_names_every_spark_setting_that_a_session_must_have() -> None:
    table = PAGE.partition("## Spark settings")[2].partition("These are yours to set")[0]
    oldest = requirements(f"{OLDEST[0]}.{OLDEST[1]}.0")
    for requirement in (*oldest, *requirements("4.3.0")):
        named = requirement.key in table or requirement.key.rpartition(".")[2] in table
        assert named, requirement.key
