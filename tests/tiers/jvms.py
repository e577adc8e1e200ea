"""JVMs that start in half the time. `python -m tests.tiers.jvms` makes the archive of Spark's classes that they share.

CI starts some two hundred JVMs, and most live for seconds: what they do is load and check some ten thousand classes. Java can
write down once what comes out of that (class data sharing); a cluster of one master and two workers is then up after 8 s
instead of 16, and a driver's first query takes 5 s of processor time instead of 12.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "artifacts" / "spark.jsa"
"""It holds for the jars of one environment, by path and date. Java starts without it when they differ."""
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for seconds: a small job took 28 s of processor time instead of 44, most of it compiling and collecting."""
_PROGRAM = ROOT / "examples" / "word_count.py"
"""Any job that shuffles, streams and calls Python."""


def options(archive: Path = ARCHIVE) -> str:
    """What to put into JAVA_TOOL_OPTIONS. A JVM with another class path must not complain on its standard output."""
    if not archive.exists():
        return SHORT_LIVED
    return f"{SHORT_LIVED} -XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"


def make_archive(archive: Path = ARCHIVE) -> None:
    """Run a job in a JVM that writes its classes down when it ends. Raises CalledProcessError if it does not."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.unlink(missing_ok=True)
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    writing = f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable -Xlog:all=error:stderr"
    submit = Path(sys.executable).with_name("spark-submit")
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    command = [submit, "--master", "local[2]", "--driver-java-options", writing, _PROGRAM]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    unfinished.rename(archive)


if __name__ == "__main__":
    make_archive()
