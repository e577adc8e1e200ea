"""Sinks that bring rows to the driver: for tests, notebooks and first steps. The rows of an epoch must fit into its memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.connectors.sink import Committable, Committer, CommitterContext, SinkWriter, WriterContext, decoded
from tidegate.core.guarantee import Guarantee
from tidegate.core.ids import EpochId, Lineage, Slot
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class _IpcWriter:
    """Stages batches in the acknowledgement itself, as one Arrow stream."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def prepare_commit(self) -> bytes | None:
        import pyarrow as pa

        if not self._batches:
            return None
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self._batches[0].schema) as stream:
            for batch in self._batches:
                stream.write_batch(batch)
        staged: bytes = out.getvalue().to_pybytes()
        return staged

    def abort(self) -> None:
        self._batches.clear()


def _batches(payload: bytes) -> list[pa.RecordBatch]:
    import pyarrow as pa

    return list(pa.ipc.open_stream(payload))


class _RowCommitter:
    def __init__(self, schema: Schema, deliver: Callable[[list[Any], EpochId], None]) -> None:
        self._schema = schema
        self._deliver = deliver
        # In memory, so it holds within one run only: the list or function has nowhere to keep a marker.
        self._seen: dict[tuple[Lineage, Slot], EpochId] = {}

    def commit(self, requests: Sequence[Committable]) -> None:
        from tidegate.schema.columns import rows_of, struct_class

        row = struct_class(self._schema.fields)
        by_epoch: dict[EpochId, list[Committable]] = {}
        for request in sorted(requests, key=lambda r: (r.epoch, r.slot)):
            seen = self._seen.get((request.lineage, request.slot))
            if seen is None or request.epoch > seen:
                by_epoch.setdefault(request.epoch, []).append(request)
        for epoch, new in by_epoch.items():
            batches = [batch for request in new for batch in decoded(request, _batches)]
            self._deliver([found for batch in batches for found in rows_of(batch.columns, self._schema, row)], epoch)
            # Not earlier: if the function raises, it receives the rows again.
            self._seen |= {(request.lineage, request.slot): epoch for request in new}


class _DiscardingWriter:
    def write(self, batch: pa.RecordBatch) -> None: ...

    def write_rows(self, rows: Sequence[Any]) -> None: ...

    def prepare_commit(self) -> bytes | None:
        return None

    def abort(self) -> None: ...


@dataclass(frozen=True)
class DiscardSink:
    """Drops every row, like Flink's DiscardingSink: to measure a job, or to run one only for its state."""

    guarantee = Guarantee.EXACTLY_ONCE

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer that `context` describes."""
        return _DiscardingWriter()

    def create_committer(self, context: CommitterContext) -> Committer:
        """Create the committer that `context` describes."""
        return _RowCommitter(context.schema, lambda rows, epoch: None)

    def describe(self) -> str:
        return "dropped"


@dataclass(frozen=True)
class CollectSink:
    """Keeps every row in `rows`, a list in the driver's memory.

    Examples:
        >>> out = tg.CollectSink()
        >>> orders.sink("out", out)
        >>> out.rows
        []
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    rows: list[Any] = field(default_factory=list, compare=False)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer that `context` describes."""
        return _IpcWriter()

    def create_committer(self, context: CommitterContext) -> Committer:
        """Create the committer that `context` describes."""
        return _RowCommitter(context.schema, lambda rows, epoch: self.rows.extend(rows))

    def describe(self) -> str:
        return "collected in the driver"

    def __reduce__(self) -> Any:
        # A task has no use for rows that the driver has collected.
        return CollectSink, ()


@dataclass(frozen=True)
class CallbackSink:
    """Calls `function(rows, epoch)` in the driver with the rows of one epoch, of all slots; with checkpoints enabled, once
    the checkpoint is complete. A restart may call it again with the same rows: it has nowhere to store a marker.
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    function: Callable[[list[Any], EpochId], None]

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer that `context` describes."""
        return _IpcWriter()

    def create_committer(self, context: CommitterContext) -> Committer:
        """Create the committer that `context` describes."""
        return _RowCommitter(context.schema, self.function)

    def describe(self) -> str:
        return f"calls {getattr(self.function, '__name__', 'a function')} in the driver"

    def __reduce__(self) -> Any:
        # The function stays in the driver: it may hold objects that cannot be pickled.
        return CallbackSink, (None,)


@dataclass(frozen=True)
class PrintSink:
    """Prints rows in the driver, with their column names.

    Args:
        limit: The most rows of an epoch that are printed.
        prefix: Printed before each row.
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    limit: int = 20
    prefix: str = ""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """Create the writer that `context` describes."""
        return _IpcWriter()

    def create_committer(self, context: CommitterContext) -> Committer:
        """Create the committer that `context` describes."""
        return _RowCommitter(context.schema, partial(self._print, context.schema.names))

    def describe(self) -> str:
        return "printed by the driver"

    def _print(self, names: Sequence[str], rows: list[Any], epoch: EpochId) -> None:
        for row in rows[: self.limit]:
            values = " ".join(f"{name}={value!r}" for name, value in zip(names, row))
            print(f"{self.prefix}{values}", flush=True)
        if len(rows) > self.limit:
            print(f"{self.prefix}… {len(rows) - self.limit} more rows in epoch {epoch}", flush=True)
