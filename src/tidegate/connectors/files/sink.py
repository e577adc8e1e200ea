"""Files below a directory or an S3 prefix, each published complete and once.

1. In the task: rows are written to files that no reader sees, named by (lineage, sink, epoch, slot,
   attempt). A crash leaves them behind.
2. At commit: see `FileCommitter`.
3. Once a later checkpoint has settled the output, `sweep` removes files of discarded attempts and the marks of commits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from tidegate.connectors.files.formats import ENCODERS, Encoder, check_columns, check_format
from tidegate.connectors.files.names import OutputId, settled_name
from tidegate.connectors.files.open import open_place
from tidegate.connectors.files.partitions import check_partitions, split
from tidegate.connectors.files.payload import StagedFile, decode, encode
from tidegate.connectors.files.place import FilePlace
from tidegate.connectors.outcome import CommitInDoubt, CommitOutcome, outcomes
from tidegate.connectors.sink import (
    Committable,
    Committer,
    CommitterContext,
    PublishesIn,
    Settled,
    SinkWriter,
    WriterContext,
)
from tidegate.core.errors import GraphError
from tidegate.core.faults import reach
from tidegate.core.guarantee import Guarantee
from tidegate.core.ids import EpochId, Term
from tidegate.core.redaction import refuse_credentials
from tidegate.graph.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")

_OPEN_FILES = 64
"""The number of folders a task writes to at once. Beyond it, rows go to additional files."""


@dataclass(frozen=True)
class FileSink:
    """Rows as files below `path`: a directory shared by the driver and all executors, or `s3://bucket/prefix`.

    `partition_by` lists columns whose values name folders, as in Hive and Spark (`day=2024-05-01/`). When a file reaches
    about `max_file_bytes`, the writer starts another. The `options` for S3 are `endpoint`, `region`, `access_key_id`,
    `secret_access_key`, `session_token`; without them, boto3 uses its default lookup.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    publishes_in: ClassVar[PublishesIn] = "task"

    path: str
    format: str = "json"
    partition_by: Sequence[str] = ()
    max_file_bytes: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        check_format(self.format)
        refuse_credentials(self.path, "a file sink", "options={'access_key_id': …, 'secret_access_key': …}")
        if isinstance(self.partition_by, str):
            raise GraphError(f"partition_by is a list of columns: write partition_by=[{self.partition_by!r}].")
        if self.max_file_bytes is not None and self.max_file_bytes < 1:
            raise GraphError(
                "max_file_bytes is the size at which a file is full and must be positive; omit it for one file per epoch."
            )
        object.__setattr__(self, "partition_by", tuple(self.partition_by))
        open_place(self.path, self.options)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return FileWriter(self, open_place(self.path, self.options), context)

    def create_committer(self, context: CommitterContext) -> Committer:
        check_partitions(self.partition_by, context.schema)
        check_columns(self.format, self.file_schema(context.schema))
        return FileCommitter(self.path, open_place(self.path, self.options))

    def file_schema(self, schema: Schema) -> Schema:
        """Return the columns inside the files: those that no folder name encodes."""
        return schema.select([name for name in schema.names if name not in self.partition_by])

    def describe(self) -> str:
        by = f" by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"{self.format} files in {self.path}{by}"


@dataclass(slots=True)
class _OpenFile:
    draft: Path
    final: str
    encoder: Encoder


class FileWriter:
    def __init__(self, sink: FileSink, place: FilePlace, context: WriterContext) -> None:
        self._sink, self._place, self._attempt = sink, place, context.attempt
        self._output = OutputId.of(context)
        self._schema = sink.file_schema(context.schema)
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._staged: list[StagedFile] = []
        self._files = 0

    def write(self, batch: pa.RecordBatch) -> None:
        limit = self._sink.max_file_bytes
        for folder, rows in split(batch, self._sink.partition_by):
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
            self._finish(next(iter(self._open)))
        format, index = self._sink.format, self._files
        self._files += 1
        draft = self._place.draft(self._output.hidden(index, self._attempt, format))
        encoder = ENCODERS[format](draft, self._schema)
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


class _OutputState(Enum):
    """What is known about an output before it is published."""

    NEW = "not started yet"
    BEGUN = "publishing has started"
    DONE = "fully published"


@dataclass(frozen=True, slots=True)
class _Waiting:
    request: Committable
    output: OutputId
    files: tuple[StagedFile, ...]


class FileCommitter:
    """Publishes staged files, one epoch of all slots after the other.

    1. Record durably that these outputs are being published. If a file is no longer staged, it was published
       if such a note exists or a sweep has passed its epoch; a reader may have removed it since. Otherwise it
       is lost, and that is an error.
    2. Publish file by file. Each publish is one step, after which the file is no longer staged: a repeat continues where a
       crash interrupted, and never creates a file twice. Readers may see some files of an epoch before the others.
    """

    def __init__(self, path: str, place: FilePlace) -> None:
        self._path, self._place = path, place

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        published: list[Committable] = []
        ordered = sorted(requests, key=lambda request: (request.epoch, request.slot))
        for _, found in groupby(ordered, lambda request: request.epoch):
            published += self._publish([_Waiting(each, OutputId.of(each), decode(each.payload)) for each in found])
        return outcomes(requests, published)

    def _publish(self, epoch: Sequence[_Waiting]) -> list[Committable]:
        states = list(zip(epoch, self._each(self._look, epoch)))
        if new := [each for each, state in states if state is _OutputState.NEW]:
            self._each(lambda each: self._place.mark(each.output.marker), new)
            self._place.settle_marks()
        waiting = [each for each, state in states if state is not _OutputState.DONE]
        if waiting:
            reach("files.1-marked", epoch=waiting[0].request.epoch)
            self._each(self._place.publish, [file for each in waiting for file in each.files])
        # Also files that were already published: their committer may have died before they were durable.
        self._place.settle([file for each in epoch for file in each.files])
        return [each.request for each in waiting]

    def _each(self, work: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if min(self._place.at_once, len(items)) < 2:
            return [work(item) for item in items]
        with ThreadPoolExecutor(min(self._place.at_once, len(items)), "tidegate-files") as pool:
            return list(pool.map(work, items))

    def _look(self, waiting: _Waiting) -> _OutputState:
        output, files = waiting.output, waiting.files
        begun = self._place.noted(output.marker) is not None
        gone = [file for file in files if not self._place.is_staged(file)]
        if begun:
            return _OutputState.DONE if len(gone) == len(files) else _OutputState.BEGUN
        # Check once more: another process may have written its note and published everything between our two checks.
        if not gone or self._place.noted(output.marker) is not None:
            return _OutputState.NEW
        if output.epoch <= self._settled(output):
            # Everything was published so long ago that the note has been swept.
            return _OutputState.BEGUN if len(gone) < len(files) else _OutputState.DONE
        raise CommitInDoubt(
            f"{gone[0].final} was staged for epoch {output.epoch} and has disappeared without being committed. Check "
            f"that {self._path} is the same storage for the driver and all executors, and that nothing else deletes "
            "hidden files there."
        )

    def _settled(self, output: OutputId) -> EpochId:
        text = self._place.noted(settled_name(output.lineage, output.sink)) or "0.0"
        term, _, number = text.partition(".")
        return EpochId(Term(int(term)), int(number))

    def sweep(self, settled: Settled) -> None:
        """1. Record the settled epoch. A crash leaves that record, and everything else for the next sweep.
        2. Remove orphaned files and notes.
        """
        self._place.note(settled_name(settled.lineage, settled.sink), str(settled.epoch))
        keep = {file.hidden for request in settled.waiting for file in decode(request.payload)}
        keep |= {OutputId.of(request).marker for request in settled.waiting}
        self._place.sweep(settled, keep)
