"""Ends what a lineage has left below a file sink's path: hidden files of a directory, multipart uploads of S3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegate.connectors.files.names import OutputId
from tidegate.connectors.files.place import FilePlace
from tidegate.connectors.sink import LeftOutput
from tidegate.core.faults import reach
from tidegate.core.ids import Lineage, Uid


class FileCleaner:
    """Committed files are not hidden, so nothing else tells them apart."""

    def __init__(self, place: FilePlace) -> None:
        self._place = place

    def find(self, lineage: Lineage, sink: Uid) -> Iterator[LeftOutput]:
        for output, left in self._place.staged_files():
            if (output.lineage, output.sink) == (lineage, sink):
                yield left

    def end(self, left: Sequence[LeftOutput]) -> None:
        """1. Remove the marks of these outputs. A crash leaves the files staged and not begun, which is true enough: a committer
           commits them.
        2. Remove the files. In the other order a mark without files would remain, which says that all of them are committed.
        """
        named = {each.handle: OutputId.in_name(each.name) for each in left}
        for marker in sorted({output.marker for output in named.values() if output is not None}):
            self._place.unmark(marker)
        reach("files.end-1-unmarked")
        for each in left:
            self._place.remove(each)
            reach("files.end-2-removed", name=each.name)
