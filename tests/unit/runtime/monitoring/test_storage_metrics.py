"""What the requests of a job would cost."""

from __future__ import annotations

import pytest

from tidegate.core.storage_cost import StorageCalls, StoragePrices
from tidegate.metrics import catalog
from tidegate.runtime.monitoring.storage_metrics import checkpoint_samples, dollars_per_day, storage_samples

DAY_MS = 86_400_000


def test_a_million_writes_a_day_cost_five_dollars() -> None:
    assert dollars_per_day({"write": (1_000_000, 0)}, 0, DAY_MS) == pytest.approx(5.0)


def test_the_cost_of_a_day_is_extrapolated_from_an_hour() -> None:
    assert dollars_per_day({"read": (100_000, 0)}, 0, DAY_MS // 24) == pytest.approx(0.04 * 24)


def test_stored_bytes_cost_without_requests() -> None:
    assert dollars_per_day({}, 30 * 2**30, DAY_MS) == pytest.approx(0.023)


def test_prices_of_the_job_are_used() -> None:
    twice = StoragePrices(per_million_writes=10, per_gb_month=0.046)
    assert dollars_per_day({"write": (1_000_000, 0)}, 30 * 2**30, DAY_MS, twice) == pytest.approx(10.046)


def test_the_last_checkpoint_has_a_sample_for_each_kind_of_request_and_its_cost() -> None:
    found = list(checkpoint_samples(StorageCalls(writes=3, reads=1), 0.25))
    requests = {each.labels["kind"]: each.value for each in found if each.metric is catalog.LAST_CHECKPOINT_REQUESTS}
    assert requests == {"write": 3, "list": 0, "read": 1, "delete": 0}
    assert [each.value for each in found if each.metric is catalog.LAST_CHECKPOINT_COST] == [0.25]
    assert len(list(checkpoint_samples(StorageCalls(writes=3), None))) == 4


@pytest.mark.parametrize(("is_priced", "uptime_ms"), [(False, DAY_MS), (True, 1_000)])
def test_no_cost_is_reported_for_a_directory_or_in_the_first_minute(is_priced: bool, uptime_ms: int) -> None:
    found = storage_samples({"write": (1, 1)}, is_priced=is_priced, stored_bytes=0, uptime_ms=uptime_ms)
    assert catalog.STORAGE_COST not in {sample.metric for sample in found}
