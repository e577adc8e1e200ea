"""The one Spark session of a test run. A JVM holds one at a time, so asking for another kind ends the present one.

Tests ask through the fixtures `spark` (local) and `cluster_session` (standalone cluster); folders run one after the
other, so a run changes kind only a few times.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent

LOCAL_MASTER = "local[2,4]"
"""Two cores, and four attempts of a task as on a cluster; plain `local[2]` would never retry one."""

SETTINGS = {
    "spark.locality.wait": "10s",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.python.daemon.module": "tidegate.runtime.epochs.worker_daemon",
    # A test function lives in a module of this folder, and Python workers must be able to import it.
    "spark.executorEnv.PYTHONPATH": str(ROOT),
}

CLUSTER_SETTINGS = {
    "spark.executor.memory": "1g",
    "spark.executor.heartbeatInterval": "1s",
    # A silent executor counts as lost after this; a dead one is noticed at once, when its connection closes.
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "10s",
    "spark.rpc.askTimeout": "10s",
    "spark.task.maxFailures": "4",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}

_present: tuple[str, dict[str, str], SparkSession] | None = None


def session(master: str = LOCAL_MASTER, **conf: str) -> SparkSession:
    """The session with this master and these settings beyond the usual ones: the present one if it is the same.

    Settings are given with `_` for `.`, as in `spark_locality_wait="0s"`, or as `**{"spark.locality.wait": "0s"}`.
    """
    # Late: most tests import this module for ROOT alone.
    import pyspark
    from pyspark.sql import SparkSession

    from tidegate.runtime.spark_versions import requirements

    global _present
    wanted = {requirement.key: requirement.wanted for requirement in requirements(pyspark.__version__)}
    wanted |= SETTINGS | (CLUSTER_SETTINGS if master.startswith("spark://") else {})
    wanted |= {name.replace("_", "."): value for name, value in conf.items()}
    if _present is not None and _present[:2] == (master, wanted) and _lives(_present[2]):
        return _present[2]
    end()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(ROOT) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, paths)])
    builder = SparkSession.builder.master(master).appName("tidegate-tests")
    for name, value in wanted.items():
        builder = builder.config(name, value)
    _present = (master, wanted, builder.getOrCreate())
    return _present[2]


def end() -> None:
    """Stop the present session, if there is one."""
    global _present
    if _present is not None:
        spark, _present = _present[2], None
        if _lives(spark):
            spark.stop()


def _lives(spark: SparkSession) -> bool:
    context = spark._sc._jsc
    return context is not None and not context.sc().isStopped()
