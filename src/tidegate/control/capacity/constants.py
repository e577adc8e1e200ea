"""The constants of the capacity model: each with a value, a unit and where it comes from.

*Measured* ones were measured on the project's machines: two shared cores, a local disk, small jobs. Everything larger is an
extrapolation. Replace those that matter for a decision by measurements of your own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegate.core.nearest import nearest
from tidegate.core.storage_cost import LIST_PRICES, StoragePrices

ASSUMED = "assumed"
MB = 1e6
GB = 1e9


class BadConstant(ValueError):
    """A constant of the capacity model does not exist, or cannot have this value."""


@dataclass(frozen=True, slots=True)
class Constant:
    name: str
    value: float
    unit: str
    source: str
    """`assumed`, `default`, `fixed`, or the benchmark that measured it."""

    @property
    def is_measured(self) -> bool:
        return not self.source.startswith((ASSUMED, "default", "fixed", "given"))


_PRICES = f"{ASSUMED}: list prices of S3 Standard, us-east-1"

DEFAULTS = (
    Constant("row_function_cpu", 6.2, "µs per row", "keyed-count: 305,000 rows/s on 2 cores, less the cost of keys"),
    Constant("batch_function_cpu", 4.0, "µs per row", "keyed-count: 459,000 rows/s on 2 cores, less the cost of keys"),
    Constant("aggregate_cpu", 3.5, "µs per row", "keyed-count: 520,000 rows/s on 2 cores, less the cost of keys"),
    Constant("further_level_cpu", 3.8, "µs per row and level", "keyed-count: 1.5 s per million rows, exchange 0.4 s, 2 cores"),
    Constant("key_cpu", 8.0, "µs per key and epoch", "keyed-count: encode, read, decode, write, seal"),
    Constant("large_state_factor", 2.23, "times key_cpu", "state-growth: 10 M keys in a task, relative to 0.1 M"),
    Constant("task_cpu", 0.14, "s per task and epoch", "wide: 600 tasks on 2 cores"),
    Constant("shortest_epoch", 0.8, "s", "latency: 1,000 rows/s"),
    Constant("publication", 0.18, "s", "latency: from the log entry to a reader of Kafka"),
    Constant("incremental_upload", 5.3, "bytes per changed byte", "checkpoint: 20 intervals, compactions included"),
    Constant("changelog_upload", 1.04, "bytes per changed byte", "checkpoint --only changelog: 200 intervals"),
    Constant("whole_version_upload", 0.72, "of the state", "checkpoint --only changelog: 43 of 60 MB, every 50 intervals"),
    Constant("upload_speed", 203, "MB/s per core", "checkpoint: 406 MB/s on 2 cores, local disk"),
    Constant("restore_speed", 415, "MB/s per core", "checkpoint: 831 MB/s on 2 cores, local disk"),
    Constant("change_speed", 22, "MB/s per task", "checkpoint --only changelog: 30 MB of changes in 1.36 s"),
    Constant("restart", 25.2, "s", "start: from SIGKILL to the first row, local[2]"),
    Constant("metadata_size", 360, "bytes per task", "coordinator: 3.5 MB at 10,000 tasks"),
    Constant("driver_cpu", 81, "µs per task and checkpoint", "coordinator: 0.81 s at 10,000 tasks, 10 of 1,000 files changed"),
    Constant("driver_memory", 251, "MB per 10,000 tasks", "coordinator: peak of the process, 10 million files"),
    Constant("first_checkpoint_memory", 230, "bytes per object", "coordinator: 2.3 GB for ten million new names"),
    Constant("driver_requests", 5, "per checkpoint", "coordinator: 115 with 110 deletes of 1,000 names"),
    Constant("inline_output", 8, "KiB per task and epoch", "default: execution.output.inline-threshold"),
    Constant("inline_output_total", 8, "MiB", "default: execution.output.max-inline-size"),
    Constant("inline_growth", 1.34, "times the rows", "fixed: rows in a committable are text in base 64"),
    Constant("staged_overhead", 800, "bytes per task, sink and epoch", "release: the head of an Arrow stream of four columns"),
    Constant("utilization", 0.6, "of the cores", f"{ASSUMED}: the rest works off a backlog"),
    Constant("state_per_slot", 20, "GB", f"{ASSUMED}: at most so much; 1 GB was measured"),
    Constant("worker_memory", 200, "MB per slot", f"{ASSUMED}: a Python worker with pyarrow, without state"),
    Constant("rocksdb_memory", 256, "MB per slot", "default budget of a slot: block cache, write buffers, write cache"),
    Constant("changed_key_memory", 500, "bytes per key of an epoch", f"{ASSUMED}: besides the value, until the epoch is sealed"),
    Constant("executor_heap", 4, "GB", f"{ASSUMED}: the JVM of an executor"),
    Constant("driver_heap", 4, "GB", f"{ASSUMED}: the JVM of the driver"),
    Constant("disk_factor", 2, "times the state", f"{ASSUMED}: versions of two checkpoints, and compaction"),
    Constant("stored_factor", 1.1, "times the state", f"{ASSUMED}: files that compaction has replaced"),
    Constant("part_size", 8.388608, "MB per write", "fixed: files are stored in parts of 8 MiB"),
    Constant("file_size", 16.777216, "MB per file", "default: state.backend.rocksdb.compaction.level.target-file-size-base"),
    Constant("request_latency", 0.05, "s per write of a slot", f"{ASSUMED}: an object store in the same region"),
    Constant("loss_detection", 10, "s", f"{ASSUMED}: until Spark knows that an executor is lost, and has another"),
    Constant("key_group_headroom", 4, "times the parallelism", f"{ASSUMED}: room to grow"),
    Constant("price_million_writes", LIST_PRICES.per_million_writes, "$", _PRICES),
    Constant("price_million_reads", LIST_PRICES.per_million_reads, "$", _PRICES),
    Constant("price_million_deletes", LIST_PRICES.per_million_deletes, "$", _PRICES),
    Constant("price_gb_month", LIST_PRICES.per_gb_month, "$ per 2^30 bytes", _PRICES),
)  # fmt: skip


class Constants:
    """The constants by name, as attributes."""

    def __init__(self, measured: Mapping[str, float] | None = None) -> None:
        """`measured` values replace defaults. Raises `BadConstant`."""
        constants = {each.name: each for each in DEFAULTS}
        for name, value in (measured or {}).items():
            if name not in constants:
                close = nearest(name, constants)
                hint = f" Did you mean {close}?" if close else " `tidegate plan --show-constants` lists them."
                raise BadConstant(f"The capacity model has no constant {name!r}.{hint}")
            # Prices may be 0, where requests cost nothing. Of the others, many are divisors.
            if not 0 <= value < float("inf") or (value == 0 and not name.startswith("price_")):
                raise BadConstant(f"The constant {name} must be a number above 0, not {value!r}.")
            constants[name] = Constant(name, value, constants[name].unit, "given")
        self._constants = constants

    def __getattr__(self, name: str) -> float:
        try:
            # Not `self._constants`: where that is absent, as in an object that is being unpickled, the lookup would recurse.
            constants: dict[str, Constant] = self.__dict__["_constants"]
            return constants[name].value
        except KeyError:
            raise AttributeError(name) from None

    @property
    def all(self) -> tuple[Constant, ...]:
        return tuple(self._constants.values())

    @property
    def prices(self) -> StoragePrices:
        return StoragePrices(
            per_million_writes=self.price_million_writes,
            per_million_reads=self.price_million_reads,
            per_million_deletes=self.price_million_deletes,
            per_gb_month=self.price_gb_month,
        )


def read_constants(texts: Iterable[str], toml: str | None = None) -> dict[str, float]:
    """Read constants from a TOML document and from `name=value`, which wins. Raises `BadConstant`."""
    try:
        values = {} if toml is None else tomllib.loads(toml)
        values |= dict(_pair(text) for text in texts)
        return {name: float(value) for name, value in values.items()}
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as error:
        raise BadConstant(f"Constants are given as name=number: {error}.") from error


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} has no '='")
    return name.strip(), value.strip()
