"""The committer of an Iceberg sink: it adds staged files in one snapshot with their marker."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from tidegate.connectors.lakehouse.errors import (
    CommitConflict,
    StagedFilesGone,
    TableChanged,
    TableUnsuitable,
    translated,
)
from tidegate.connectors.lakehouse.iceberg.payload import IcebergCommittable, IcebergFile
from tidegate.connectors.lakehouse.iceberg.table import TableView, check_table, marker_in
from tidegate.connectors.lakehouse.marker import (
    WholeEpochs,
    epoch_in_table,
    markers_of,
    missing,
    outdated,
)
from tidegate.connectors.lakehouse.names import is_staged_name
from tidegate.connectors.outcome import CommitOutcome, outcomes
from tidegate.connectors.sink import Committable, CommitterContext, decoded, untrusted
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Uid
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

ATTEMPTS = 10
_decode = msgspec.msgpack.Decoder(IcebergCommittable).decode

LOOKERS = 16
"""Threads that check whether staged files exist in the store."""


class IcebergCommitter:
    """Adds staged files to the table in one snapshot, with the marker that says so."""

    def __init__(
        self,
        catalog: Catalog,
        table: str,
        schema: Schema,
        pause: Callable[[float], None] = time.sleep,
        context: CommitterContext | None = None,
        target: str | None = None,
    ) -> None:
        """Without `context`, markers are not compared with the job's history. `target` names the table in messages, with the
        address of its catalog."""
        self._target = target or f"Iceberg table {table}"
        self._catalog = catalog
        self._table = table
        self._schema = schema
        self._pause = pause
        self._context = context
        self._whole = WholeEpochs()

    def prepare(self, create: bool) -> None:
        """Make sure the table exists and is suitable, before the first row. With `create`, create a missing one."""
        with translated(self._target):
            self._prepare(create)

    def check_target(self) -> None:
        self.prepare(create=False)

    def _prepare(self, create: bool) -> None:
        name = self._table
        if not self._catalog.table_exists(name):
            if not create:
                raise TableUnsuitable(
                    f"There is no Iceberg table {name}. Create it, or let the sink create it: create=True."
                )
            self._catalog.create_table_if_not_exists(name, self._schema.to_arrow())
        check_table(self._catalog.load_table(name), name, self._schema)

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        """Add what is not yet added.

        1. Read the current table; refuse a marker that the job's history does not know, and skip requests that
           its markers cover. Their files may be long gone.
        2. Check that the table is the one they were staged for, and that the files of the remaining
           requests exist and are complete.
        3. Add them all and their marker in one commit of the catalog, on condition that no other commit happened
           since step 1. A crash before it leaves nothing; after a crash behind it, a repeat finds the marker in
           step 1. On conflict, go back to 1.
        """
        from pyiceberg.exceptions import CommitFailedException

        self._whole.check(requests)
        for attempt in range(1, ATTEMPTS + 1):
            table = self._catalog.load_table(self._table)
            waiting = missing(self._context, requests, partial(marker_in, table))
            reach("iceberg.1-read", waiting=len(waiting))
            if not waiting:
                self._whole.committed(requests)
                return outcomes(requests, waiting)
            staged = [decoded(request, _decode) for request in waiting]
            self._check(table, staged)
            for request, each in zip(waiting, staged):
                _check_names(table, request, each)
            self._check_files(table, staged)
            reach("iceberg.2-checked", waiting=len(waiting))
            try:
                self._add(table, [file for each in staged for file in each.files], waiting)
            except CommitFailedException as error:
                if attempt == ATTEMPTS:
                    raise CommitConflict(self._table, attempt, error) from error
                # By chance, so that two committers that met once do not meet again; up to ten seconds before the last
                # attempt.
                self._pause(random.uniform(0, 0.02 * 2**attempt))
                continue
            reach("iceberg.3-added", waiting=len(waiting))
            self._whole.committed(requests)
            return outcomes(requests, waiting)
        raise AssertionError("the last attempt returns or raises")

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        epoch = epoch_in_table(lineage, sink, partial(marker_in, self._catalog.load_table(self._table)))
        return [] if epoch is None else [epoch]

    def _check(self, table: Table, staged: Sequence[IcebergCommittable]) -> None:
        name, metadata = self._table, table.metadata
        if any(each.table != str(metadata.table_uuid) for each in staged):
            raise TableChanged(
                f"The Iceberg table {name} was dropped and recreated while output for the old one was waiting. Restore "
                "the old one, or restart the job from a savepoint taken before that output."
            )
        # Partition values are stored by position: under another spec they would mean something else.
        if any(each.spec != metadata.default_spec_id for each in staged):
            raise TableChanged(
                f"The partitioning of the Iceberg table {name} was changed while output was waiting for its commit. "
                "Change it back, stop the job with a savepoint, and then change it."
            )

    def _check_files(self, table: Table, staged: Sequence[IcebergCommittable]) -> None:
        files = [file for each in staged for file in each.files]
        # Each look is a request, and a commit may have hundreds of files.
        with ThreadPoolExecutor(min(LOOKERS, len(files))) as lookers:
            sizes = list(lookers.map(lambda file: _size(table, file.path), files))
        gone = [file.path for file, size in zip(files, sizes) if size != file.size]
        if gone:
            raise StagedFilesGone(
                self._table,
                gone,
                "Removing orphan files with a short age threshold does this: keep it at several days.",
            )

    def _add(self, table: Table, files: Sequence[IcebergFile], requests: Sequence[Committable]) -> None:
        markers = markers_of(requests, partial(marker_in, table))
        # Every commit rewrites all properties.
        useless = outdated(table.metadata.properties, requests)
        merge = table.metadata.properties.get("commit.manifest-merge.enabled", "false").lower() == "true"
        with table.transaction() as transaction:
            transaction.set_properties({name: str(number) for name, number in markers.items()})
            if useless:
                transaction.remove_properties(*useless)
            update = transaction.update_snapshot()
            # As the table is configured: merging rewrites manifests, which makes commits slower and reads faster.
            with update.merge_append() if merge else update.fast_append() as append:
                for file in files:
                    append.append_data_file(_data_file(file, table.metadata.default_spec_id))
            # By default, pyiceberg repeats a rejected commit on top of the current state without checking the markers,
            # and finally deletes what it wrote for it, although a rejection may follow a lost "yes". Clearing its list
            # of what to repeat prevents both: the markers decide, and a conflict leaves two small orphans.
            transaction._snapshot_producers.clear()


def _check_names(table: Table, request: Committable, staged: IcebergCommittable) -> None:
    """Raise `UntrustedOutput` unless every file lies where the writer of the request puts a file of its partition.

    Nothing else may be looked up: a name chooses the store that is asked for its size.
    """
    view = TableView(table.metadata, table.io)
    if not staged.files:
        raise untrusted(request, "names no files")
    for file in staged.files:
        name = file.path.rpartition("/")[2]
        if len(file.partition) != len(view.partition_fields()) or not is_staged_name(request, name):
            raise untrusted(request, f"names the file {file.path[:200]!r}")
        try:
            expected = view.location(file.partition, name)
        except (ValueError, TypeError, ArithmeticError):
            expected = None  # no row has such a partition
        if file.path != expected:
            raise untrusted(
                request,
                f"names the file {file.path[:200]!r}, but the table keeps its files elsewhere (if the table's location was "
                "changed while output waited, change it back)",
            )
    if len({file.path for file in staged.files}) < len(staged.files):
        raise untrusted(request, "names one file twice")


def _size(table: Table, path: str) -> int | None:
    try:
        return len(table.io.new_input(path))
    except FileNotFoundError:
        return None


def _data_file(file: IcebergFile, spec: int) -> DataFile:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    fields = msgspec.structs.asdict(file)
    path, size, partition = fields.pop("path"), fields.pop("size"), fields.pop("partition")
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **fields,
    )
    data_file.spec_id = spec
    return data_file
