"""What tidegate needs of each version of Spark."""

from __future__ import annotations

import pytest

from tidegate.core.errors import PreconditionFailed
from tidegate.runtime.sources.kafka_source import kafka_source
from tidegate.runtime.spark_versions import check_read_limits, check_version, requirements

CHECKSUMS = "spark.sql.shuffle.orderIndependentChecksum.enabled"
SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
OLD_FETCH = "spark.shuffle.useOldFetchProtocol"


def default(version: str, key: str) -> str:
    (found,) = [each.default for each in requirements(version) if each.key == key]
    return found


@pytest.mark.parametrize(
    ("version", "checksums"), [("4.1.0", "false"), ("4.1.4", "false"), ("4.2.1", "true"), ("4.3.0", "true")]
)
def test_checksums_are_off_by_default_in_4_1(version, checksums):
    assert default(version, CHECKSUMS) == checksums


def test_settings_belong_to_the_versions_that_need_them():
    of_4_1 = {each.key for each in requirements("4.1.4")}
    of_4_2 = {each.key for each in requirements("4.2.0")}
    assert of_4_1 - of_4_2 == {OLD_FETCH}
    assert of_4_2 - of_4_1 == {SOURCE_EVOLUTION}


@pytest.mark.parametrize("version", ["4.1.0", "4.1.4.dev0", "4.2.0-SNAPSHOT", "4.3.0", "5.0.0"])
def test_4_1_and_later_are_accepted(version):
    check_version("Spark", version)


@pytest.mark.parametrize("version", ["3.5.7", "4.0.4", "4.0.0.1-amzn"])
def test_older_versions_are_refused_with_the_reason(version):
    with pytest.raises(PreconditionFailed, match=r"4\.1 or later, the first whose union keeps"):
        check_version("Spark", version)


def test_a_source_that_needs_read_limits_points_to_sparks_connector_before_4_2():
    with pytest.raises(PreconditionFailed, match=r"spark-sql-kafka-0-10_2\.13:4\.1\.4"):
        check_read_limits("4.1.4")
    check_read_limits("4.2.0")


def test_kafka_source_is_refused_before_4_2():
    class Spark:
        version = "4.1.4"

    with pytest.raises(PreconditionFailed, match=r"kafka_source needs Spark 4\.2 or later"):
        kafka_source(Spark(), "host:9092", "t")
