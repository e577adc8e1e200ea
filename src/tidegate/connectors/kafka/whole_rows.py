"""Rows that are records as a whole: their columns are the fields of the value, and some of them form the key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.core.errors import GraphError
from tidegate.schema.datatype import DataType, Field
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class WholeRows:
    """How rows of a schema become records. The value has all columns, also those of the key, as readers expect who see only
    values."""

    schema: Schema
    key_fields: tuple[str, ...]
    encodes_key: bool
    """Whether a format encodes the key. Otherwise the key is a column as it is."""

    @property
    def records(self) -> Schema:
        """The schema of the records before they are encoded."""
        value = Field("value", DataType("struct", fields=self.schema.fields))
        key = self._key()
        return Schema((value,)) if key is None else Schema((key, value))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        columns = {}
        records = self.records.to_arrow()
        if "key" in records.names:
            parts = [batch.column(self.schema.index(name)) for name in self.key_fields]
            columns["key"] = self._struct(parts, records.field("key")) if self.encodes_key else parts[0]
        columns["value"] = self._struct(batch.columns, records.field("value"))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _key(self) -> Field | None:
        columns = self.schema.select(self.key_fields).fields
        if not columns:
            return None
        if self.encodes_key:
            return Field("key", DataType("struct", fields=columns))
        if len(columns) > 1 or columns[0].type.kind not in ("string", "binary"):
            found = ", ".join(column.ddl() for column in columns)
            raise GraphError(
                f"The key of a Kafka record is bytes, and key_fields are {found}. Add key_format=tg.JsonFormat(), or name a "
                "single column of type string."
            )
        return Field("key", columns[0].type)

    @staticmethod
    def _struct(columns: list[pa.Array], field: pa.Field) -> pa.Array:
        import pyarrow as pa

        # Only the arrays are put together; no value is copied.
        return pa.StructArray.from_arrays(columns, fields=list(field.type))
