"""What a job measures, read from its options."""

from __future__ import annotations

from tidegate.config.declared import measuring as m
from tidegate.config.reading import Options
from tidegate.core.measuring import Measuring, StateTracking
from tidegate.core.storage_cost import StoragePrices


def read_measuring(options: Options) -> Measuring:
    latencies = StateTracking(options[m.LATENCY_INTERVAL], options[m.LATENCY_HISTORY], options[m.LATENCY_BY_STATE])
    sizes = StateTracking(options[m.SIZE_INTERVAL], options[m.SIZE_HISTORY], options[m.SIZE_BY_STATE])
    return Measuring(
        tasks=options[m.TASKS],
        hot_keys=options[m.HOT_KEYS],
        latencies=latencies if options[m.LATENCY_ENABLED] else None,
        sizes=sizes if options[m.SIZE_ENABLED] else None,
    )


def read_prices(options: Options) -> StoragePrices:
    return StoragePrices(
        per_million_writes=options[m.PRICE_OF_WRITES],
        per_million_reads=options[m.PRICE_OF_READS],
        per_million_deletes=options[m.PRICE_OF_DELETES],
        per_gb_month=options[m.PRICE_OF_STORAGE],
    )
