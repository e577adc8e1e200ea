"""Real tables as targets of the contract, each with what readers see of it and what its keepers do to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

from tidegate.connectors.lakehouse import DeltaSink, IcebergSink
from tidegate.connectors.sink import Committable, Committer, CommitterContext, Sink, WriterContext
from tidegate.core.ids import AttemptId, EpochId, Lineage, Slot, Term, Uid
from tidegate.schema.schema import Schema

SCHEMA = Schema.parse("id bigint NOT NULL, day date, name string")
LINEAGE, SINK = Lineage("line1"), Uid("out")

Rows = list[tuple[Any, ...]]


class Target(Protocol):
    """A table under test."""

    sink: Sink

    def rows(self) -> Rows:
        """What a reader sees now, in order."""
        ...

    def tidy(self) -> None:
        """Everything that keepers of a table do: compaction, removal of history and of files that nobody names."""
        ...


class DeltaTarget:
    def __init__(self, uri: str, partition_by: tuple[str, ...] = (), options: Mapping[str, str] | None = None) -> None:
        self.options = dict(options or {})
        self.sink = DeltaSink(uri, partition_by, create=True, storage_options=self.options)

    def open(self) -> DeltaTable:
        return DeltaTable(self.sink.table_uri, storage_options=self.options)

    def rows(self) -> Rows:
        return as_rows(self.open().to_pyarrow_table())

    def tidy(self) -> None:
        self.open().optimize.compact()
        self.open().create_checkpoint()
        self.open().cleanup_metadata()
        self.open().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


class IcebergTarget:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}/warehouse",
        }
        self.sink = IcebergSink("lake", "db.events", self.properties, create=True)
        self.catalog().create_namespace_if_not_exists("db")

    def catalog(self) -> Catalog:
        return load_catalog("lake", **self.properties)

    def rows(self) -> Rows:
        return as_rows(self.catalog().load_table("db.events").scan().to_arrow())

    def tidy(self) -> None:
        table = self.catalog().load_table("db.events")
        all_rows = table.scan().to_arrow()
        table.overwrite(all_rows)
        table = self.catalog().load_table("db.events")
        current = table.current_snapshot()
        table.maintenance.expire_snapshots().by_ids(
            [s.snapshot_id for s in table.snapshots() if current is None or s.snapshot_id != current.snapshot_id]
        ).commit()


def as_rows(table: pa.Table) -> Rows:
    columns = [table.column(name).to_pylist() for name in table.column_names]
    return sorted(zip(*columns), key=repr)


def epoch(term: int, number: int) -> EpochId:
    return EpochId(Term(term), number)


def stage(
    sink: Sink,
    rows: Iterable[tuple[Any, ...]],
    at: EpochId,
    *,
    slot: int = 0,
    attempt: int = 1,
    lineage: Lineage = LINEAGE,
    schema: Schema = SCHEMA,
    finish: bool = True,
) -> Committable:
    """One attempt of one task, from its first row to what it would acknowledge. Without `finish` it fails at the end."""
    context = WriterContext(
        lineage=lineage, sink=SINK, epoch=at, slot=Slot(slot), attempt=AttemptId(attempt), schema=schema, staging=None
    )  # type: ignore[arg-type]
    writer = sink.create_writer(context)
    for batch in batches(rows, schema):
        writer.write(batch)
    if not finish:
        writer.abort()
        return Committable(lineage=lineage, sink=SINK, epoch=at, slot=Slot(slot), payload=b"")
    payload = writer.prepare_commit()
    assert payload is not None
    return Committable(lineage=lineage, sink=SINK, epoch=at, slot=Slot(slot), payload=payload)


def batches(rows: Iterable[tuple[Any, ...]], schema: Schema, size: int = 2) -> list[pa.RecordBatch]:
    arrow, all_rows = schema.to_arrow(), list(rows)
    return [
        pa.RecordBatch.from_arrays([pa.array(list(c), f.type) for c, f in zip(zip(*some), arrow)], schema=arrow)
        for some in (all_rows[at : at + size] for at in range(0, len(all_rows), size))
    ]


def committer(sink: Sink, schema: Schema = SCHEMA) -> Committer:
    """What a driver makes when it starts: another one each time."""
    return sink.create_committer(CommitterContext(schema, read=lambda token: b""))
