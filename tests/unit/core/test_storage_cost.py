"""What requests to an object store cost."""

from __future__ import annotations

import pytest

from tidegate.core.storage_cost import (
    LIST_PRICES,
    StorageCalls,
    StoragePrices,
    calls_cost,
    storage_cost_per_day,
)


def test_a_million_requests_of_each_kind_at_list_prices() -> None:
    cost = {
        kind: calls_cost(StorageCalls(**{kind: 1_000_000}), LIST_PRICES)
        for kind in ("writes", "lists", "reads", "deletes")
    }
    assert cost == pytest.approx({"writes": 5.0, "lists": 5.0, "reads": 0.4, "deletes": 0.0})


def test_a_checkpoint_computed_by_hand() -> None:
    made = StorageCalls(writes=115, lists=3, reads=20, deletes=2, written_bytes=10**9)
    prices = StoragePrices(per_million_writes=10, per_million_reads=1, per_million_deletes=2)
    assert calls_cost(made, prices) == pytest.approx((118 * 10 + 20 * 1 + 2 * 2) / 1e6)


def test_thirty_gigabytes_for_a_day_cost_as_much_as_one_for_a_month() -> None:
    assert storage_cost_per_day(30 * 2**30, LIST_PRICES) == pytest.approx(0.023)


def test_counts_add_up_field_by_field() -> None:
    one = StorageCalls.of({"write": (2, 10), "read": (1, 4), "list": (3, 0), "delete": (4, 0)})
    assert one + one == StorageCalls(writes=4, lists=6, reads=2, deletes=8, written_bytes=20, read_bytes=8)
    assert one.total == 10
    assert not StorageCalls()
