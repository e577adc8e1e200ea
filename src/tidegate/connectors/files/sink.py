"""A directory of files, each put there whole, once.

1. In the task: rows go to a hidden file named by (lineage, sink, epoch, slot, attempt). A crash leaves it, unseen.
2. At commit: the hidden file is linked to its final name, which (lineage, sink, epoch, slot) decide. A repeat finds the
   name taken and changes nothing. A crash between link and removal of the hidden name leaves two names of one file,
   one of them unseen.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tidegate.connectors.files.formats import ENCODERS, Encoder, check_format
from tidegate.connectors.sink import CommitRequest, Committer, CommitterContext, SinkWriter, WriterContext
from tidegate.core.errors import StateError

if TYPE_CHECKING:
    import pyarrow as pa

STAGING = ".tidegate-staged"
"""Readers such as Spark skip names that begin with a dot or an underscore."""


class Staged(msgspec.Struct, frozen=True):
    hidden: str
    final: str


@dataclass(frozen=True)
class FileSink:
    """Rows as files below `path`, a directory that all executors and the driver share."""

    path: str
    format: str = "json"

    def __post_init__(self) -> None:
        check_format(self.format)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return FileWriter(Path(self.path), self.format, context)

    def create_committer(self, context: CommitterContext) -> Committer:
        return FileCommitter(Path(self.path))

    def describe(self) -> str:
        return f"{self.format} files in {self.path}"


class FileWriter:
    def __init__(self, path: Path, format: str, context: WriterContext) -> None:
        stem = f"part-{context.lineage}-{context.sink}-{context.epoch}-{context.slot:05d}"
        self._staged = Staged(f"{stem}-{context.attempt}.{format}", f"{stem}.{format}")
        self._hidden = path / STAGING / self._staged.hidden
        self._hidden.parent.mkdir(parents=True, exist_ok=True)
        self._encoder: Encoder = ENCODERS[format](self._hidden, context.schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._encoder.write(batch)

    def prepare_commit(self) -> bytes | None:
        self._encoder.close()
        # The file, its name, and the name of the folder it is in: a committable must outlive a power failure.
        for path in (self._hidden, self._hidden.parent, self._hidden.parent.parent):
            _sync(path)
        return msgspec.json.encode(self._staged)

    def abort(self) -> None:
        with suppress(Exception):
            self._encoder.close()
        with suppress(OSError):
            self._hidden.unlink()


class FileCommitter:
    def __init__(self, path: Path) -> None:
        self._path = path

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        for request in sorted(requests, key=lambda r: (r.epoch, r.slot)):
            staged = msgspec.json.decode(request.payload, type=Staged)
            hidden, final = self._path / STAGING / staged.hidden, self._path / staged.final
            try:
                os.link(hidden, final)
            except FileExistsError:
                pass
            except FileNotFoundError:
                if not final.exists():
                    raise StateError(
                        f"{hidden} was staged for epoch {request.epoch} and is gone. Is {self._path} the same directory on "
                        "the driver and all executors?"
                    ) from None
            hidden.unlink(missing_ok=True)
        _sync(self._path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
