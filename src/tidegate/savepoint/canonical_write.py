"""Writes the state of one task as tables. Runs where the state is: in a task, or offline on a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.checkpoint.metadata import Distribution, ElementCount, FileList, OperatorInfo, StateFile, TaskState
from tidegate.core.ids import TaskId
from tidegate.savepoint.canonical_table import StateTable
from tidegate.savepoint.entries import (
    ByteEntry,
    ListElementReader,
    Shape,
    StateEntry,
    StateLayout,
    UnreadableState,
    by_state,
)
from tidegate.savepoint.snapshot import CANONICAL_BACKEND
from tidegate.state.accessors.operator_states import read_elements
from tidegate.state.port import StateStore
from tidegate.state.version import VersionId
from tidegate.storage import Storage, unique_name
from tidegate.storage.handle import PART_BYTES, checksum_of
from tidegate.storage.port import encode_segment

# Large enough for columns to compress, small enough for a reader of some key groups to skip the others.
ROW_GROUP = 16_384
FILE_BYTES = 32 << 20
"""A table is split into files of about this size. Each is held in memory and stored as one object, since Parquet
readers expect one object per file."""


class CanonicalWriter:
    """The tables of one task.

    1. Every file is stored under a unique name below the savepoint's directory. A crash leaves files that no metadata
       names.
    2. `finish` returns the task's part of the metadata, with names relative to that directory.
    """

    def __init__(
        self,
        storage: Storage,
        root: str,
        task: TaskId,
        key_groups: tuple[int, int],
        version: VersionId,
        savepoint_id: int,
        mark: str | None = None,
    ) -> None:
        """`mark` is the suffix of file names. Without it, names are unique to this writer; with it, a repeated write
        replaces the files."""
        self._storage = storage
        self._root = root
        self._task = task
        self._mark = mark or unique_name()[:12]
        self._key_groups = key_groups
        self._version = version
        self._id = savepoint_id
        self._open: dict[int, _Table] = {}
        self._files: list[StateFile] = []
        self._elements: dict[int, int] = {}
        self.rows = 0

    def add(self, layout: StateLayout, entries: Iterable[StateEntry]) -> None:
        """Add entries of one state. Elements of one list must be in order; otherwise order only makes reading faster."""
        table = self._table(layout)
        for entry in entries:
            table.rows.append(entry)
            if len(table.rows) == ROW_GROUP:
                self._flush(table)

    def add_bytes(self, operators: Iterable[OperatorInfo], entries: Iterable[ByteEntry]) -> None:
        """Add stored entries of any states of these operators. Raises UnreadableState for an entry of an unknown state."""
        find = by_state(StateLayout(operator, state) for operator in operators for state in operator.states)
        rest = iter(entries)
        readers: dict[int, ListElementReader] = {}
        # By chunks, because entries of all states come in one scan, and each table needs many rows at once to be quick.
        while chunk := list(islice(rest, ROW_GROUP)):
            for mine in _by_state(chunk):
                layout = _found(find, mine[0][0])
                if layout.is_list:
                    # A list may continue in the next chunk, so its reader must outlive this one.
                    self.add(layout, readers.setdefault(layout.id, ListElementReader(layout)).of(mine))
                elif layout.shape is Shape.TIMERS:
                    self.add(layout, layout.typed(mine))
                else:
                    self._add_raw(layout, mine)

    def _add_raw(self, layout: StateLayout, entries: list[ByteEntry]) -> None:
        table = self._table(layout)
        table.raw += entries
        while len(table.raw) >= ROW_GROUP:
            batch = table.raw[:ROW_GROUP]
            table.raw = table.raw[ROW_GROUP:]
            self._write(table, table.table.batch_of_bytes(batch))

    def add_operator_state(self, operators: Iterable[OperatorInfo], store: StateStore) -> None:
        """Add the lists and broadcast maps of these operators from the task's store. Scans of key groups do not include them."""
        for operator in operators:
            for state in operator.states:
                if state.distribution is not Distribution.KEYED:
                    layout = StateLayout(operator, state)
                    self.add(layout, layout.typed_elements(read_elements(store, state.id) or ()))

    def finish(self) -> TaskState:
        for table in self._open.values():
            self._flush(table)
            self._close(table)
        self._open.clear()
        counts = tuple(ElementCount(state, count) for state, count in self._elements.items())
        return TaskState(
            task=self._task,
            key_groups=self._key_groups,
            backend=CANONICAL_BACKEND,
            version=self._version,
            files=FileList(self._files),
            inline=(),
            elements=counts,
        )

    def _table(self, layout: StateLayout) -> _Table:
        table = self._open.get(layout.id)
        if table is None:
            table = self._open[layout.id] = _Table(StateTable(layout))
        return table

    def _flush(self, table: _Table) -> None:
        if table.raw:
            raw = table.raw
            table.raw = []
            self._write(table, table.table.batch_of_bytes(raw))
        if table.rows:
            self._write(table, table.table.batch(table.rows))
            table.rows.clear()

    def _write(self, table: _Table, batch: Any) -> None:
        if table.writer is None:
            table.begin()
        table.writer.write_batch(batch, row_group_size=ROW_GROUP)
        self.rows += batch.num_rows
        layout = table.table.layout
        if layout.info.distribution in (Distribution.SPLIT, Distribution.UNION):
            self._elements[layout.id] = self._elements.get(layout.id, 0) + batch.num_rows
        # After a row group, never within one: a file may be larger by one of them.
        if table.sink.tell() >= FILE_BYTES:
            self._close(table)

    def _close(self, table: _Table) -> None:
        if table.writer is None:
            return
        table.writer.close()
        data = table.sink.getvalue().to_pybytes()
        table.writer = None
        layout = table.table.layout
        folder = f"{encode_segment(layout.uid)}/{encode_segment(layout.info.name)}"
        path = f"{folder}/{self._task}-{table.part:03d}-{self._mark}.parquet"
        self._storage.put(f"{self._root}/{path}" if self._root else path, data)
        self._files.append(
            StateFile(
                name=f"{layout.id:05d}-{table.part:05d}.parquet",
                path=path,
                size_bytes=len(data),
                checksum=checksum_of(data),
                origin=self._version,
                since=self._id,
                # One part, whatever its size: Parquet readers want one object for one file.
                part_bytes=max(len(data), PART_BYTES),
            )
        )
        table.part += 1


class _Table:
    """A table being written: buffered rows, and the file they will go to."""

    def __init__(self, table: StateTable) -> None:
        self.table = table
        self.rows: list[StateEntry] = []
        self.raw: list[ByteEntry] = []
        self.part = 0
        self.writer: Any = None
        self.sink: Any = None

    def begin(self) -> None:
        self.sink = pa.BufferOutputStream()
        # Dictionaries only if all rows are equal: otherwise they cost more than they save on top of compression.
        self.writer = pq.ParquetWriter(
            self.sink, self.table.schema, compression="zstd", compression_level=1, use_dictionary=["operator", "state"]
        )


def _by_state(entries: list[ByteEntry]) -> Iterable[list[ByteEntry]]:
    """Group the entries by state, keeping their order."""
    if len({key[2:4] for key, _ in entries}) == 1:
        return (entries,)
    apart: dict[bytes, list[ByteEntry]] = {}
    for entry in entries:
        apart.setdefault(entry[0][2:4], []).append(entry)
    return apart.values()


def _found(find: Callable[[bytes], StateLayout | None], key: bytes) -> StateLayout:
    layout = find(key)
    if layout is None:
        raise UnreadableState(
            f"A task holds entries of a state number {int.from_bytes(key[2:4], 'big')} that the snapshot does not "
            "describe. The savepoint is not complete; take a native one, and report this."
        )
    return layout
