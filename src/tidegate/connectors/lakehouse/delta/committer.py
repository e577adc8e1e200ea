"""The committer of a Delta sink: it adds staged files in one Delta commit with their marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tidegate.connectors.lakehouse.delta.client import DeltaClient
from tidegate.connectors.lakehouse.delta.payload import DeltaCommittable, DeltaFile
from tidegate.connectors.lakehouse.delta.table import check_table
from tidegate.connectors.lakehouse.delta.writer import folders_of
from tidegate.connectors.lakehouse.errors import CommitConflict, StagedFilesGone, TableUnsuitable, translated
from tidegate.connectors.lakehouse.marker import WholeEpochs, epoch_in_table, markers_of, missing
from tidegate.connectors.lakehouse.names import is_staged_name, sync
from tidegate.connectors.outcome import CommitOutcome, outcomes
from tidegate.connectors.sink import Committable, CommitterContext, decoded, untrusted
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Uid
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

ATTEMPTS = 10

_decode = msgspec.json.Decoder(DeltaCommittable).decode


class _FileStatistics(msgspec.Struct, forbid_unknown_fields=True):
    """The statistics of one file, as Delta's protocol defines them."""

    numRecords: int
    nullCount: dict[str, int] = {}
    minValues: dict[str, int | float | str | bool | None] = {}
    maxValues: dict[str, int | float | str | bool | None] = {}


_decode_statistics = msgspec.json.Decoder(_FileStatistics).decode


class DeltaCommitter:
    """Adds staged files to the table, with the marker that says so."""

    def __init__(self, client: DeltaClient, schema: Schema, context: CommitterContext | None = None) -> None:
        """Without `context`, markers are not compared with the job's history."""
        self._client = client
        self._schema = schema
        self._context = context
        self._handle: DeltaTable | None = None
        self._whole = WholeEpochs()

    def prepare(self, create: bool) -> None:
        """Make sure the table exists and is suitable, before the first row. With `create`, create a missing one."""
        self._client.check_credentials()
        with translated(self._client.target):
            self._prepare(create)

    def check_target(self) -> None:
        self.prepare(create=False)

    def _prepare(self, create: bool) -> None:
        from deltalake import DeltaTable
        from deltalake import Schema as DeltaSchema

        client = self._client
        if not client.exists():
            if not create:
                raise TableUnsuitable(
                    f"There is no Delta table at {client.table_uri}. Create it, or let the sink create it: create=True."
                )
            DeltaTable.create(
                client.table_uri,
                DeltaSchema.from_arrow(self._schema.to_arrow()),
                # Another start may have created it in the meantime.
                mode="ignore",
                partition_by=list(client.partition_by),
                storage_options=client.storage_options,
            )
        check_table(self._newest(), self._schema, client.partition_by)

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        """Add what is not yet added.

        1. Read the current table; refuse a marker that the job's history does not know, and skip requests that
           its markers cover. Their files may be long gone.
        2. Check that the table still accepts these rows, and that the files of the remaining
           requests exist and are complete.
        3. Add them all and their marker in one Delta commit. A crash before it leaves nothing; after a crash behind it, a
           repeat finds the marker in step 1. If another commit of the same sink makes it fail, go back to 1.
        4. On a local disk, make the log durable.
        """
        from deltalake.exceptions import CommitFailedError

        # One marker covers all slots, so a call must have all that wait of an epoch.
        self._whole.check(requests)
        staged = {id(request): self._files(request) for request in requests}
        for attempt in range(1, ATTEMPTS + 1):
            table = self._newest()
            waiting = missing(self._context, requests, table.transaction_version)
            reach("delta.1-read", waiting=len(waiting))
            if waiting:
                files = [file for request in waiting for file in staged[id(request)]]
                # Again, with the table as it is now: somebody may have changed its columns since the start.
                check_table(table, self._schema, self._client.partition_by)
                self._check_files(files)
                reach("delta.2-checked", waiting=len(waiting))
                try:
                    self._add(table, files, waiting)
                except CommitFailedError as error:
                    # The log has moved on: the next attempt opens the table again.
                    self._handle = None
                    if attempt == ATTEMPTS:
                        raise CommitConflict(self._client.table_uri, attempt, error) from error
                    continue
                reach("delta.3-added", waiting=len(waiting))
            self._make_log_durable(table.version())
            self._whole.committed(requests)
            return outcomes(requests, waiting)
        raise AssertionError("the last attempt returns or raises")

    def _files(self, request: Committable) -> tuple[DeltaFile, ...]:
        """Return the files of a request. Raises `UntrustedOutput` unless their names follow from it and their partition."""
        files = decoded(request, _decode).files
        if not files:
            raise untrusted(request, "names no files")
        for file in files:
            name = file.path.rpartition("/")[2]
            expected = f"{folders_of(file.partition)}{name}"
            if file.path != expected or not is_staged_name(request, name):
                raise untrusted(request, f"names the file {file.path[:200]!r}")
            if tuple(file.partition) != self._client.partition_by:
                raise untrusted(request, f"names the partition columns {list(file.partition)[:20]!r}")
            if not _is_statistics(file.statistics):
                raise untrusted(request, f"has statistics that are none for {name!r}")
        if len({file.path for file in files}) < len(files):
            raise untrusted(request, "names one file twice")
        return files

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        epoch = epoch_in_table(lineage, sink, self._newest().transaction_version)
        return [] if epoch is None else [epoch]

    def _newest(self) -> DeltaTable:
        """Return the current table. The handle is kept, since opening a table reads the names of all its files."""
        if self._handle is not None:
            last = self._client.files.get_file_info(f"_delta_log/{self._handle.version():020d}.json")
            # Someone may have replaced the table with another one, whose log is shorter.
            if last.is_file:
                self._handle.update_incremental()
                return self._handle
        self._handle = self._client.open()
        return self._handle

    def _check_files(self, files: Sequence[DeltaFile]) -> None:
        found = self._client.files.get_file_info([file.path for file in files])
        gone = [file.path for file, info in zip(files, found) if not info.is_file or info.size != file.size]
        if gone:
            raise StagedFilesGone(
                self._client.table_uri,
                gone,
                "A full vacuum with a short retention does this: keep it at a day or more.",
            )

    def _add(self, table: DeltaTable, files: Sequence[DeltaFile], requests: Sequence[Committable]) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        table.create_write_transaction(
            [AddAction(f.path, f.size, f.partition, f.modified_ms, True, f.statistics) for f in files],
            mode="append",
            # The table's own: an append never changes it.
            schema=table.schema(),
            partition_by=list(self._client.partition_by),
            commit_properties=CommitProperties(
                app_transactions=[
                    Transaction(name, version)
                    for name, version in markers_of(requests, table.transaction_version).items()
                ]
            ),
        )

    def _make_log_durable(self, since: int) -> None:
        root = self._client.root
        if root is not None:
            log = root / "_delta_log"
            # From the version that this call has read: it or another committer may have written later ones, and died
            # before syncing.
            while (entry := log / f"{since:020d}.json").exists():
                sync(entry)
                since += 1
            sync(log)


def _is_statistics(text: str) -> bool:
    """Whether readers of the table can read the statistics. What they say about the rows is as true as the rows."""
    try:
        _decode_statistics(text)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return False
    return True
