"""How rows become one value: the common form of reduce and aggregate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

from tidegate.operators.column_aggregates import ColumnAggregates
from tidegate.schema.row_types import restorer
from tidegate.schema.schema import Schema


class Aggregating(Protocol):
    """An aggregate function whose accumulators can be merged."""

    def create_accumulator(self) -> Any: ...
    def add(self, value: Any, accumulator: Any, /) -> Any: ...
    def get_result(self, accumulator: Any, /) -> Any: ...
    def merge(self, a: Any, b: Any, /) -> Any: ...


class Fold:
    """How rows become one value: the common form of reduce and aggregate, for the window operator."""

    def __init__(self, value_type: object, schema: Schema) -> None:
        self.value_type = value_type
        self.schema = schema

    def first(self, row: Any) -> Any:
        raise NotImplementedError

    def add(self, value: Any, row: Any) -> Any:
        raise NotImplementedError

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError

    def result(self, value: Any) -> Any:
        raise NotImplementedError

    def of_parts(self, values: Any) -> Any:
        """The value of several rows out of what Spark SQL made of them, where it can."""
        raise NotImplementedError

    def of(self, rows: Sequence[Any]) -> Any:
        """The result of rows that are all there."""
        value = self.first(rows[0])
        for row in rows[1:]:
            value = self.add(value, row)
        return self.result(value)


class AggregateFold(Fold):
    """With a function of the user, or built-in aggregates."""

    def __init__(self, function: Aggregating, value_type: object, schema: Schema) -> None:
        super().__init__(value_type, schema)
        self.function = function

    def first(self, row: Any) -> Any:
        return self.function.add(row, self.function.create_accumulator())

    def add(self, value: Any, row: Any) -> Any:
        return self.function.add(row, value)

    def merge(self, a: Any, b: Any) -> Any:
        return self.function.merge(a, b)

    def of_parts(self, values: Any) -> Any:
        assert isinstance(self.function, ColumnAggregates)
        return self.function.of_parts(values)

    def result(self, value: Any) -> Any:
        return self.function.get_result(value)


class ReduceFold(Fold):
    """With a function of two rows."""

    def __init__(self, call: Callable[[Any, Any], Any], value_type: object, schema: Schema) -> None:
        super().__init__(value_type, schema)
        self._call = call

    @cached_property
    def _named(self) -> Callable[[Any], Any]:
        # Not before the task: what makes named rows cannot be pickled.
        return restorer(self.schema)

    def first(self, row: Any) -> Any:
        return row

    def add(self, value: Any, row: Any) -> Any:
        # What was stored, and what the function made, are bare tuples; it reads both by the names of the columns.
        return self._call(self._named(value), row)

    def merge(self, a: Any, b: Any) -> Any:
        return self._call(self._named(a), self._named(b))

    def result(self, value: Any) -> Any:
        return self._named(value)
