"""What is kept when a job ends: Flink's table, cell by cell."""

from __future__ import annotations

import pytest

from tidegate.config.choices import JobEnd, Retention
from tidegate.config.declared.checkpointing import RETENTION

ENDS = (JobEnd.FINISHED, JobEnd.CANCELED, JobEnd.FAILED, JobEnd.SUSPENDED)


@pytest.mark.feature("D14", "D15", "E13")
@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (Retention.NO_EXTERNALIZED_CHECKPOINTS, (False, False, False, False)),
        (Retention.DELETE_ON_CANCELLATION, (False, False, True, False)),
        (Retention.RETAIN_ON_CANCELLATION, (False, True, True, True)),
    ],
)
def test_retention(retention: Retention, kept: tuple[bool, ...]) -> None:
    assert tuple(retention.keeps(end) for end in ENDS) == kept


@pytest.mark.feature("D14", "E13")
def test_a_job_keeps_its_checkpoints_unless_configured_otherwise() -> None:
    assert RETENTION.default is Retention.RETAIN_ON_CANCELLATION
