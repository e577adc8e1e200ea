"""Tuning of RocksDB, named after Flink's `state.backend.rocksdb.*` keys. Memory is per Python worker process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from tidegate.core.durations import size_bytes
from tidegate.state.rocksdb.native_metrics import NAMES

PREFIX = "state.backend.rocksdb."
COMPRESSIONS = ("NO_COMPRESSION", "SNAPPY_COMPRESSION", "LZ4_COMPRESSION", "ZSTD_COMPRESSION")

TIMER_SERVICES = ("ROCKSDB", "HEAP")
METRICS = PREFIX + "metrics."
"""Followed by the name of a metric, these keys say whether it is read. All are off by default."""
_WITHOUT_EFFECT = METRICS + "column-family-as-variable"
"""There is one column family."""


def _option(key: str, default: Any) -> Any:
    return field(default=default, metadata={"key": PREFIX + key})


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBOptions:
    """User options. Defaults suit an epoch of some ten thousand updates on state of up to some ten million keys.

    Unlike in Flink, Bloom filters are on: every epoch adds a file at level 0, and a point read must not search them
    all. The block cache is shared by all stores of a process and stays warm from version to version.
    """

    block_cache_size: int = _option("block.cache-size", 128 << 20)
    block_blocksize: int = _option("block.blocksize", 4 << 10)
    use_bloom_filter: bool = _option("use-bloom-filter", True)
    writebuffer_size: int = _option("writebuffer.size", 64 << 20)
    compression: str = _option("compression.per.level", "LZ4_COMPRESSION")
    max_size_level_base: int = _option("compaction.level.max-size-level-base", 32 << 20)
    target_file_size_base: int = _option("compaction.level.target-file-size-base", 16 << 20)
    timer_service: str = _option("timer-service.factory", "ROCKSDB")
    metrics: frozenset[str] = frozenset()
    """Names of `native_metrics` that are read at the end of every epoch."""

    def __post_init__(self) -> None:
        for each in _keyed_fields():
            value = getattr(self, each.name)
            if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{each.metadata['key']} is {value}; it must be a size above 0.")
        if self.compression not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise ValueError(f"{PREFIX}compression.per.level is {self.compression!r}; choose one of {known}.")
        if self.timer_service not in TIMER_SERVICES:
            raise ValueError(f"{PREFIX}timer-service.factory is {self.timer_service!r}; choose rocksdb or heap.")

    @staticmethod
    def from_configuration(configuration: Mapping[str, Any]) -> RocksDBOptions:
        """Read options from Flink's keys. Keys with another prefix are ignored, unknown keys with this prefix are rejected."""
        known = {each.metadata["key"]: each for each in _keyed_fields()}
        values: dict[str, Any] = {}
        metrics: set[str] = set()
        for key, value in configuration.items():
            name = key.removeprefix(METRICS)
            if key in known:
                values[known[key].name] = _typed(key, known[key].default, value)
            elif key == _WITHOUT_EFFECT or (name != key and name in NAMES):
                metrics |= {name} & NAMES if _typed(key, False, value) else set()
            elif key.startswith(PREFIX):
                known_keys = ", ".join([*sorted(known), f"{METRICS}* with one of {', '.join(sorted(NAMES))}"])
                raise ValueError(f"{key} is not an option of the rocksdb backend. Known: {known_keys}.")
        return RocksDBOptions(**values, metrics=frozenset(metrics))


def _keyed_fields() -> list[Field[Any]]:
    """The fields that have a key each."""
    return [each for each in fields(RocksDBOptions) if each.metadata]


def _typed(key: str, default: object, value: Any) -> Any:
    if isinstance(default, bool):
        text = str(value).strip().lower()
        if text not in ("true", "false"):
            raise ValueError(f"{key} is {value!r}; write true or false.")
        return text == "true"
    if isinstance(default, int):
        return size_bytes(value)
    return str(value).strip().upper()
