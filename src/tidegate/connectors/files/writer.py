"""The writer of a file sink: it runs in a task and stages files."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.connectors.files.formats import ENCODERS, Encoder
from tidegate.connectors.files.names import OutputId
from tidegate.connectors.files.partitions import split
from tidegate.connectors.files.payload import StagedFile, encode
from tidegate.connectors.files.place import FilePlace
from tidegate.connectors.sink import WriterContext
from tidegate.core.faults import reach
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN_FILES = 64
"""The number of folders a task writes to at once. Beyond it, rows go to additional files."""


@dataclass(frozen=True, slots=True)
class FileLayout:
    """What the files of a sink look like."""

    format: str
    partition_by: tuple[str, ...]
    max_file_bytes: int | None
    schema: Schema
    """The columns inside the files: those that no folder name encodes."""


@dataclass(slots=True)
class _OpenFile:
    draft: Path
    final: str
    encoder: Encoder


class FileWriter:
    """Writes rows to files that no reader sees, at most 64 of them open at once."""

    def __init__(self, place: FilePlace, context: WriterContext, layout: FileLayout) -> None:
        self._place = place
        self._attempt = context.attempt
        self._layout = layout
        self._output = OutputId.of(context)
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._staged: list[StagedFile] = []
        self._files = 0

    def write(self, batch: pa.RecordBatch) -> None:
        limit = self._layout.max_file_bytes
        for folder, rows in split(batch, self._layout.partition_by):
            file = self._file(folder)
            file.encoder.write(rows)
            if limit is not None and file.encoder.size_bytes() >= limit:
                self._finish(folder)

    def prepare_commit(self) -> bytes | None:
        for folder in list(self._open):
            self._finish(folder)
        return encode(tuple(self._staged)) if self._staged else None

    def abort(self) -> None:
        for file in self._open.values():
            with suppress(Exception):
                file.encoder.close()
            self._place.discard(file.draft)
        for staged in self._staged:
            self._place.unstage(staged)
        self._open.clear()

    def _file(self, folder: str) -> _OpenFile:
        if folder in self._open:
            self._open.move_to_end(folder)
            return self._open[folder]
        if len(self._open) == _OPEN_FILES:
            # The folder that has waited longest for rows.
            self._finish(next(iter(self._open)))
        format, index = self._layout.format, self._files
        self._files += 1
        draft = self._place.draft(self._output.hidden(index, self._attempt, format))
        encoder = ENCODERS[format](draft, self._layout.schema)
        self._open[folder] = _OpenFile(draft, folder + self._output.final(index, format), encoder)
        return self._open[folder]

    def _finish(self, folder: str) -> None:
        file = self._open.pop(folder)
        try:
            file.encoder.close()
            reach("files.1-written", file=file.final)
            self._staged.append(self._place.stage(file.draft, file.final))
        except Exception:
            self._place.discard(file.draft)
            raise
        reach("files.1-staged", file=file.final)
