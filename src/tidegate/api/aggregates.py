"""Aggregates: user functions, with PyFlink's names, and the usual built-in ones.

    clicks.key_by("page").window(TumblingEventTimeWindows.of("1 min")).aggregate("per-minute", n=count(), spent=sum("ms"))

A built-in aggregate ignores nulls, as SQL does: only `count()` without a column counts rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from tidegate.api.rows import Acc, In, Out, Row, Stored, Typed
from tidegate.core.errors import GraphError
from tidegate.core.nearest import no_column
from tidegate.graph.combine import PartialAggregate, quoted
from tidegate.graph.row_types import python_type, restorer
from tidegate.graph.schema import KEY_KINDS, DataType, Field, Schema
from tidegate.state import distinct


class AggregateFunction(ABC, Typed, Generic[In, Acc, Out]):
    """Combines rows into an accumulator, and that into a result. Its accumulators must be mergeable for session windows."""

    @abstractmethod
    def create_accumulator(self) -> Acc:
        """Return the accumulator of no rows."""

    @abstractmethod
    def add(self, value: In, accumulator: Acc, /) -> Acc:
        """The accumulator with one more row. It may be the same object, changed."""

    @abstractmethod
    def get_result(self, accumulator: Acc, /) -> Out:
        """Return the result of the rows that were added."""

    @abstractmethod
    def merge(self, a: Acc, b: Acc, /) -> Acc:
        """Combine two accumulators, as when two sessions become one."""


Value = TypeVar("Value", contravariant=True)
Accumulator = TypeVar("Accumulator")
Result = TypeVar("Result", covariant=True)


class Accumulating(Protocol[Value, Accumulator, Result]):
    """What an `AggregatingState` needs of its function. A protocol, because type checkers then take the types from the methods of
    a class that does not name them itself: `class Mean(AggregateFunction)`."""

    def create_accumulator(self) -> Accumulator: ...
    def add(self, value: Value, accumulator: Accumulator, /) -> Accumulator: ...
    def get_result(self, accumulator: Accumulator, /) -> Result: ...


class ReduceFunction(ABC, Generic[In]):
    """Combines two rows into one of the same columns."""

    @abstractmethod
    def reduce(self, a: In, b: In, /) -> In:
        """Return one row in place of two."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A built-in aggregate of one column, or of rows. Created by `count`, `sum`, `min`, `max`, `mean` and `approx_distinct`."""

    name: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.name}({self.column or ''})"


def count(column: str | None = None) -> Aggregate:
    """The number of rows; with a column, the number of rows that are not null there."""
    return Aggregate("count", column)


def sum(column: str) -> Aggregate:
    """The sum: bigint of integers, double of floats, decimal of decimals."""
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    """The minimum."""
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """The maximum."""
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """The mean, a double."""
    return Aggregate("mean", column)


def approx_distinct(column: str) -> Aggregate:
    """The approximate number of distinct values, a bigint: nearly exact for a few, with a standard error of 2.3 % for many.
    It takes two bytes of state for each value, and 2 kB at most.
    """
    return Aggregate("approx_distinct", column)


_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_UNORDERED = ("array", "map", "struct")


class ColumnAggregates(AggregateFunction):
    """Several built-in aggregates at once. The accumulator is a tuple with one part for each; the result is their values."""

    def __init__(self, aggregates: Mapping[str, Aggregate], schema: Schema) -> None:
        made = [_made(name, aggregate, schema) for name, aggregate in aggregates.items()]
        self.fields = tuple(Field(name, type) for name, (type, _, _, _) in zip(aggregates, made))
        self.accumulator_type: Any = tuple[tuple(tp for _, tp, _, _ in made)]  # type: ignore[misc]
        self._steps = [(column, part) for _, _, column, part in made]
        self.parts = tuple(_in_sql(aggregate, schema) for aggregate in aggregates.values())
        """How Spark SQL computes a part of the accumulator from several rows."""
        self._as_they_are = all(aggregate.name != "approx_distinct" for aggregate in aggregates.values())
        if all(part.result is _same for _, part in self._steps):
            self.get_result = _same  # type: ignore[method-assign,assignment]

    def create_accumulator(self) -> Stored:
        return tuple([part.start for _, part in self._steps])

    def add(self, value: Stored, accumulator: Stored) -> Stored:
        return tuple([part.add(old, value[at]) for old, (at, part) in zip(accumulator, self._steps)])

    def of_parts(self, values: tuple[Stored, ...]) -> Stored:
        """The accumulator of what Spark SQL made."""
        if self._as_they_are:
            return values
        return tuple([part.of_sql(value) for value, (_, part) in zip(values, self._steps)])

    def get_result(self, accumulator: Stored) -> Stored:
        return tuple([part.result(value) for value, (_, part) in zip(accumulator, self._steps)])

    def merge(self, a: Stored, b: Stored) -> Stored:
        return tuple([part.merge(x, y) for x, y, (_, part) in zip(a, b, self._steps)])


@dataclass(frozen=True, slots=True)
class _AggregatePart:
    start: Any
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    of_sql: Callable[[Any], Any] = lambda value: value


def _made(name: str, aggregate: Any, schema: Schema) -> tuple[DataType, Any, int, _AggregatePart]:
    """Return the column type of the result, the Python type of the accumulator, the position of the
    column, and the implementation.
    """
    if not isinstance(aggregate, Aggregate):
        raise GraphError(f"{name}={aggregate!r} is no aggregate. Use tidegate.count(), sum(column), min, max, mean …")
    if aggregate.column is None:
        return DataType("bigint"), int, 0, _AggregatePart(0, _count_row, _plus, _same)
    if aggregate.column not in schema:
        raise GraphError(no_column(aggregate.column, schema.names, f"for {aggregate}"))
    at = schema.index(aggregate.column)
    type = schema.fields[at].type
    numeric = type.kind in (*_INTEGERS, *_FLOATS, "decimal")
    match aggregate.name:
        case "count":
            return DataType("bigint"), int, at, _AggregatePart(0, _count, _plus, _same)
        case "sum" if numeric:
            out = _sum_type(type)
            return out, python_type(out) | None, at, _AggregatePart(None, _sum, _sum, _same)
        case "mean" if numeric:
            inner = python_type(_sum_type(type)) | None
            return DataType("double"), tuple[inner, int], at, _AggregatePart((None, 0), _add_mean, _merge_mean, _mean)  # type: ignore[valid-type]
        case "min" | "max" if type.kind not in _UNORDERED:
            how = _least if aggregate.name == "min" else _greatest
            if type.kind in _FLOATS:
                how = _least_float if aggregate.name == "min" else _greatest_float
            return type, python_type(type) | None, at, _AggregatePart(None, how, how, _same)
        case "approx_distinct" if type.kind in KEY_KINDS:
            return (
                DataType("bigint"),
                bytes,
                at,
                _AggregatePart(
                    start=b"",
                    add=distinct.adding(type),
                    merge=distinct.merge,
                    result=distinct.estimate,
                    of_sql=distinct.of,
                ),
            )
    raise GraphError(f"{aggregate} cannot be made of a column of type {type}.")


def _in_sql(aggregate: Aggregate, schema: Schema) -> PartialAggregate:
    """Return the same as a Spark SQL aggregate over the rows of a group. Its value is a part of an accumulator."""
    name, of = aggregate.name, aggregate.column
    if of is None:
        return PartialAggregate("count(*)", DataType("bigint"), name)
    column, type = quoted(of), schema.fields[schema.index(of)].type
    match name:
        case "count":
            return PartialAggregate(f"count({column})", DataType("bigint"), name, of)
        case "sum":
            return PartialAggregate(f"cast(sum({column}) as {_sum_type(type).ddl()})", _sum_type(type), name, of)
        case "mean":
            whole = _sum_type(type)
            fields = (Field("total", whole), Field("n", DataType("bigint")))
            total = f"cast(sum({column}) as {whole.ddl()})"
            return PartialAggregate(
                f"named_struct('total', {total}, 'n', count({column}))", DataType("struct", fields=fields), name, of
            )
        case "approx_distinct":
            return PartialAggregate(distinct.codes_sql(column), DataType("array", element=DataType("int")), name, of)
    return PartialAggregate(f"{name}({column})", type, name, of)


def _sum_type(type: DataType) -> DataType:
    if type.kind == "decimal":
        return DataType("decimal", precision=38, scale=type.scale)
    return DataType("bigint" if type.kind in _INTEGERS else "double")


def _same(value: Any) -> Any:
    return value


def _count_row(old: int, value: Any) -> int:
    return old + 1


def _count(old: int, value: Any) -> int:
    return old if value is None else old + 1


def _plus(a: int, b: int) -> int:
    return a + b


def _sum(old: Any, value: Any) -> Any:
    return old if value is None else value if old is None else old + value


def _least(old: Any, value: Any) -> Any:
    return old if value is None or (old is not None and old <= value) else value


def _greatest(old: Any, value: Any) -> Any:
    return old if value is None or (old is not None and old >= value) else value


def _least_float(old: Any, value: Any) -> Any:
    """NaN is greater than everything else, as in SQL."""
    return old if value is None or (old is not None and (value != value or old <= value)) else value


def _greatest_float(old: Any, value: Any) -> Any:
    return old if value is None or (old is not None and (old != old or old >= value)) else value


def _add_mean(old: tuple[Any, int], value: Any) -> tuple[Any, int]:
    return old if value is None else (_sum(old[0], value), old[1] + 1)


def _merge_mean(a: tuple[Any, int], b: tuple[Any, int]) -> tuple[Any, int]:
    return _sum(a[0], b[0]), a[1] + b[1]


def _mean(value: tuple[Any, int]) -> float | None:
    total, n = value
    return None if n == 0 else float(total / n)


class Fold:
    """How rows become one value: the common form of reduce and aggregate, for the window operator."""

    def __init__(self, value_type: object, schema: Schema) -> None:
        self.value_type = value_type
        self.schema = schema

    def first(self, row: Row) -> Stored:
        raise NotImplementedError

    def add(self, value: Stored, row: Row) -> Stored:
        raise NotImplementedError

    def merge(self, a: Stored, b: Stored) -> Stored:
        raise NotImplementedError

    def result(self, value: Stored) -> Stored:
        raise NotImplementedError

    def of_parts(self, values: Stored) -> Stored:
        """The value of several rows out of what Spark SQL made of them, where it can."""
        raise NotImplementedError

    def open(self) -> None:
        """Called once in the task."""

    def of(self, rows: Sequence[Row]) -> Stored:
        """The result of rows that are all there."""
        value = self.first(rows[0])
        for row in rows[1:]:
            value = self.add(value, row)
        return self.result(value)


class AggregateFold(Fold):
    def __init__(self, function: AggregateFunction, value_type: object, schema: Schema) -> None:
        super().__init__(value_type, schema)
        self.function = function

    def first(self, row: Row) -> Stored:
        return self.function.add(row, self.function.create_accumulator())

    def add(self, value: Stored, row: Row) -> Stored:
        return self.function.add(row, value)

    def merge(self, a: Stored, b: Stored) -> Stored:
        return self.function.merge(a, b)

    def of_parts(self, values: Stored) -> Stored:
        assert isinstance(self.function, ColumnAggregates)
        return self.function.of_parts(values)

    def result(self, value: Stored) -> Stored:
        return self.function.get_result(value)


class ReduceFold(Fold):
    def __init__(self, call: Callable[[Row, Row], Row], value_type: object, schema: Schema) -> None:
        super().__init__(value_type, schema)
        self._call = call

    def open(self) -> None:
        self._named = restorer(self.schema)

    def first(self, row: Row) -> Stored:
        return row

    def add(self, value: Stored, row: Row) -> Stored:
        # What was stored, and what the function made, are bare tuples; it reads both by the names of the columns.
        return self._call(self._named(value), row)

    def merge(self, a: Stored, b: Stored) -> Stored:
        return self._call(self._named(a), self._named(b))

    def result(self, value: Stored) -> Stored:
        return self._named(value)
