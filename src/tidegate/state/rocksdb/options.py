"""Tuning of RocksDB, named after Flink's `state.backend.rocksdb.*` keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from tidegate.core.durations import show_bytes, size_bytes
from tidegate.state.rocksdb.budget import DEFAULT_SLOT_BYTES, MemoryBudget
from tidegate.state.rocksdb.native_metrics import NAMES

PREFIX = "state.backend.rocksdb."
COMPRESSIONS = ("NO_COMPRESSION", "SNAPPY_COMPRESSION", "LZ4_COMPRESSION", "ZSTD_COMPRESSION")

TIMER_SERVICES = ("ROCKSDB", "HEAP")
METRICS = PREFIX + "metrics."
"""Followed by the name of a metric, these keys say whether it is read. All are off by default."""
HIGH_PRIO = PREFIX + "memory.high-prio-pool-ratio"
_ONE_FAMILY = METRICS + "column-family-as-variable"
_WITHOUT_EFFECT = {
    _ONE_FAMILY: "A database has one column family.",
    HIGH_PRIO: "RocksDB keeps half of its cache for indexes and filters, and the binding offers no other ratio.",
}
_OVERRIDDEN = ("block.cache-size", "writebuffer.size")
"""Sizes that follow from the budget, unless there is none."""
_TO_OVERRIDE = f"To size it yourself, set {PREFIX}memory.managed to false."


def _option(key: str, default: Any, type: Any = None) -> Any:
    return field(default=default, metadata={"key": PREFIX + key, "type": type or _type_of(default)})


def _type_of(default: object) -> Any:
    return {bool: _boolean, int: size_bytes, float: float}.get(type(default), _word)


def _boolean(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


def _word(value: Any) -> str:
    return str(value).strip().upper()


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBOptions:
    """User options. Defaults suit an epoch of some ten thousand updates on state of up to some ten million keys.

    Unlike in Flink, Bloom filters are on: every epoch adds a file at level 0, and a point read must not search them
    all. The block cache is shared by all stores of a process and stays warm from version to version.

    The sizes of block cache and write buffers follow from the budget of a slot. They are what the options say only if memory is
    not managed.
    """

    memory_managed: bool = _option("memory.managed", True)
    memory_fixed_per_slot: int | None = _option("memory.fixed-per-slot", None, size_bytes)
    memory_fixed_per_tm: int | None = _option("memory.fixed-per-tm", None, size_bytes)
    memory_write_buffer_ratio: float = _option("memory.write-buffer-ratio", 0.5)
    memory_partitioned_index_filters: bool = _option("memory.partitioned-index-filters", False)
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
            # A bool is an int in Python.
            if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{each.metadata['key']} is {value}; it must be a size above 0.")
        if self.compression not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise ValueError(f"{PREFIX}compression.per.level is {self.compression!r}; choose one of {known}.")
        if self.timer_service not in TIMER_SERVICES:
            raise ValueError(f"{PREFIX}timer-service.factory is {self.timer_service!r}; choose rocksdb or heap.")
        _ = self.budget  # Raises if it cannot work.

    @property
    def budget(self) -> MemoryBudget | None:
        """The budget of one slot. None: memory is not managed, and block cache and write buffers have sizes of their own.

        A budget of an executor has been divided by the driver before tasks see the options; elsewhere there is one slot.
        """
        fixed = self.memory_fixed_per_slot or self.memory_fixed_per_tm
        if fixed is None and not self.memory_managed:
            return None
        size = DEFAULT_SLOT_BYTES if fixed is None else fixed
        of_executor = self.memory_fixed_per_slot is None and self.memory_fixed_per_tm is not None
        name = PREFIX + ("memory.fixed-per-tm" if of_executor else "memory.fixed-per-slot")
        return MemoryBudget(slot_bytes=size, write_buffer_ratio=self.memory_write_buffer_ratio, name=name)

    @staticmethod
    def from_configuration(configuration: Mapping[str, Any]) -> RocksDBOptions:
        """Read options from Flink's keys. Keys with another prefix are ignored, unknown keys with this prefix are rejected."""
        known = {each.metadata["key"]: each for each in _keyed_fields()}
        values: dict[str, Any] = {}
        metrics: set[str] = set()
        for key, value in configuration.items():
            name = key.removeprefix(METRICS)
            if key in known:
                values[known[key].name] = _typed(key, known[key].metadata["type"], value)
            elif key == HIGH_PRIO:
                if not 0 <= _typed(key, float, value) <= 1:
                    raise ValueError(f"{key} is {value!r}; it must be between 0 and 1.")
            elif key == _ONE_FAMILY or (name != key and name in NAMES):
                metrics |= {name} & NAMES if _typed(key, _boolean, value) else set()
            elif key.startswith(PREFIX):
                known_keys = ", ".join([*sorted(known), f"{METRICS}* with one of {', '.join(sorted(NAMES))}"])
                raise ValueError(f"{key} is not an option of the rocksdb backend. Known: {known_keys}.")
        return RocksDBOptions(**values, metrics=frozenset(metrics))


def option_notes(configuration: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the keys of a valid configuration that do not do what they seem to, each with the reason."""
    notes = [(key, f"This has no effect. {why}") for key, why in _WITHOUT_EFFECT.items() if key in configuration]
    options = RocksDBOptions.from_configuration(configuration)
    budget = options.budget
    if budget is not None:
        sizes = dict(zip(_OVERRIDDEN, (budget.block_cache_bytes, budget.memtable_bytes)))
        notes += [
            (
                PREFIX + key,
                f"Overridden by the memory budget of a slot, which makes it {show_bytes(size)}. {_TO_OVERRIDE}",
            )
            for key, size in sizes.items()
            if PREFIX + key in configuration
        ]
    if options.memory_fixed_per_slot is not None and options.memory_fixed_per_tm is not None:
        notes.append((PREFIX + "memory.fixed-per-tm", f"Unused: {PREFIX}memory.fixed-per-slot is set."))
    return notes


def _keyed_fields() -> list[Field[Any]]:
    """The fields that have a key each."""
    return [each for each in fields(RocksDBOptions) if each.metadata]


def _typed(key: str, type: Callable[[Any], Any], value: Any) -> Any:
    try:
        return type(value)
    except ValueError as error:
        raise ValueError(f"{key} is {value!r}: {error}.") from None
