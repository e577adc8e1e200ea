"""A sink for any target: rows wait in the job's storage, and a user function receives them
once their checkpoint is complete.

1. In the task: rows are staged in the job's storage, or in the committable if they are few. A discarded attempt leaves
   objects that clean-up removes.
2. After the checkpoint is complete, in a task or in the driver: `function(rows, token)`, in epoch order. If it raises, or
   the process dies before its return is recorded, it is called again with the same rows and an equal token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.connectors.sink import (
    Committable,
    Committer,
    CommitterContext,
    PublishesIn,
    SinkWriter,
    WriterContext,
    publishes_in,
)
from tidegate.connectors.staged_rows import RowStager, read_batches
from tidegate.core.errors import GraphError
from tidegate.core.faults import reach
from tidegate.core.guarantee import Guarantee
from tidegate.core.ids import EpochId, Lineage, Slot, Uid


@dataclass(frozen=True, slots=True, order=True)
class CommitToken:
    """Uniquely and permanently names one call of the function. Within (lineage, sink, slot) a
    later one has a greater epoch.

    A target that stores the greatest epoch of each (lineage, sink, slot), in the transaction that takes the rows, can drop
    whatever is not greater. A target that stores only text keeps `str(token)`.
    """

    lineage: Lineage
    sink: Uid
    slot: Slot
    epoch: EpochId

    def __str__(self) -> str:
        return f"{self.lineage}/{self.sink}/{self.slot}/{self.epoch.name}"


@dataclass(frozen=True)
class WriteAheadSink:
    """Calls `function(rows, token)` once the checkpoint that `rows` belong to is complete.

    `rows` is a list of named tuples, or with `form="arrow"` a `pyarrow.Table`, which `spark.createDataFrame` and most
    clients accept. Set `idempotent=True` if the function drops rows whose token it has already accepted: then the job is
    exactly-once; otherwise a failure may repeat rows.

    The function is pickled and called in tasks, for several slots at once. With `publishes_in="driver"` it
    stays in the driver and is called there, one slot after the other: for functions that hold objects that
    cannot be pickled, or that need Spark.
    """

    function: Callable[[Any, CommitToken], object]
    form: str = "rows"
    idempotent: bool = False
    publishes_in: PublishesIn = "task"

    def __post_init__(self) -> None:
        if self.form not in ("rows", "arrow"):
            raise GraphError(f"A write-ahead sink passes 'rows' or 'arrow', not {self.form!r}.")
        # Raises for a place that does not exist, where the sink is declared.
        publishes_in(self)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.EXACTLY_ONCE if self.idempotent else Guarantee.AT_LEAST_ONCE

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return RowStager(context)

    def create_committer(self, context: CommitterContext) -> Committer:
        return WriteAheadCommitter(self, context)

    def describe(self) -> str:
        return f"rows passed to {getattr(self.function, '__name__', 'a function')}, with a token"

    def __reduce__(self) -> Any:
        # A function that stays in the driver may hold objects that cannot be pickled.
        function = self.function if self.publishes_in == "task" else None
        return WriteAheadSink, (function, self.form, self.idempotent, self.publishes_in)


class WriteAheadCommitter:
    def __init__(self, sink: WriteAheadSink, context: CommitterContext) -> None:
        self._sink = sink
        self._context = context
        # A function that does not know its tokens must not be given an epoch twice because a later one failed.
        self.keeps_markers = sink.idempotent

    def commit(self, requests: Sequence[Committable]) -> None:
        for request in sorted(requests, key=lambda r: (r.epoch, r.slot)):
            token = CommitToken(request.lineage, request.sink, request.slot, request.epoch)
            rows = self._rows(request)
            reach("write-ahead.1-read", token=token)
            self._sink.function(rows, token)
            reach("write-ahead.2-taken", token=token)

    def _rows(self, request: Committable) -> Any:
        import pyarrow as pa

        from tidegate.schema.columns import rows_of, struct_class

        schema = self._context.schema
        batches = list(read_batches(request, self._context))
        if self._sink.form == "arrow":
            return pa.Table.from_batches(batches, schema.to_arrow())
        row_class = struct_class(schema.fields)
        return [row for batch in batches for row in rows_of(batch.columns, schema, row_class)]
