"""What a task must know about an Iceberg table to write a file for it: column ids, partitions, file locations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.connectors.lakehouse.cleaner import TableFiles
from tidegate.connectors.lakehouse.errors import TableUnsuitable, check_credentials
from tidegate.connectors.lakehouse.names import local_path
from tidegate.connectors.lakehouse.partitions import Coded
from tidegate.core.errors import SchemaError
from tidegate.core.redaction import redacted
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema as IcebergSchema
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

KEPT_SECONDS = 60.0
"""How long a worker reuses its last view of a table. Files for an older schema stay valid, since columns have ids."""

_kept: dict[tuple[Any, ...], tuple[float, TableView]] = {}
"""A cache: workers are reused, and querying the catalog in every task of every epoch would overload it."""


@dataclass(frozen=True)
class TableView:
    """A table as it was at one moment."""

    metadata: TableMetadata
    io: FileIO

    def columns(self, schema: Schema) -> IcebergSchema:
        """Return the columns of the rows with the table's ids, in the order of the table."""
        try:
            return self.metadata.schema().select(*schema.names)
        except ValueError as error:
            raise SchemaError(
                f"The columns of the Iceberg table at {self.metadata.location} changed while the job was running: "
                f"{error}. Change them back, or stop the job and adapt it to the table."
            ) from error

    def partition_fields(self) -> tuple[PartitionField, ...]:
        return tuple(self.metadata.spec().fields)

    @cached_property
    def _source_names(self) -> list[str]:
        return [self.metadata.schema().find_column_name(f.source_id) or "" for f in self.partition_fields()]

    def partition_values(self, batch: pa.RecordBatch) -> list[Coded]:
        """Return the partition of each row, as Iceberg stores it: dates as days, times as microseconds."""
        import pyarrow as pa

        found = []
        for field, name in zip(self.partition_fields(), self._source_names):
            column = batch.column(name)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.int64())
            elif pa.types.is_date32(column.type):
                column = column.cast(pa.int32())
            # Iceberg computes transforms of integers, not of dates and times.
            change = field.transform.transform(self.metadata.schema().find_type(field.source_id))
            found.append(Coded.of(column, change))
        return found

    def location(self, partition: tuple[Any, ...], name: str) -> str:
        from pyiceberg.table.locations import load_location_provider
        from pyiceberg.typedef import Record

        spec = self.metadata.spec()
        if partition:
            name = f"{spec.partition_to_path(Record(*partition), self.metadata.schema())}/{name}"
        return load_location_provider(self.metadata.location, self.metadata.properties).new_data_location(name)

    def folders_of(self, file: Path) -> list[Path]:
        """Return the folders above a data file on local disk that this process may have created, the innermost first, and the one
        above those."""
        from pyiceberg.table import TableProperties

        elsewhere = self.metadata.properties.get(TableProperties.WRITE_DATA_PATH)
        root = local_path(elsewhere or self.metadata.location)
        # The folder of the table exists since the table does. That for data elsewhere may be new.
        top = root.parent if elsewhere and root is not None else root
        return [] if top is None else [folder for folder in file.parents if folder.is_relative_to(top)]


def view(catalog: Callable[[], Catalog], table: str, key: tuple[Any, ...]) -> TableView:
    """Return the current table, or the view of it that this process cached within the last minute."""
    known = _kept.get(key)
    if known is not None and time.monotonic() - known[0] < KEPT_SECONDS:
        return known[1]
    loaded = catalog().load_table(table)
    seen = TableView(loaded.metadata, loaded.io)
    _kept[key] = (time.monotonic(), seen)
    return seen


def check_table(table: Table, name: str, schema: Schema) -> None:
    """Raise SchemaError or TableUnsuitable if the table cannot take these rows."""
    from pyiceberg.io.pyarrow import _check_pyarrow_schema_compatible
    from pyiceberg.table import TableProperties

    metadata = table.metadata
    try:
        _check_pyarrow_schema_compatible(metadata.schema(), schema.to_arrow(), format_version=metadata.format_version)
    except (ValueError, TypeError) as error:
        raise SchemaError(
            f"Rows do not fit the Iceberg table {name}. {error}\nChange the job or the table; declare a column NOT "
            "NULL in the job if the table requires it."
        ) from error
    wrong = [*_demands(metadata, schema)]
    format = metadata.properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet")
    if format != "parquet":
        wrong.append(f"its files are {format} (write.format.default), but the sink writes parquet")
    if wrong:
        raise TableUnsuitable(f"The Iceberg table {name} cannot be written: {'; '.join(wrong)}.")


def _demands(metadata: TableMetadata, schema: Schema) -> list[str]:
    from pyiceberg.types import BinaryType, DecimalType, DoubleType, FixedType, FloatType, UUIDType

    wrong = []
    for field in metadata.spec().fields:
        source = metadata.schema().find_column_name(field.source_id) or ""
        made = field.transform.result_type(metadata.schema().find_type(field.source_id))
        if source not in schema:
            wrong.append(f"it is partitioned by {source!r}, which is not a column of the rows")
        elif isinstance(made, (BinaryType, DecimalType, DoubleType, FixedType, FloatType, UUIDType)):
            wrong.append(f"its partition {field.name!r} is a {made}, which the sink does not write")
    return wrong


def load(name: str, properties: Mapping[str, str]) -> Catalog:
    from pyiceberg.catalog import load_catalog

    return load_catalog(name, **properties)


def shown(name: str, properties: Mapping[str, str]) -> str:
    """Return the catalog for messages, with the address and the warehouse that the sink was given."""
    given = [redacted(properties[key]) for key in ("uri", "warehouse", "s3.endpoint") if properties.get(key)]
    user = next((properties[key] for key in ("s3.access-key-id", "client.access-key-id") if properties.get(key)), None)
    place = f"catalog {name}" + (f" ({', '.join(given)})" if given else "")
    return place if user is None else f"{place} with the key {user}"


_CREDENTIALS = (
    "s3.access-key-id",
    "client.access-key-id",
    "s3.profile-name",
    "client.profile-name",
    "s3.role-arn",
    "client.role-arn",
    "s3.anonymous",
    "s3.signer",
)


def check_catalog_credentials(target: str, properties: Mapping[str, str]) -> None:
    """Refuse a warehouse on S3 without credentials. A REST catalog hands out credentials of its own, so it is not asked about."""
    if properties.get("type") == "rest" or properties.get("uri", "").startswith("http"):
        return
    remedy = "s3.access-key-id and s3.secret-access-key in the properties"
    check_credentials(target, properties.get("warehouse", ""), properties, _CREDENTIALS, remedy)


def marker_in(table: Table, name: str) -> int | None:
    """Return the number under the name of a marker."""
    found = table.metadata.properties.get(name)
    return None if found is None else int(found)


def table_files(catalog: Catalog, name: str) -> TableFiles | None:
    """Return the table as a cleaner sees it; None if there is none."""
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.table import TableProperties

    if not catalog.table_exists(name):
        return None
    table = catalog.load_table(name)
    # Whatever client the catalog is configured with: pyiceberg's own port cannot list.
    files = PyArrowFileIO(table.io.properties)
    data = table.metadata.properties.get(TableProperties.WRITE_DATA_PATH, f"{table.metadata.location.rstrip('/')}/data")
    scheme, netloc, folder = PyArrowFileIO.parse_location(data, table.io.properties)
    return TableFiles(
        files.fs_by_scheme(scheme, netloc),
        folder,
        partial(marker_in, table),
        lambda: {path.rpartition("/")[2] for path in table.inspect.all_files()["file_path"].to_pylist()},
    )
