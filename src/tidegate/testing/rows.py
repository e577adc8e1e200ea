"""Rows between a test and its function, converted and checked as a job does it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tidegate.core.errors import SchemaError
from tidegate.graph.model import Input
from tidegate.runtime.exchange.user_code import FunctionFailed
from tidegate.runtime.task.operators.function_context import FunctionContext
from tidegate.runtime.task.operators.operator import Emit
from tidegate.schema.columns import rows_of, struct_class
from tidegate.schema.output_batches import output_batch
from tidegate.schema.output_columns import batch_from_rows
from tidegate.schema.schema import Schema
from tidegate.state.keys.key_index import KeyIndex
from tidegate.state.keys.key_scope import KeyScope


def as_in_a_job(rows: Sequence[Any], schema: Schema) -> list[Any]:
    """Convert tuples, lists, dicts or objects to rows as an operator reads them from Spark: 5 is 5.0 in a double column.
    Raises SchemaError for values that do not fit.
    """
    # Through Arrow and back, which is how rows reach a worker: what a column cannot hold fails here.
    return rows_of(batch_from_rows(rows, schema).columns, schema, struct_class(schema.fields))


def collect_rows(collected: list[Any], schema: Schema | None) -> Emit:
    """Collect what a function emits. Rows that do not fit the schema fail immediately, as they would in a job."""

    def emit(rows: Sequence[Any]) -> None:
        if schema is not None:
            collected.extend(as_in_a_job(rows, schema))
            return

        # Without a schema nothing can be converted. But `return user, n` in place of `yield` emits two values, which would
        # pass as two rows.
        for row in rows:
            if isinstance(row, str | bytes | int | float | None):
                raise SchemaError(
                    f"The function emitted {row!r}, which is not a row: rows are tuples or dicts. To emit one row, yield it "
                    f"instead of returning it; a row of one column is written ({row!r},)."
                )
        collected.extend(tuple(row) if isinstance(row, list) else row for row in rows)

    return emit


def collect_batches(collected: list[Any], schema: Schema) -> Emit:
    """Collect the rows of the batches that a function emits."""
    return lambda batch: collected.extend(rows_of(batch.columns, schema, struct_class(schema.fields)))


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise the function's own error, with its own traceback, which is what a test expects."""
    try:
        yield
    except FunctionFailed as failed:
        error = failed.__cause__ or failed
        if isinstance(error, TypeError) and str(error).startswith("tuple indices must be integers"):
            error.add_note("A row is a tuple with names: write row.column instead of row['column'].")
        raise error from None


def combined_before_shuffle(
    rows: Sequence[Any], function: Any, read: Input, partial: Schema, context: FunctionContext
) -> Sequence[Any]:
    """Combine rows with the function's own `combine`, as the sending task does. Return rows of the schema `partial`."""
    batch = batch_from_rows(rows, read.schema)
    fields = [read.schema.fields[read.schema.index(column)] for column in read.key]
    columns = [batch.column(field.name) for field in fields]
    # Before the shuffle no key has a key group yet.
    no_groups = np.zeros(batch.num_rows, int)
    keys = KeyIndex.of_columns(fields, columns, no_groups, KeyScope())

    # The sender has a copy of the function of its own: what it keeps in attributes must not reach the receiving one.
    sender = copy.deepcopy(function)
    sender.open(context)
    combined = output_batch(sender.combine(batch, keys), partial)
    sender.close()
    return rows_of(combined.columns, partial, struct_class(partial.fields))
