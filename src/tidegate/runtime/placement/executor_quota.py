"""Anchoring by quota: a given number of partitions on each host.

Spark spreads the anchor's first tasks over free cores. If slots are not distributed evenly over hosts (a job that
started before all executors were available; 15 slots on 10 hosts), that spread may never be the required one. This
module therefore leaves only the required cores free: ballast, a job of tasks that only wait, occupies all cores; each
host then releases exactly as many as it needs partitions, and the anchor's tasks run on those. Tasks communicate
through files in the local root of their host.

    1. Ballast starts and fills every core. Its tasks take numbers, per host; the first to wake up closes the count.
    2. Those with a number below the host's quota end; the others hold their cores until the anchor is in place.
    3. Anchor tasks take numbers, too. Where a host has fewer cores than its quota, the first ones end immediately and make
       room; the last ones hold their cores, so that no excess task arrives.

Correctness does not depend on this: a different layout is detected, and the placement is retried.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tidegate.core.ids import HostId

_FOLDER = "anchoring"


@dataclass(frozen=True, slots=True)
class Quotas:
    """The number of partitions each host should get; a host that is not listed gets none."""

    wanted: Mapping[HostId, int]
    hold_ms: int
    """How long ballast waits before it releases cores, and how long the remaining tasks then hold theirs."""
    id: str


def quotas(wanted: Mapping[HostId, int], hold_ms: int) -> Quotas:
    return Quotas(dict(wanted), hold_ms, uuid.uuid4().hex)


@contextmanager
def ballast(spark: SparkSession, parallelism: int, local_dir: str | None, quotas: Quotas) -> Iterator[None]:
    """Within the block, only the required cores are free, or soon will be."""
    # More than there are cores, which nobody knows: a cluster may have more than the parallelism needs.
    tasks = max(2 * parallelism, 16)

    def run() -> None:
        with suppress(Exception):
            # An executor lost in the meantime spoils this layout; the next try creates another.
            spark.range(0, tasks, 1, tasks).mapInArrow(_hold(local_dir, quotas), "host string").toArrow()

    holding = threading.Thread(target=run, name="tidegate-ballast", daemon=True)
    holding.start()
    time.sleep(quotas.hold_ms / 1000)
    try:
        yield
    finally:
        holding.join(quotas.hold_ms * 10 / 1000)


def hold_core(root: Path, host: HostId, quotas: Quotas) -> None:
    """Do step 3, in a task of the anchor."""
    tickets = _CoreTickets(root, quotas.id)
    wanted = quotas.wanted.get(host, 0)
    if tickets.take("anchor") >= wanted - min(wanted, tickets.cores()):
        time.sleep(quotas.hold_ms / 1000)


def _hold(local_dir: str | None, quotas: Quotas) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def hold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from tidegate.state.disk.local_root import LocalRoot  # noqa: PLC0415 in the worker

        for _ in batches:
            pass
        root = LocalRoot.open(local_dir)
        tickets = _CoreTickets(root.path, quotas.id)
        # Ballast has more tasks than there are cores. Those that start after the count is closed have nothing to hold.
        if not tickets.closed():
            number = tickets.take("ballast")
            time.sleep(quotas.hold_ms / 1000)
            tickets.close()
            if number >= quotas.wanted.get(root.host, 0):
                time.sleep(quotas.hold_ms * 2 / 1000)
        yield pa.RecordBatch.from_arrays([pa.array([root.host], pa.string())], names=["host"])

    return hold


class _CoreTickets:
    """Numbers that the tasks of one host take, each once, as files."""

    def __init__(self, root: Path, id: str) -> None:
        self._directory = root / _FOLDER / id
        if not self._directory.exists():
            with suppress(OSError):
                # What earlier placements left. Several tasks of the host may be here at once.
                shutil.rmtree(root / _FOLDER)
            self._directory.mkdir(parents=True, exist_ok=True)

    def take(self, kind: str) -> int:
        for number in count():
            try:
                os.close(os.open(self._directory / f"{kind}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return number
        raise AssertionError("there is no end of numbers")

    def close(self) -> None:
        """Close the count of cores: as many as numbers were taken."""
        cores = len(list(self._directory.glob("ballast-*")))
        with suppress(FileExistsError):
            # A link is created with its content in one step, so nobody reads half a number; a file would need two.
            os.symlink(str(cores), self._directory / "closed")

    def closed(self) -> bool:
        return os.path.islink(self._directory / "closed")

    def cores(self) -> int:
        try:
            return int(os.readlink(self._directory / "closed"))
        except OSError:
            return 0
