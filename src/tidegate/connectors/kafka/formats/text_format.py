"""Formats whose schema is a text: Avro and JSON Schema."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

from tidegate.connectors.kafka.formats.column_match import check_fits
from tidegate.connectors.kafka.formats.registry import registry_errors, serdes
from tidegate.connectors.kafka.formats.registry_format import RegistryFormat
from tidegate.core.errors import GraphError
from tidegate.schema.datatype import DataType


@dataclass(frozen=True)
class TextFormat(RegistryFormat):
    """`schema` is the text of a schema: the reader's schema of a source, the writer's schema of a sink. Without it, a source
    reads with the latest schema of the subject when the job is built, and a sink derives one from its column."""

    registered_as: ClassVar[str]
    """The registry's name for the kind of schema."""

    _: KW_ONLY
    schema: str | None = None

    @property
    def reads_any_topic(self) -> bool:
        return self.schema is not None or super().reads_any_topic

    def document(self) -> dict[str, Any]:
        return super().document() | {"schema": self.schema}

    def pinned(self, subject: str) -> Self:
        if self.schema is not None:
            return self
        with registry_errors(self.registry, f"return the latest schema of subject {subject!r}"):
            found = self.client().get_latest_version(subject).schema
        if (found.schema_type or "AVRO") != self.registered_as:
            raise GraphError(
                f"The schemas of subject {subject!r} are {found.schema_type}, and {type(self).__name__} reads "
                f"{self.registered_as}. Use the format of the subject."
            )
        return replace(self, schema=str(found.schema_str))

    def data_type(self) -> DataType:
        return self._type_of(self._given())

    def check(self, column: DataType) -> None:
        self._to_write(column)

    def register(self, column: DataType, subject: str) -> None:
        schema, client = serdes().Schema(self._to_write(column), self.registered_as), self.client()
        if self.auto_register_schemas:
            client.register_schema(subject, schema)
        else:
            client.lookup_schema(subject, schema)

    def _to_write(self, column: DataType) -> str:
        if self.schema is None:
            return self._derived(column)
        check_fits(self._as_written(column), self._type_of(self.schema), self.registered_as)
        return self.schema

    def _as_written(self, column: DataType) -> DataType:
        """Return the type that the values of a column have in the format."""
        return column

    def _given(self) -> str:
        if self.schema is None:
            raise GraphError(f"A {type(self).__name__} to read with needs a schema.")
        return self.schema

    @abstractmethod
    def _type_of(self, schema: str) -> DataType:
        """Return the column type of a schema."""

    @abstractmethod
    def _derived(self, column: DataType) -> str:
        """Return the schema of a column type."""
