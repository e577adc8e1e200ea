"""The metrics of a job's storage: requests and bytes of the driver and of tasks, and what they would cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidegate.core.storage_cost import LIST_PRICES, StorageCalls, StoragePrices, calls_cost, storage_cost_per_day
from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample

Transferred = Mapping[str, tuple[int, int]]
"""Requests and bytes by kind."""

_DAY_MS = 86_400_000
_SOONEST_MS = 60_000
"""Before that, the requests of the start would count for the whole day."""


def added(parts: Iterable[Transferred]) -> dict[str, tuple[int, int]]:
    total: dict[str, tuple[int, int]] = {}
    for each in parts:
        for kind, (requests, size_bytes) in each.items():
            before = total.get(kind, (0, 0))
            total[kind] = before[0] + requests, before[1] + size_bytes
    return total


def storage_samples(
    transferred: Transferred,
    *,
    is_priced: bool,
    stored_bytes: int,
    uptime_ms: int,
    prices: StoragePrices = LIST_PRICES,
) -> Iterator[Sample]:
    for kind, (requests, size_bytes) in transferred.items():
        yield Sample(catalog.STORAGE_REQUESTS, requests, {"kind": kind})
        # Requests to list and to delete carry no content.
        if kind in ("write", "read"):
            yield Sample(catalog.STORAGE_BYTES, size_bytes, {"kind": kind})
    if is_priced and uptime_ms >= _SOONEST_MS:
        yield Sample(catalog.STORAGE_COST, dollars_per_day(transferred, stored_bytes, uptime_ms, prices))


def dollars_per_day(
    transferred: Transferred, stored_bytes: int, uptime_ms: int, prices: StoragePrices = LIST_PRICES
) -> float:
    """The cost of a day with requests as often as in this run so far, and with these bytes stored."""
    requests = calls_cost(StorageCalls.of(transferred), prices)
    return requests * _DAY_MS / max(1, uptime_ms) + storage_cost_per_day(stored_bytes, prices)


def checkpoint_samples(requests: StorageCalls, cost_dollars: float | None) -> Iterator[Sample]:
    """What the last completed checkpoint needed."""
    by_kind = {"write": requests.writes, "list": requests.lists, "read": requests.reads, "delete": requests.deletes}
    for kind, count in by_kind.items():
        yield Sample(catalog.LAST_CHECKPOINT_REQUESTS, count, {"kind": kind})
    if cost_dollars is not None:
        yield Sample(catalog.LAST_CHECKPOINT_COST, cost_dollars)
