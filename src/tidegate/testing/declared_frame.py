"""A streaming DataFrame that has columns and no rows, for jobs that are declared but not run."""

from __future__ import annotations

from typing import Any

from tidegate.schema.schema import Schema, as_schema


class DeclaredFrame:
    """Stands in for a streaming DataFrame when a job is declared but not run."""

    # What `Job.source` reads of a DataFrame, with Spark's names: it must not depend on pyspark to do so.
    isStreaming = True

    def __init__(self, schema: str | Schema) -> None:
        self._schema = as_schema(schema)

    @property
    def schema(self) -> DeclaredFrame:
        # Spark's StructType is an object of its own. This one object answers for both.
        return self

    def jsonValue(self) -> dict[str, Any]:
        fields = [
            {"name": field.name, "type": field.type.ddl(), "nullable": field.nullable, "metadata": {}}
            for field in self._schema
        ]
        return {"type": "struct", "fields": fields}


def frame(schema: str | Schema) -> DeclaredFrame:
    """Create what `job.source` takes in a test without a JVM: only columns, no rows.

    Args:
        schema: The columns, as in `"user string, amount double"`.

    Examples:
        >>> tg.Job("test").source("orders", tg.testing.frame("user string, amount double"))
        <Stream of source 'orders': user string, amount double>
    """
    return DeclaredFrame(schema)
