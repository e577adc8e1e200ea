"""What the operators of a task have in common: how rows reach them, and how they pass rows on. Independent of Spark.

Everything here is created for each attempt of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.runtime.exchange.assignment import CheckpointNotice

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.runtime.exchange.edge_rows import EdgeRows

Emit = Callable[[Any], None]
"""Takes rows, or one batch of columns, as the producer emits them."""


class Operator(Protocol):
    """A running node. `accept` takes rows as their producer emitted them, `accept_batch` those of a producer that emits
    batches; `accept_edge` takes rows as they arrived over a shuffle.
    """

    name: str
    rows_in: int
    rows_out: int

    def position(self) -> object:
        """Return how far the operator is, within a batch, too: a value that differs when a row has moved. Called by another
        thread."""
        ...

    def open(self, notices: Sequence[CheckpointNotice] = ()) -> None: ...
    def accept(self, rows: Sequence[Any]) -> None: ...
    def accept_batch(self, batch: pa.RecordBatch) -> None: ...
    def accept_edge(self, rows: EdgeRows) -> None: ...
    def snapshot(self) -> None: ...
    def close(self) -> None: ...


def emit_to(consumers: Sequence[Emit]) -> Emit:
    """Return one call that reaches all consumers of a stream."""
    if len(consumers) == 1:
        return consumers[0]

    def emit(rows: Any) -> None:
        for consumer in consumers:
            consumer(rows)

    return emit
