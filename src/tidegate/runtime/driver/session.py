"""A SparkSession with the settings that tidegate needs, and the check of a session that the user provides."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from tidegate.core.errors import PreconditionFailed
from tidegate.core.java import JAVA_NEEDED, java_problem
from tidegate.runtime.driver.interrupts import children_ignore_sigterm
from tidegate.runtime.epochs import worker_daemon
from tidegate.runtime.spark_versions import check_settings_exist, check_version, requirements

BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_BATCH_BYTES_DEFAULT = "64m"
_MOST_BATCH_BYTES = 1 << 30
_UNITS = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _size(text: str) -> int | None:
    """Bytes of a size as Spark writes it, such as `64m` or `67108864b`. None if it is written in another way."""
    number = text.strip().lower().removesuffix("b")
    unit = number[-1:] if number[-1:] in _UNITS else ""
    try:
        return int(number.removesuffix(unit)) << _UNITS[unit or "b"]
    except ValueError:
        return None


def session(name: str, *, master: str | None = None, config: Mapping[str, str] | None = None) -> SparkSession:
    """Return a SparkSession for tidegate: `spark = tg.session("orders")`.

    A session that is already running is returned as it is if it has the required settings, and refused with what to change
    if not; tidegate neither changes nor stops it.

    Args:
        name: The name of the application in Spark's UI.
        master: The master to use. By default, that of `spark-submit` or the environment; without one, all cores of this
            machine.
        config: Settings of Spark. They add to those that tidegate requires, and may not contradict them.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        # Some settings of a running context can no longer be changed; a builder would only appear to.
        check_running(running)
        return running

    # Otherwise Spark starts `python3` of the path, which may be another version without tidegate.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

    builder = SparkSession.builder.appName(name)
    if master is None and not _master_given():
        # Four attempts for a task, as on a cluster: plain local[*] gives up after the first failure.
        master = "local[*,4]"
    if master is not None:
        builder = builder.master(master)

    settings = {
        **local_workers(master, config or {}, os.environ),
        # Spark waits so long for a free core on the host of the state. Its default of 3 s is less than a slow task takes.
        "spark.locality.wait": "10s",
        "spark.ui.showConsoleProgress": "false",
        # Spark's own warnings would drown the lines of the job. For Spark's: config={"spark.log.level": "INFO"}. See quiet_java.
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        # The cluster's version is not known yet. It should be the same, and `check_session` looks at what it really is.
        **{requirement.key: requirement.wanted for requirement in requirements(pyspark.__version__)},
        **(config or {}),
    }
    settings |= quiet_java(config or {}, os.environ)
    for key, value in settings.items():
        builder = builder.config(key, value)

    try:
        with children_ignore_sigterm():
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        problem = java_problem() or "Java ended before Spark was ready; the lines above are what it said."
        raise PreconditionFailed(f"Spark cannot start. {problem} {JAVA_NEEDED}") from None

    check_running(spark)
    return spark


def local_workers(master: str | None, config: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the setting with which Python workers on this machine start with everything loaded.

    Nothing for a cluster, or for another Python than this one: the daemon imports tidegate before Spark has sent any files, so
    only the user knows whether it is installed there.
    """
    if master is None or not master.startswith("local"):
        return {}
    if environment.get("PYSPARK_PYTHON") != sys.executable or "spark.pyspark.python" in config:
        return {}
    return {worker_daemon.SETTING: worker_daemon.MODULE}


JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_QUIET = Path(__file__).with_name("log4j2.properties")


def quiet_java(config: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the setting with which a JVM that starts now logs errors in one line, without Java's stack. Nothing if the user has
    chosen a level or a configuration of Log4j.

    Spark puts `spark.driver.defaultJavaOptions` before the options of the user, who therefore has the last word.
    """
    if "spark.log.level" in config or "PYSPARK_GATEWAY_PORT" in environment:
        return {}  # by spark-submit, the JVM runs already
    home = environment.get("SPARK_HOME")
    conf = environment.get("SPARK_CONF_DIR") or (home and str(Path(home) / "conf"))
    if conf and (any(Path(conf).glob("log4j2.*")) or _mentions(Path(conf) / "spark-defaults.conf", JAVA_OPTIONS)):
        return {}
    given = config.get(JAVA_OPTIONS, "")
    if "log4j2.configurationFile" in given + config.get("spark.driver.extraJavaOptions", ""):
        return {}
    return {JAVA_OPTIONS: f"-Dlog4j2.configurationFile={_QUIET.as_uri()} {given}".strip()}


def _mentions(file: Path, key: str) -> bool:
    try:
        return key in file.read_text(errors="replace")
    except OSError:
        return False


def _master_given() -> bool:
    """Whether spark-submit or the environment names a master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", "")


def check_running(spark: SparkSession) -> None:
    """Reject a session that lacks a setting, or whose Spark does not know one."""

    def get(key: str, default: str | None) -> str | None:
        if key.startswith("spark.sql."):
            # Spark's own default, if it knows the key: a vendor may have chosen another one.
            with suppress(PySparkException):
                return spark.conf.get(key)
        return spark.conf.get(key, default)

    check_session(get, spark.version, spark.conf.isModifiable)
    check_settings_exist(spark.version, spark.conf.isModifiable)


def check_session(
    get: Callable[[str, str | None], str | None], version: str, can_change: Callable[[str], bool] = lambda key: False
) -> None:
    """Reject a session that lacks a setting, with what to change. `get(key, default)` reads one setting; `version` is the
    Spark version of the session, which need not be that of the Python package. `can_change` says which settings can be changed
    while the session runs.
    """
    # First: the settings of a version that is too old are not known.
    check_version("PySpark", pyspark.__version__)
    check_version("Spark", version)
    wrong: list[tuple[str, str, str]] = []
    for requirement in requirements(version):
        found = get(requirement.key, requirement.default) or requirement.default
        if found.lower() != requirement.wanted:
            wrong.append((requirement.key, requirement.wanted, requirement.why))
    batch_bytes = _size(get(BATCH_BYTES, _BATCH_BYTES_DEFAULT) or _BATCH_BYTES_DEFAULT)
    if batch_bytes is not None and not 0 < batch_bytes <= _MOST_BATCH_BYTES:
        why = "tasks send rows in large pieces, and an Arrow batch holds 2 GB"
        wrong.append((BATCH_BYTES, _BATCH_BYTES_DEFAULT, why))
    if wrong:
        raise PreconditionFailed("This SparkSession is not set up for tidegate. " + _what_to_change(wrong, can_change))


def _what_to_change(wrong: Sequence[tuple[str, str, str]], can_change: Callable[[str], bool]) -> str:
    now = [f'    spark.conf.set("{key}", "{value}")   # {why}' for key, value, why in wrong if can_change(key)]
    built = [f'    .config("{key}", "{value}")   # {why}' for key, value, why in wrong if not can_change(key)]
    if not now:
        return "\n".join(
            [
                "These settings cannot be changed while it runs. Stop it and use tidegate.session(name), or build it with:",
                *built,
            ]
        )
    advice = ["Change these settings:", *now]
    if built:
        advice += [
            "These cannot be changed while it runs. Stop it and use tidegate.session(name), or build it with:",
            *built,
        ]
    return "\n".join(advice)
