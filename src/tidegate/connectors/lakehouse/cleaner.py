"""Removes data files that a lineage has written next to a table and never committed.

The table's marker decides, not the list of its files: a file that the table once had may be part of an older version of it, or
of a branch, and only the maintenance of the table knows which of those are still needed. A file of an epoch that the marker does
not cover was never in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.connectors.lakehouse.marker import may_be_in_table
from tidegate.connectors.lakehouse.names import staged_output
from tidegate.connectors.sink import Committable, LeftOutput
from tidegate.core.faults import reach
from tidegate.core.ids import Lineage, Uid

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


@dataclass(frozen=True, slots=True)
class TableFiles:
    """A table, as much of it as a cleaner needs."""

    system: FileSystem
    folder: str
    """Where its data files are, for `system`."""
    marker: Callable[[str], int | None]
    """Returns the number under the name of a marker."""
    in_table: Callable[[], Collection[str]]
    """Returns the names, without folders, of all files that the table refers to."""


class TableCleaner:
    def __init__(self, open_table: Callable[[], TableFiles | None]) -> None:
        """`open_table` returns None if there is no table."""
        self._open_table = open_table

    def find(self, lineage: Lineage, sink: Uid) -> Iterator[LeftOutput]:
        table = self._open_table()
        if table is None:
            return
        found = [*_uncommitted(table, lineage, sink)]
        # The marker is enough. A table that says otherwise was changed by somebody else, and keeps its files.
        # Names of all files of a table may be many: they are asked for only if there is something to compare.
        kept = table.in_table() if found else ()
        for file, left in found:
            if file.base_name not in kept:
                yield left

    def end(self, left: Sequence[LeftOutput]) -> None:
        table = self._open_table()
        if table is None:
            return
        for each in left:
            try:
                table.system.delete_file(each.handle)
            except FileNotFoundError:
                continue
            reach("lakehouse.end-removed", name=each.name)


def _uncommitted(table: TableFiles, lineage: Lineage, sink: Uid) -> Iterable[tuple[FileInfo, LeftOutput]]:
    from pyarrow.fs import FileSelector

    selected = FileSelector(table.folder, allow_not_found=True, recursive=True)
    for file in sorted(table.system.get_file_info(selected), key=lambda each: each.path):
        output = staged_output(lineage, sink, file.base_name)
        if output is None or not file.is_file:
            continue
        epoch, slot = output
        request = Committable(lineage=lineage, sink=sink, epoch=epoch, slot=slot, payload=b"")
        if may_be_in_table(request, table.marker):
            continue
        left = LeftOutput(
            kind="data file",
            name=file.path,
            handle=file.path,
            epoch=epoch,
            at_ms=None if file.mtime_ns is None else file.mtime_ns // 1_000_000,
            size_bytes=file.size,
        )
        yield file, left
