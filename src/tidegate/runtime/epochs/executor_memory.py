"""What Spark's settings leave to the state of one task: the memory of an executor, divided among the tasks that it runs at once.

Every task runs in a Python worker, outside the heap of the JVM. Spark's settings may say how much memory the workers of an
executor have: `spark.executor.pyspark.memory` limits the address space of each, `spark.executor.memoryOverhead` what they have
together with everything else outside the heap.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.config import OptionError
from tidegate.core.durations import show_bytes, size_bytes
from tidegate.state.rocksdb.budget import DEFAULT_SLOT_BYTES, WRITE_CACHE_SHARE, MemoryBudget
from tidegate.state.rocksdb.options import PREFIX, RocksDBOptions

log = logging.getLogger("tidegate")

CORES, TASK_CPUS = "spark.executor.cores", "spark.task.cpus"
PYSPARK_MEMORY, OVERHEAD = "spark.executor.pyspark.memory", "spark.executor.memoryOverhead"
PER_SLOT, PER_EXECUTOR = PREFIX + "memory.fixed-per-slot", PREFIX + "memory.fixed-per-tm"
MANAGED = PREFIX + "memory.managed"
MANAGED_FRACTION = 0.4
"""The share of what Spark leaves to Python that state gets, if no option fixes its size. Flink's `managed.fraction`."""
WORKER_BYTES = 160 << 20
"""What a Python worker with pyarrow needs besides state. Measured: 137 MB."""
WORKER_ADDRESSES = 640 << 20
"""The address space that it needs besides state. Measured: 606 MB."""
LEAST_MANAGED = 16 << 20
"""The smallest budget that is chosen without being asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorMemory:
    """What Spark's settings say about one executor. None: they do not say it."""

    slots: int | None
    """Tasks that it runs at once."""
    worker_limit: int | None = None
    """The most address space of one Python worker."""
    overhead: int | None = None
    """Memory of all Python workers, and of the JVM outside its heap."""

    @staticmethod
    def read(get: Callable[[str, str | None], str | None]) -> ExecutorMemory:
        """`get(key, default)` reads one of Spark's settings."""
        cores, local = _number(get(CORES, None)), _local_cores(get("spark.master", None) or "")
        at_once = cores if local is None else local
        cpus = _number(get(TASK_CPUS, None)) or 1
        pyspark, overhead = _spark_size(get(PYSPARK_MEMORY, None)), _spark_size(get(OVERHEAD, None))
        return ExecutorMemory(
            slots=None if at_once is None else max(1, at_once // cpus),
            # Spark divides by the cores of an executor, which are one unless they are set.
            worker_limit=None if not pyspark else pyspark // (cores or 1),
            # In local mode the tasks run in the driver's machine, and Spark does not apply the setting.
            overhead=overhead if overhead and local is None else None,
        )

    def with_budget(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of the `rocksdb` backend that give every slot its share. Raises `OptionError`, with the numbers, if the
        share is too small to work with, or larger than what Spark leaves to a worker."""
        try:
            chosen = RocksDBOptions.from_configuration(options)
            if chosen.budget is None:
                return dict(options)
            name, slot_bytes = self._share(chosen)
            MemoryBudget(slot_bytes=slot_bytes, write_buffer_ratio=chosen.memory_write_buffer_ratio, name=name)
            if name != MANAGED:
                self._check(name, slot_bytes)
        except ValueError as error:
            raise OptionError((str(error),)) from None
        return {key: value for key, value in options.items() if key != PER_EXECUTOR} | {PER_SLOT: slot_bytes}

    def _share(self, options: RocksDBOptions) -> tuple[str, int]:
        """Return the memory of a slot, and how it is called in messages."""
        if options.memory_fixed_per_slot is not None:
            return PER_SLOT, options.memory_fixed_per_slot
        if options.memory_fixed_per_tm is None:
            return MANAGED, self._managed()
        if self.slots is None:
            raise ValueError(
                f"{PER_EXECUTOR} is divided among the tasks that an executor runs at once, and Spark's settings do not say how "
                f"many that are. Set {CORES}, or give the share of one task with {PER_SLOT}."
            )
        size = options.memory_fixed_per_tm
        return f"{PER_EXECUTOR}, {show_bytes(size)} for {self._slots_shown()},", size // self.slots

    def _managed(self) -> int:
        """A fraction of what a worker has, but no more than what it has left, and no less than what state needs: nobody asked for
        a size, so a job that has run with these settings is not refused."""
        room: list[tuple[int, int]] = []
        if self.worker_limit is not None:
            room.append((self.worker_limit, WORKER_ADDRESSES))
        if self.overhead is not None:
            room.append((self.overhead // (self.slots or 1), WORKER_BYTES))

        if not room:
            return DEFAULT_SLOT_BYTES

        # The tightest limit counts, each less what the worker needs for itself.
        found = min(min(int(MANAGED_FRACTION * limit), limit - own) for limit, own in room)
        if found < LEAST_MANAGED:
            limit, own = min(room, key=lambda each: min(MANAGED_FRACTION * each[0], each[0] - each[1]))
            setting = PYSPARK_MEMORY if limit == self.worker_limit else OVERHEAD
            log.warning(
                f"Spark leaves {show_bytes(limit)} to a Python worker ({setting}; {self._slots_shown()}). The worker needs "
                f"{show_bytes(own)}, and its state gets the rest, but at most {MANAGED_FRACTION:g} of the whole: "
                f"{show_bytes(max(0, found))}. State gets {show_bytes(LEAST_MANAGED)}, so the executor may be killed. Raise "
                f"{setting}, or fix the memory of state with {PER_SLOT}."
            )

        return max(found, LEAST_MANAGED)

    def _check(self, name: str, slot_bytes: int) -> None:
        """Raise unless a worker has room for its own needs and for the state of one slot."""
        if self.worker_limit is not None and WORKER_ADDRESSES + slot_bytes > self.worker_limit:
            raise ValueError(
                f"{name} gives the state of a task {show_bytes(slot_bytes)}. Its Python worker needs "
                f"{show_bytes(WORKER_ADDRESSES)} of address space besides, which makes "
                f"{show_bytes(WORKER_ADDRESSES + slot_bytes)}, and {PYSPARK_MEMORY} / {CORES} leaves it "
                f"{show_bytes(self.worker_limit)}. Lower the first or raise the last."
            )
        slots = self.slots or 1
        if self.overhead is not None and slots * (WORKER_BYTES + slot_bytes) > self.overhead:
            raise ValueError(
                f"{name} gives the state of a task {show_bytes(slot_bytes)}. Its Python worker needs "
                f"{show_bytes(WORKER_BYTES)} besides. For {self._slots_shown()} that makes {slots} · "
                f"({show_bytes(slot_bytes)} + {show_bytes(WORKER_BYTES)}) = "
                f"{show_bytes(slots * (WORKER_BYTES + slot_bytes))}, and {OVERHEAD} leaves {show_bytes(self.overhead)} for all "
                "of them. Lower the first or raise the last."
            )

    def _slots_shown(self) -> str:
        return f"an executor with {self.slots or 1} tasks at once ({CORES} / {TASK_CPUS})"


def describe_budget(options: Mapping[str, Any]) -> str:
    """The budget of a slot in words, for the log."""
    budget = RocksDBOptions.from_configuration(options).budget
    if budget is None:
        return f"memory of RocksDB is not managed ({MANAGED} is false)"
    return (
        f"memory of a slot: {show_bytes(budget.slot_bytes)} = {show_bytes(budget.write_cache_bytes)} write cache "
        f"({WRITE_CACHE_SHARE:.0%}) + {show_bytes(budget.rocksdb_bytes)} RocksDB (block cache "
        f"{show_bytes(budget.block_cache_bytes)}, of which write buffers {show_bytes(budget.write_buffer_bytes)})"
    )


def _local_cores(master: str) -> int | None:
    """The cores of a driver that runs tasks itself. None if it does not."""
    if not master.startswith("local"):
        return None
    number = master.removeprefix("local").strip("[]").split(",")[0]
    return 1 if not number else int(number) if number.isdigit() else os.cpu_count() or 1


def _number(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None


def _spark_size(text: str | None) -> int | None:
    """Bytes of a size as Spark writes it. A bare number means megabytes, in both settings."""
    if not text:
        return None
    try:
        return int(text) << 20 if text.strip().isdigit() else size_bytes(text)
    except ValueError:
        return None
