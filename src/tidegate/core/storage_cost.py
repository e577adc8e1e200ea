"""What requests to an object store cost: counts by the classes in which stores charge them, prices, and their product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

NAMES_PER_REQUEST = 1_000
"""Object stores list and delete up to this many names with one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCalls:
    """Requests by kind, and the bytes they moved."""

    writes: int = 0
    """PUT, COPY and POST."""
    lists: int = 0
    reads: int = 0
    """GET and HEAD."""
    deletes: int = 0
    written_bytes: int = 0
    read_bytes: int = 0

    @staticmethod
    def of(transferred: Mapping[str, tuple[int, int]]) -> StorageCalls:
        """From requests and bytes by kind, as `Traffic` counts them."""
        none = (0, 0)
        writes, written_bytes = transferred.get("write", none)
        reads, read_bytes = transferred.get("read", none)
        return StorageCalls(
            writes=writes,
            lists=transferred.get("list", none)[0],
            reads=reads,
            deletes=transferred.get("delete", none)[0],
            written_bytes=written_bytes,
            read_bytes=read_bytes,
        )

    @staticmethod
    def sum(parts: Iterable[StorageCalls]) -> StorageCalls:
        calls = list(parts)
        return StorageCalls(
            writes=sum(each.writes for each in calls),
            lists=sum(each.lists for each in calls),
            reads=sum(each.reads for each in calls),
            deletes=sum(each.deletes for each in calls),
            written_bytes=sum(each.written_bytes for each in calls),
            read_bytes=sum(each.read_bytes for each in calls),
        )

    def __add__(self, other: StorageCalls) -> StorageCalls:
        return StorageCalls.sum((self, other))

    def __bool__(self) -> bool:
        """Whether there is any request."""
        return any(astuple(self))

    @property
    def total(self) -> int:
        return self.writes + self.lists + self.reads + self.deletes


NO_CALLS = StorageCalls()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoragePrices:
    """In dollars. The defaults are list prices of S3 Standard in us-east-1; other stores and regions differ, by less than the
    traffic of jobs does."""

    per_million_writes: float = 5.0
    """Listings are charged as writes."""
    per_million_reads: float = 0.4
    per_million_deletes: float = 0.0
    per_gb_month: float = 0.023
    """For 2**30 bytes stored during 30 days."""


LIST_PRICES = StoragePrices()


def calls_cost(requests: StorageCalls, prices: StoragePrices) -> float:
    """Return the cost of requests in dollars. Stored bytes, and bytes that leave the store's region, are not included."""
    return (
        (requests.writes + requests.lists) * prices.per_million_writes
        + requests.reads * prices.per_million_reads
        + requests.deletes * prices.per_million_deletes
    ) / 1e6


def storage_cost_per_day(stored_bytes: float, prices: StoragePrices) -> float:
    """Return what it costs to keep bytes for a day, in dollars."""
    return stored_bytes / 2**30 / 30 * prices.per_gb_month
