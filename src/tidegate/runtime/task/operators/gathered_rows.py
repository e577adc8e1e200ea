"""All rows of an epoch for a function that sees the rows of a key at once. Beyond a limit they wait on disk, split by key."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.runtime.task.operators.waiting_rows import WaitingRows
from tidegate.schema.schema import Schema

MEMORY_BYTES = 64 << 20
"""Rows beyond this are written to disk."""
PARTS = 16
"""Parts of the rows on disk, by key. Only one at a time is in memory while rows are processed."""
_GROUP = "key group"

Numbered = Callable[[pa.RecordBatch, npt.NDArray[Any]], npt.NDArray[Any]]
"""Returns a number for each row of a batch, given its key groups; the same for all rows of a key."""


class GatheredRows:
    """Columns of one schema, and the key group of each row, in the order in which they came."""

    are_enough = False
    """Rows wait for the end of the epoch."""

    def __init__(self, schema: Schema, numbered: Numbered, directory: Path | None) -> None:
        self._waiting = WaitingRows(schema)
        self._numbered = numbered
        self._directory = directory
        self._files: list[IO[bytes]] = []
        self._writers: list[Any] = []

    def add(self, columns: Iterable[pa.Array], groups: npt.NDArray[Any]) -> None:
        self._waiting.add(columns, groups)
        if self._waiting.size_bytes >= MEMORY_BYTES:
            self._spill()

    def take(self) -> Iterator[tuple[pa.RecordBatch, npt.NDArray[Any]]]:
        """Yield all rows. The rows of a key are in one batch, unless Arrow cannot hold them in one."""
        if not self._writers:
            yield from self._waiting.take()
            return
        self._spill()
        files, writers = self._files, self._writers
        self._files = []
        self._writers = []
        for file, writer in zip(files, writers):
            writer.close()
            file.seek(0)
            with file, pa.ipc.open_stream(file) as stored:
                table = stored.read_all().combine_chunks()
            for batch in table.to_batches():
                # By position: the user may have a column of the same name.
                last = batch.num_columns - 1
                yield batch.select(list(range(last))), batch.column(last).to_numpy(zero_copy_only=False)

    def _spill(self) -> None:
        """Append the rows in memory to the files of their parts. The files have no name: they are gone with the process."""
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)

        for batch, groups in self._waiting.take():
            whole = batch.append_column(_GROUP, pa.array(groups.astype(np.int32)))
            # By key, so that all rows of a key are in one part, and memory holds one part at a time.
            parts = self._numbered(batch, groups) % PARTS
            for part in range(PARTS):
                if len(self._writers) == part:
                    self._files.append(tempfile.TemporaryFile(dir=self._directory))  # noqa: SIM115 closed by `take`
                    self._writers.append(pa.ipc.new_stream(self._files[part], whole.schema))
                self._writers[part].write_batch(whole.filter(pa.array(parts == part)))
