"""What the requests of a job would cost."""

from __future__ import annotations

import pytest

from tidegate.metrics import catalog
from tidegate.runtime.driver.storage_metrics import dollars_per_day, storage_samples

DAY_MS = 86_400_000


def test_a_million_writes_a_day_cost_five_dollars() -> None:
    assert dollars_per_day({"write": (1_000_000, 0)}, 0, DAY_MS) == pytest.approx(5.0)


def test_an_hour_stands_for_the_day() -> None:
    assert dollars_per_day({"read": (100_000, 0)}, 0, DAY_MS // 24) == pytest.approx(0.04 * 24)


def test_stored_bytes_cost_without_requests() -> None:
    assert dollars_per_day({}, 30 * 2**30, DAY_MS) == pytest.approx(0.023)


@pytest.mark.parametrize(("is_priced", "uptime_ms"), [(False, DAY_MS), (True, 1_000)])
def test_no_cost_is_told_for_a_directory_or_in_the_first_minute(is_priced: bool, uptime_ms: int) -> None:
    found = storage_samples({"write": (1, 1)}, is_priced=is_priced, stored_bytes=0, uptime_ms=uptime_ms)
    assert catalog.STORAGE_COST not in {sample.metric for sample in found}
