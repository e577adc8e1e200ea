"""The contract of a sink, as Flink's Sink V2: a writer in the task stages rows, a committer publishes them later.

1. In the task: `write` batches of rows, then `prepare_commit` once all input is verified. What it returns travels with the
   acknowledgement. Nothing may be visible to readers yet; an attempt that is thrown away leaves only leavings.
2. At the committer: `commit` publishes, in order of epochs per (sink, partition). It may be called again with the same
   committables, also by another driver; the second time must change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Uid
from tidegate.graph.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Who writes. (lineage, sink, epoch, slot, attempt) is never used twice."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    slot: Slot
    attempt: AttemptId
    schema: Schema


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One committable with all it needs to be published by anyone, at any time."""

    lineage: Lineage
    sink: Uid
    epoch: EpochId
    slot: Slot
    payload: bytes


class SinkWriter(Protocol):
    def write(self, batch: pa.RecordBatch) -> None:
        """Stage rows that were checked against the sink's schema."""
        ...

    def prepare_commit(self) -> Sequence[bytes]:
        """Finish staging and say what is to be committed. No row may be written after it."""
        ...

    def abort(self) -> None:
        """The attempt failed. Remove what can be removed; must not raise."""
        ...


class Committer(Protocol):
    def commit(self, requests: Sequence[CommitRequest]) -> None: ...


class Sink(Protocol):
    """Where rows go. Frozen configuration, pickled into every task; opens nothing by itself."""

    def create_writer(self, context: WriterContext) -> SinkWriter: ...

    def create_committer(self, schema: Schema) -> Committer: ...

    def describe(self) -> str:
        """A few words for `explain`."""
        ...
