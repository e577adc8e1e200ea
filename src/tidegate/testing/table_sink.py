"""A table in the memory of the test process: the smallest sink that fulfils the contract.

Rows wait in the job's storage. A commit appends them and sets the marker under one lock, which is its transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.connectors.outcome import CommitOutcome, RetryLater, outcomes
from tidegate.connectors.sink import (
    Committable,
    Committer,
    CommitterContext,
    SinkWriter,
    WriterContext,
)
from tidegate.connectors.staged_rows import RowStager, read_batches
from tidegate.core.faults import reach
from tidegate.core.guarantee import Guarantee
from tidegate.core.ids import EpochId, Lineage, Slot, Uid

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(kw_only=True)
class MemoryTable:
    """Rows and markers; while it is `down`, or has a `refusal`, it accepts no transaction."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    markers: dict[tuple[Lineage, Uid, Slot], EpochId] = field(default_factory=dict)
    commits: int = 0
    """The number of transactions that added rows."""
    down: bool = False
    refusal: Exception | None = None
    missing: Exception | None = None
    """Raised before the first row of a job, as by a database without the table."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.down = True
        try:
            yield
        finally:
            self.down = False


_tables: dict[str, MemoryTable] = {}


@dataclass(frozen=True)
class TableSink:
    """Appends to `table_named(name)` of the process that commits."""

    guarantee = Guarantee.EXACTLY_ONCE

    name: str

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return RowStager(context)

    def create_committer(self, context: CommitterContext) -> Committer:
        return TableCommitter(table_named(self.name), context)

    def describe(self) -> str:
        return f"the table {self.name} in memory"


class TableCommitter:
    """1. Read what was staged. A crash here leaves nothing.
    2. In one transaction: if the marker is behind, append the rows and move it. A repeat finds it moved.
    """

    def __init__(self, table: MemoryTable, context: CommitterContext) -> None:
        self._table = table
        self._context = context

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        # Sorted, so that no row of an epoch is appended before those of an earlier one.
        found = [(request, self._rows(request)) for request in sorted(requests, key=lambda r: (r.epoch, r.slot))]
        reach("table.1-read")
        with self._table.lock:
            committed = [request for request, rows in found if self._append(request, rows)]
            self._table.commits += bool(committed)
        reach("table.2-committed")
        return outcomes(requests, committed)

    def check_target(self) -> None:
        if self._table.down:
            raise RetryLater("the table is down")
        if self._table.missing is not None:
            raise self._table.missing

    def _rows(self, request: Committable) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for batch in read_batches(request, self._context) for row in batch.to_pylist()]

    def _append(self, request: Committable, rows: list[tuple[Any, ...]]) -> bool:
        """Append the rows, unless the marker says that they are in the table. Return whether they were appended."""
        if self._table.down:
            raise RetryLater("the table is down")
        if self._table.refusal is not None:
            raise self._table.refusal
        channel = (request.lineage, request.sink, request.slot)
        marker = self._table.markers.get(channel)
        if marker is None or marker < request.epoch:
            self._table.rows += rows
            self._table.markers[channel] = request.epoch
            return True
        return False


def table_named(name: str) -> MemoryTable:
    """Return the one table of this name in this process, created on first use."""
    return _tables.setdefault(name, MemoryTable())
