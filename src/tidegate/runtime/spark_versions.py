"""What differs between the versions of Spark that tidegate runs on. Nothing else asks for a version.

Spark 4.1 is the oldest: its union keeps the partitions of its inputs, and without that a task cannot stay with its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.core.errors import PreconditionFailed

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:
        # Before 4.2 there is no such module. `check_read_limits` refuses what would use these names; modules that define
        # sources are still imported, because other parts of the driver need them.
        ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object

__all__ = [
    "OLDEST",
    "IncompatibleSpark",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "Requirement",
    "SupportsTriggerAvailableNow",
    "check_read_limits",
    "check_settings_exist",
    "check_version",
    "requirements",
]

Version = tuple[int, int]

OLDEST: Version = (4, 1)
_READ_LIMITS_SINCE: Version = (4, 2)
_UNIFIED_RETRY_SINCE: Version = (4, 2)
"""SPARK-54956."""
_CHECKSUMS_BY_DEFAULT_SINCE: Version = (4, 2)
_NAMED_SOURCES_SINCE: Version = (4, 2)


class IncompatibleSpark(PreconditionFailed):
    """This Spark does not do what the results of a job depend on."""

    code = "INCOMPATIBLE_SPARK"

    @classmethod
    def of(cls, version: str, faults: Sequence[str]) -> IncompatibleSpark:
        """`version` as Spark reports it; `faults` are half sentences."""
        return cls(
            f"This Spark ({version}) does not do what tidegate relies on, and results would be wrong: {'; '.join(faults)}. Use "
            "a release of Apache Spark that the support matrix lists, without changes by a vendor or a plugin."
        )


@dataclass(frozen=True, slots=True)
class Requirement:
    """One Spark setting that correctness or affinity depends on."""

    key: str
    wanted: str
    default: str
    """Spark's value if the key is not set."""
    why: str
    must_exist: bool = False
    """Whether a Spark without this setting does not do what it asks for, and nothing else finds that out."""


def requirements(version: str) -> tuple[Requirement, ...]:
    """Return the settings that a session of this version of Spark needs."""
    at = _parsed(version)
    checksums = "true" if at >= _CHECKSUMS_BY_DEFAULT_SINCE else "false"
    found = [
        Requirement(
            "spark.sql.adaptive.enabled", "false", "true",
            "adaptive execution changes partitions while a job runs, and a slot would lose its state",
        ),
        Requirement(
            "spark.shuffle.reduceLocality.enabled", "false", "true",
            "tasks would follow their input's blocks instead of their state",
        ),
        Requirement(
            "spark.sql.shuffle.orderIndependentChecksum.enabled", "true", checksums,
            "without shuffle checksums, nothing detects that a source task ran again with other rows", must_exist=True,
        ),
        Requirement(
            "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch", "true", checksums,
            "a stage whose input changed must run again as a whole", must_exist=True,
        ),
        Requirement(
            "spark.sql.unionOutputPartitioning", "true", "true",
            "rows and the anchor that keeps tasks with their state would not share partitions",
        ),
        Requirement("spark.speculation", "false", "false", "a second copy of a task doubles its work and gains nothing"),
        Requirement(
            "spark.shuffle.push.enabled", "false", "false",
            "merged shuffle blocks are not covered by the checksums and do not keep the order of rows",
        ),
    ]  # fmt: skip
    if at < _UNIFIED_RETRY_SINCE:
        # Until SPARK-54956, Spark aborts the stage that cannot run again instead of the job: if the stage's output is
        # available, nothing ends, and tasks continue with rows of both attempts.
        why = "a stage whose input changed could not run again, and this version of Spark would continue all the same"
        found.append(Requirement("spark.shuffle.useOldFetchProtocol", "false", "false", why))
    if at >= _NAMED_SOURCES_SINCE:
        why = "tidegate names the sources of a job itself, and starts queries from an offset log without Spark's names"
        key = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
        found.append(Requirement(key, "false", "false", why))
    return tuple(found)


def check_version(of: str, version: str) -> None:
    """Raise PreconditionFailed if the package or the cluster (`of`) has a version that is too old."""
    if _parsed(version) < OLDEST:
        raise PreconditionFailed(
            f"{of} {version} is too old: tidegate needs {OLDEST[0]}.{OLDEST[1]} or later, the first whose union keeps the "
            "partitions of its inputs. In older versions tasks cannot stay with their state."
        )


def check_settings_exist(version: str, exists: Callable[[str], bool]) -> None:
    """Raise IncompatibleSpark if this Spark does not know a setting that it must have. It accepts any key as a setting, so a
    session may have the value without any effect."""
    faults = [
        f"it has no setting {requirement.key}, and {requirement.why}"
        for requirement in requirements(version)
        if requirement.must_exist and not exists(requirement.key)
    ]
    if faults:
        raise IncompatibleSpark.of(version, faults)


def check_read_limits(version: str) -> None:
    """Raise PreconditionFailed if a Python source cannot bound an epoch in this version of Spark.

    Before 4.2, Spark asks such a source for the latest offset without telling where the epoch begins. After a restart the
    source could neither limit what it reads nor notice that the end is before the beginning.
    """
    if _parsed(version) < _READ_LIMITS_SINCE:
        raise PreconditionFailed(
            f"kafka_source needs Spark 4.2 or later: Spark {version} does not tell Python sources where an epoch begins. Use "
            "Spark's connector instead: start Spark with --packages "
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version} and pass "
            'spark.readStream.format("kafka").option("kafka.bootstrap.servers", …).option("subscribe", …)'
            '.option("maxOffsetsPerTrigger", …).load() to job.source. It has the same columns.'
        )


def _parsed(version: str) -> Version:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
