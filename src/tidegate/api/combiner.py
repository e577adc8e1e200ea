"""The `combine` of a function over batches: rows of a key are merged before the shuffle."""

from __future__ import annotations

from typing import TypeGuard

from tidegate.api.functions import KeyedBatchFunction
from tidegate.core.errors import GraphError
from tidegate.graph.model import Input
from tidegate.schema.schema import Schema, as_schema


class Combiner:
    """The `combine` of a function over batches, as an operator before the shuffle."""

    def __init__(self, function: KeyedBatchFunction, key: tuple[str, ...]) -> None:
        self.function = function
        self.key = key

    @staticmethod
    def is_wanted(function: object) -> TypeGuard[KeyedBatchFunction]:
        """Return whether the function's class defines `combine`."""
        return isinstance(function, KeyedBatchFunction) and type(function).combine is not KeyedBatchFunction.combine


def combined_schema(uid: str, function: KeyedBatchFunction, read: Input) -> Schema:
    """Return the columns that `combine` returns. Raises GraphError unless they have the key's columns as they are."""
    name = type(function).__name__
    if not function.combined:
        raise GraphError(
            f"{name} has a method combine, but does not say which columns it returns. Declare them on the class: "
            "combined = 'user string, n bigint'."
        )
    partial = as_schema(function.combined)
    for column in read.key:
        wanted = read.schema.fields[read.schema.index(column)].type
        if column not in partial or partial.fields[partial.index(column)].type != wanted:
            raise GraphError(
                f"process {uid!r}: the columns that {name}.combine returns ({partial}) must contain the key column "
                f"{column!r} as {wanted.ddl()}."
            )
    return partial
