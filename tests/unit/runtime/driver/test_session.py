"""A session that lacks a setting is refused with the lines to add. No JVM: a setting is read through a function."""

from __future__ import annotations

import pytest

from tidegate.core.errors import PreconditionFailed
from tidegate.runtime.driver.session import BATCH_BYTES, REQUIREMENTS, check_session

RIGHT = {requirement.key: requirement.wanted for requirement in REQUIREMENTS}


def check(settings: dict[str, str], version: str = "4.3.0") -> None:
    check_session(lambda key, default: settings.get(key, default), version)


def test_a_session_with_every_setting_is_taken():
    check(RIGHT)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.key)
def test_each_wrong_setting_is_refused_with_the_line_that_puts_it_right(requirement):
    opposite = {"true": "false", "false": "true", "1": "2"}[requirement.wanted]
    with pytest.raises(PreconditionFailed) as refused:
        check(RIGHT | {requirement.key: opposite})
    line = f'    .config("{requirement.key}", "{requirement.wanted}")   # {requirement.why}'
    assert str(refused.value).splitlines()[1:] == [line]


def test_a_plain_session_of_sparks_lacks_just_what_spark_decides_otherwise():
    with pytest.raises(PreconditionFailed) as refused:
        check({})
    asked = [line.split('"')[1] for line in str(refused.value).splitlines()[1:]]
    assert asked == ["spark.sql.adaptive.enabled", "spark.shuffle.reduceLocality.enabled"]


@pytest.mark.parametrize("size", ["67108864b", "64m", "64MB", "1g", "1024"])
def test_batches_of_a_bounded_size_are_taken(size):
    check(RIGHT | {BATCH_BYTES: size})


@pytest.mark.parametrize("size", ["-1b", "0", "2g", "1t"])
def test_batches_without_a_bound_that_an_arrow_column_can_hold_are_refused(size):
    with pytest.raises(PreconditionFailed) as refused:
        check(RIGHT | {BATCH_BYTES: size})
    assert f'.config("{BATCH_BYTES}", "64m")' in str(refused.value)


def test_settings_that_can_still_be_changed_are_told_apart():
    with pytest.raises(PreconditionFailed) as refused:
        check_session(lambda key, default: default, "4.3.0", lambda key: key.startswith("spark.sql."))
    told = str(refused.value).splitlines()
    assert told[1].startswith('    spark.conf.set("spark.sql.adaptive.enabled", "false")')
    assert told[2].startswith("These cannot be changed while it runs.")
    assert told[3].startswith('    .config("spark.shuffle.reduceLocality.enabled", "false")')


def test_letters_may_be_capital():
    check({key: value.upper() for key, value in RIGHT.items()})


def test_a_spark_without_shuffle_checksums_is_too_old(monkeypatch):
    monkeypatch.setattr("pyspark.__version__", "4.1.2")
    with pytest.raises(PreconditionFailed, match=r"PySpark 4\.1\.2 .* 4\.2 or later"):
        check(RIGHT)


def test_a_new_pyspark_on_an_older_spark_is_refused_too():
    with pytest.raises(PreconditionFailed, match=r"Spark 4\.1\.2 .* 4\.2 or later"):
        check(RIGHT, "4.1.2")
    check(RIGHT, "4.2.0-SNAPSHOT")
