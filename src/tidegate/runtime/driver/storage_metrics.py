"""The metrics of a job's storage: requests and bytes of the driver and of tasks, and what they would cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample

Transferred = Mapping[str, tuple[int, int]]
"""Requests and bytes by kind."""

_DOLLARS_PER_REQUEST = {"write": 5e-6, "list": 5e-6, "read": 4e-7, "delete": 0.0}
_DOLLARS_PER_BYTE_AND_DAY = 0.023 / 2**30 / 30
"""List prices of S3 Standard in us-east-1. Other stores and regions differ, by less than the traffic of jobs does."""
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
    transferred: Transferred, *, is_priced: bool, stored_bytes: int, uptime_ms: int
) -> Iterator[Sample]:
    for kind, (requests, size_bytes) in transferred.items():
        yield Sample(catalog.STORAGE_REQUESTS, requests, {"kind": kind})
        if kind in ("write", "read"):
            yield Sample(catalog.STORAGE_BYTES, size_bytes, {"kind": kind})
    if is_priced and uptime_ms >= _SOONEST_MS:
        yield Sample(catalog.STORAGE_COST, dollars_per_day(transferred, stored_bytes, uptime_ms))


def dollars_per_day(transferred: Transferred, stored_bytes: int, uptime_ms: int) -> float:
    """The cost of a day with requests as often as in this run so far, and with these bytes stored."""
    requests = sum(_DOLLARS_PER_REQUEST[kind] * count for kind, (count, _) in transferred.items())
    return requests * _DAY_MS / max(1, uptime_ms) + stored_bytes * _DOLLARS_PER_BYTE_AND_DAY
