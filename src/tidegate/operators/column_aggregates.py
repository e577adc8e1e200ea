"""Built-in aggregates: what a job declares of them, and how rows become their values.

A built-in aggregate ignores nulls, as SQL does: only `count()` without a column counts rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.core.errors import GraphError
from tidegate.core.nearest import no_column
from tidegate.graph.combine import PartialAggregate, quoted
from tidegate.schema.row_types import python_type
from tidegate.schema.schema import KEY_KINDS, DataType, Field, Schema
from tidegate.state.keys import distinct


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A built-in aggregate of one column, or of rows. Created by `count`, `sum`, `min`, `max`, `mean` and `approx_distinct`."""

    name: str
    column: str | None = None

    def __str__(self) -> str:
        return f"{self.name}({self.column or ''})"


_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATS = ("float", "double")
_UNORDERED = ("array", "map", "struct")


class ColumnAggregates:
    """Several built-in aggregates at once. The accumulator is a tuple with one part for each; the result is their values."""

    def __init__(self, aggregates: Mapping[str, Aggregate], schema: Schema) -> None:
        made = [_made(name, aggregate, schema) for name, aggregate in aggregates.items()]
        self.fields = tuple(Field(name, type) for name, (type, _, _, _) in zip(aggregates, made))
        self.accumulator_type: Any = tuple[tuple(tp for _, tp, _, _ in made)]  # type: ignore[misc]
        self._steps = [(column, part) for _, _, column, part in made]
        self.parts = tuple(_in_sql(aggregate, schema) for aggregate in aggregates.values())
        """How Spark SQL computes a part of the accumulator from several rows."""
        self._as_they_are = all(aggregate.name != "approx_distinct" for aggregate in aggregates.values())
        self._is_its_result = all(part.result is _same for _, part in self._steps)
        """Whether the accumulator has the values of the result."""

    def create_accumulator(self) -> Any:
        return tuple([part.start for _, part in self._steps])

    # Per-record code: a tuple of a list is built faster than one of a generator.

    def add(self, value: Any, accumulator: Any) -> Any:
        return tuple([part.add(old, value[at]) for old, (at, part) in zip(accumulator, self._steps)])

    def of_parts(self, values: tuple[Any, ...]) -> Any:
        """The accumulator of what Spark SQL made."""
        if self._as_they_are:
            return values
        return tuple([part.of_sql(value) for value, (_, part) in zip(values, self._steps)])

    def get_result(self, accumulator: Any) -> Any:
        if self._is_its_result:
            return accumulator
        return tuple([part.result(value) for value, (_, part) in zip(accumulator, self._steps)])

    def merge(self, a: Any, b: Any) -> Any:
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

    # Without any value a sum, a mean, a minimum and a maximum are null, as in SQL: their accumulators begin with None.
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
            # To SQL, NaN is greater than every number. To Python, no comparison with it holds.
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
    # Spark widens a sum by rules of its own: the casts give it the type that the state has.
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
            # Means cannot be merged. Their sums and counts can.
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
