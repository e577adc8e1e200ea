"""Reads one task of a canonical savepoint: typed entries for users, byte entries for the store of a restored job."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from tidegate.checkpoint.files.file_lists import loaded_task
from tidegate.checkpoint.metadata import TaskState
from tidegate.core.ids import EpochId
from tidegate.savepoint.entries import ByteEntry, StateEntry, StateLayout
from tidegate.state.accessors.operator_states import element_entries
from tidegate.storage import Storage
from tidegate.storage.download import fetch
from tidegate.storage.handle import FileHandle

if TYPE_CHECKING:
    from tidegate.savepoint.canonical_table import StateTable


class CanonicalTask:
    """The tables of one task. Files are fetched and verified whole, one at a time."""

    def __init__(self, storage: Storage, root: str, task: TaskState) -> None:
        self._storage = storage
        self._root = root
        self._task = task
        self._operator_state: dict[int, dict[bytes, bytes]] = {}

    def entries(self, layout: StateLayout, key_groups: tuple[int, int]) -> Iterator[StateEntry]:
        """Yield typed entries of one state in a range of key groups, in the order written."""
        for _, entries in self._tables(layout.id, key_groups, layout):
            yield from entries

    def byte_entries(self, key_groups: tuple[int, int], states: Collection[int], epoch: EpochId) -> Iterator[ByteEntry]:
        """Yield the entries of these states and key groups to write to a store. `epoch` names the segments of lists."""
        for state in sorted(states):
            # The names that the footer has will do: only stored bytes leave here, and those have numbers.
            files = self._files(state, None)
            if (first := next(files, None)) is None:
                continue
            layout, tables = first[1].layout, chain((first,), files)
            if layout.is_list:
                # One pass over all files: a list may continue from one file to the next.
                rows = (entry for parquet, table in tables for entry in _rows(parquet, table, key_groups))
                yield from layout.stored(rows, epoch)
                continue
            for parquet, table in tables:
                for batch in _row_groups(parquet, table, key_groups):
                    yield from table.bytes_of(batch, epoch)

    def get(self, key: bytes) -> bytes | None:
        """Return an entry of operator state as a store would: this is all that a restore reads from a store of lists."""
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        # Bytes 2 and 3 of every key are the number of the state, of operator state, too.
        return [self._operator_entries(int.from_bytes(key[2:4], "big")).get(key) for key in keys]

    def _operator_entries(self, state: int) -> dict[bytes, bytes]:
        found = self._operator_state.get(state)
        if found is None:
            found = self._operator_state[state] = {}
            elements = [layout.stored_element(e) for layout, some in self._tables(state, (0, 0), None) for e in some]
            if elements:
                found.update(element_entries(elements, state))
        return found

    def abandon(self) -> None:
        """Do nothing: no resources are kept open."""

    def _tables(
        self, state: int, key_groups: tuple[int, int], called: StateLayout | None
    ) -> Iterator[tuple[StateLayout, Iterator[StateEntry]]]:
        for parquet, table in self._files(state, called):
            yield table.layout, _rows(parquet, table, key_groups)

    def _files(self, state: int, called: StateLayout | None) -> Iterator[tuple[Any, StateTable]]:
        """Every file of a state, opened, and the table that its footer describes."""
        import pyarrow as pa  # noqa: PLC0415 start-up time
        import pyarrow.parquet as pq  # noqa: PLC0415 start-up time

        from tidegate.savepoint.canonical_table import table_of  # noqa: PLC0415 start-up time

        for file in loaded_task(self._storage, self._root, self._task):
            # The number is in the name, so tables of other states are not fetched.
            if not file.name.startswith(f"{state:05d}-"):
                continue
            path = f"{self._root}/{file.path}" if self._root else file.path
            # Whole: the footer is at the end, and the checksum covers all of it. Files are cut at about 32 MB for this
            # reason.
            data = fetch(self._storage, FileHandle(path, file.size_bytes, file.checksum, file.part_bytes))
            parquet = pq.ParquetFile(pa.BufferReader(data))
            names = (None, None) if called is None else (called.uid, called.info.name)
            yield parquet, table_of(parquet.schema_arrow, state, *names)


def canonical_entries(
    storage: Storage, root: str, task: TaskState, key_groups: tuple[int, int], states: Collection[int], epoch: EpochId
) -> Iterator[ByteEntry]:
    """Yield the share of `task`, a task of a canonical savepoint below `root`, that a restoring task writes to its store.

    For a `KeyedShare`, `key_groups` and `states` are the share's. `epoch` is the savepoint's: list segments that the
    job adds later sort after it. The order is that of the tables, which is not always byte order.
    """
    return CanonicalTask(storage, root, task).byte_entries(key_groups, states, epoch)


def _rows(parquet: Any, table: StateTable, key_groups: tuple[int, int]) -> Iterator[StateEntry]:
    for batch in _row_groups(parquet, table, key_groups):
        yield from table.entries(batch)


def _row_groups(parquet: Any, table: StateTable, key_groups: tuple[int, int]) -> Iterator[Any]:
    """The rows of a file that belong to some key groups. Operator state belongs to none, and comes whole."""
    import pyarrow.compute as pc  # noqa: PLC0415 start-up time

    first, last = key_groups
    column = parquet.schema_arrow.names.index("key_group") if table.layout.keyed else None
    for number in range(parquet.num_row_groups):
        if column is None:
            yield parquet.read_row_group(number)
            continue
        limits = parquet.metadata.row_group(number).column(column).statistics
        known = limits is not None and limits.has_min_max
        # A task writes rows in the order of key groups, so most row groups belong to one reader or to none.
        if known and (limits.max < first or limits.min > last):
            continue
        rows = parquet.read_row_group(number)
        # Some rows of this group belong to other key groups.
        if not known or limits.min < first or limits.max > last:
            groups = rows.column("key_group")
            rows = rows.filter(pc.and_(pc.greater_equal(groups, first), pc.less_equal(groups, last)))
        yield rows
