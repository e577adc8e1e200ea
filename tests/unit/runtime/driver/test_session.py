"""A session that lacks a setting is refused with the lines to add. No JVM: a setting is read through a function."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from pyspark.errors import SparkNoSuchElementException

from tidegate.core.errors import PreconditionFailed
from tidegate.runtime.driver.session import (
    BATCH_BYTES,
    JAVA_OPTIONS,
    check_running,
    check_session,
    local_workers,
    quiet_java,
)
from tidegate.runtime.spark_versions import IncompatibleSpark, requirements

REQUIREMENTS = requirements("4.3.0")
RIGHT = {requirement.key: requirement.wanted for requirement in REQUIREMENTS}
CHECKSUMS = "spark.sql.shuffle.orderIndependentChecksum.enabled"


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


def test_error_separates_settings_that_can_still_be_changed():
    with pytest.raises(PreconditionFailed) as refused:
        check_session(lambda key, default: default, "4.3.0", lambda key: key.startswith("spark.sql."))
    told = str(refused.value).splitlines()
    assert told[1].startswith('    spark.conf.set("spark.sql.adaptive.enabled", "false")')
    assert told[2].startswith("These cannot be changed while it runs.")
    assert told[3].startswith('    .config("spark.shuffle.reduceLocality.enabled", "false")')


class Conf:
    """The settings of a session. A fork has defaults of its own, and may not know a setting."""

    def __init__(self, defaults: dict[str, str]) -> None:
        self._defaults = defaults

    def get(self, key: str, *default: str) -> str:
        if not default and key not in self._defaults:
            raise SparkNoSuchElementException(f"The SQL config {key!r} cannot be found.")
        return CORE.get(key, default[0]) if default else self._defaults[key]

    def isModifiable(self, key: str) -> bool:
        return key in self._defaults


def session_of(defaults: dict[str, str], version: str = "4.3.0") -> Any:
    return SimpleNamespace(conf=Conf(defaults), version=version)


SQL = {key: value for key, value in RIGHT.items() if key.startswith("spark.sql.")}
CORE = {key: value for key, value in RIGHT.items() if key not in SQL}


def test_a_default_of_the_vendors_counts_and_not_that_of_apache_spark():
    check_running(session_of(SQL))
    with pytest.raises(PreconditionFailed, match=rf"{CHECKSUMS}.*without shuffle checksums, nothing detects"):
        check_running(session_of(SQL | {CHECKSUMS: "false"}))


@pytest.mark.parametrize("version", ["4.1.4", "4.3.0"])
def test_a_spark_without_checksums_is_refused_though_it_accepts_the_setting(version):
    class Accepting(Conf):
        def get(self, key: str, *default: str) -> str:
            wanted = {requirement.key: requirement.wanted for requirement in requirements(version)}
            return (wanted | {BATCH_BYTES: "64m"})[key]

    session = session_of({}, version)
    session.conf = Accepting({key: "" for key in SQL if key != CHECKSUMS})
    with pytest.raises(IncompatibleSpark, match=rf"Spark \({version}\) .* no setting {CHECKSUMS}, and without shuffle"):
        check_running(session)


def test_values_of_settings_are_compared_without_case():
    check({key: value.upper() for key, value in RIGHT.items()})


def test_a_pyspark_that_is_too_old_is_refused(monkeypatch):
    monkeypatch.setattr("pyspark.__version__", "4.0.4")
    with pytest.raises(PreconditionFailed, match=r"PySpark 4\.0\.4 .* 4\.1 or later"):
        check(RIGHT)


def test_a_new_pyspark_on_an_older_spark_is_refused_too():
    with pytest.raises(PreconditionFailed, match=r"Spark 4\.0\.4 .* 4\.1 or later"):
        check(RIGHT, "4.0.4")
    check(RIGHT, "4.2.0-SNAPSHOT")


def test_a_session_of_spark_4_1_needs_what_later_versions_do_by_themselves():
    with pytest.raises(PreconditionFailed) as refused:
        check({}, "4.1.4")
    keys = [line.split('"')[1] for line in str(refused.value).splitlines()[1:]]
    assert keys == [
        "spark.sql.adaptive.enabled",
        "spark.shuffle.reduceLocality.enabled",
        "spark.sql.shuffle.orderIndependentChecksum.enabled",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
    ]
    check(RIGHT, "4.1.4")


def quiet_option(config: dict[str, str], environment: dict[str, str]) -> str:
    return quiet_java(config, environment).get(JAVA_OPTIONS, "")


def test_java_logs_as_in_the_file_that_is_shipped():
    name, _, address = quiet_option({}, {}).partition("=")
    assert name == "-Dlog4j2.configurationFile"
    assert "rootLogger.level = error" in Path(url2pathname(urlsplit(address).path)).read_text()


def test_options_of_the_user_are_kept():
    assert quiet_option({JAVA_OPTIONS: "-Xss8m"}, {}).endswith("/log4j2.properties -Xss8m")


@pytest.mark.parametrize("level", ["DEBUG", "ERROR", "OFF"])
def test_a_level_that_the_user_chose_brings_sparks_own_configuration(level):
    assert quiet_java({"spark.log.level": level}, {}) == {}


@pytest.mark.parametrize("key", [JAVA_OPTIONS, "spark.driver.extraJavaOptions"])
def test_a_configuration_of_log4j_that_the_user_chose_is_kept(key):
    assert quiet_java({key: "-Dlog4j2.configurationFile=file:///mine.properties"}, {}) == {}


def test_what_an_administrator_has_configured_is_kept(tmp_path):
    home = {"SPARK_HOME": str(tmp_path)}
    assert quiet_java({}, home)
    (tmp_path / "conf").mkdir()
    defaults = tmp_path / "conf" / "spark-defaults.conf"
    defaults.write_text("spark.driver.memory 2g")
    assert quiet_java({}, home)
    defaults.write_text(f"{JAVA_OPTIONS} -Xss8m")
    assert quiet_java({}, home) == {}
    defaults.unlink()
    (tmp_path / "conf" / "log4j2.properties").touch()
    assert quiet_java({}, home) == {}
    assert quiet_java({}, {"SPARK_CONF_DIR": str(tmp_path / "conf")}) == {}


def test_a_jvm_that_runs_already_is_left_alone():
    assert quiet_java({}, {"PYSPARK_GATEWAY_PORT": "4040"}) == {}


def test_workers_of_this_machine_are_forked_with_everything_loaded():
    assert local_workers("local[*,4]", {}, {"PYSPARK_PYTHON": sys.executable}) == {
        "spark.python.daemon.module": "tidegate.runtime.epochs.worker_daemon"
    }


@pytest.mark.parametrize(
    ("master", "config", "python"),
    [
        ("spark://somewhere:7077", {}, sys.executable),
        (None, {}, sys.executable),
        ("local[2]", {}, "/another/python"),
        ("local[2]", {"spark.pyspark.python": "/another/python"}, sys.executable),
    ],
)
def test_a_python_that_may_not_have_tidegate_starts_workers_as_spark_does(master, config, python):
    assert local_workers(master, config, {"PYSPARK_PYTHON": python}) == {}
