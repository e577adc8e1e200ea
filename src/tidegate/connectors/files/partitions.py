"""Split rows by the folder they belong to, `day=2024-05-01/hour=7`, as Hive and Spark name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import GraphError
from tidegate.core.nearest import no_column
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

NULL = "__HIVE_DEFAULT_PARTITION__"
KINDS = frozenset({"string", "boolean", "tinyint", "smallint", "int", "bigint", "date", "decimal"})
"""Types whose values have exactly one text form, independent of time zone and rounding."""

_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{}\[\]^]")


def check_partitions(columns: Sequence[str], schema: Schema) -> None:
    """Raise GraphError if rows of `schema` cannot be partitioned by these columns."""
    for name in columns:
        if name not in schema:
            raise GraphError(no_column(name, schema.names, "to partition by"))
        kind = schema.fields[schema.index(name)].type.kind
        if kind not in KINDS:
            raise GraphError(
                f"The column {name!r} is a {kind} and cannot name folders; partition by {', '.join(sorted(KINDS))}. "
                "Convert it to a date or a string."
            )
    if columns and set(columns) == set(schema.names):
        raise GraphError("All columns name folders, so no column is left for the files. Partition by fewer columns.")


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each folder in their original order, without the columns that the folder's name encodes."""
    if not columns:
        yield "", batch
        return
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, values in enumerate(zip(*(batch.column(name).to_pylist() for name in columns))):
        groups.setdefault(values, []).append(row)
    rest = batch.select([name for name in batch.schema.names if name not in columns])
    for values, rows in groups.items():
        folder = "".join(f"{_escape(name)}={text_of(value)}/" for name, value in zip(columns, values))
        yield folder, rest if len(groups) == 1 else rest.take(rows)


def text_of(value: Any) -> str:
    match value:
        # As Hive and Spark: an empty name of a folder would be none.
        case None | "":
            return NULL
        # Before `str`: Hive writes booleans in lower case.
        case bool():
            return "true" if value else "false"
        case date():
            return value.isoformat()
    return _escape(str(value))


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
