"""Aggregates: user functions, with PyFlink's names, and the usual built-in ones.

    clicks.key_by("page").window(TumblingEventTimeWindows.of("1 min")).aggregate("per-minute", n=count(), spent=sum("ms"))

A built-in aggregate ignores nulls, as SQL does: only `count()` without a column counts rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from tidegate.api.rows import Acc, In, Out, Typed
from tidegate.operators.column_aggregates import Aggregate


class AggregateFunction(ABC, Typed, Generic[In, Acc, Out]):
    """Combines rows into an accumulator, and that into a result.

    Examples:
        >>> class Mean(tg.AggregateFunction):
        ...     def create_accumulator(self):
        ...         return 0.0, 0
        ...     def add(self, order, accumulator):
        ...         return accumulator[0] + order.amount, accumulator[1] + 1
        ...     def get_result(self, accumulator):
        ...         return (accumulator[0] / accumulator[1],)
        ...     def merge(self, a, b):
        ...         return a[0] + b[0], a[1] + b[1]
        >>> windows = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min"))
        >>> means = windows.aggregate("mean", Mean(), accumulator=tuple[float, int], schema="mean double")
        >>> with tg.testing.harness(means) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.advance_watermark(T0 + timedelta(minutes=1))
        ...     h.output()
        [Struct(mean=6.0)]
    """

    @abstractmethod
    def create_accumulator(self) -> Acc:
        """Return the accumulator of no rows."""

    @abstractmethod
    def add(self, value: In, accumulator: Acc, /) -> Acc:
        """Return the accumulator with one more row. It may be the same object, changed.

        Args:
            value: The row to add.
            accumulator: What the rows before it were combined into.
        """

    @abstractmethod
    def get_result(self, accumulator: Acc, /) -> Out:
        """Return the result of the rows that were added.

        Args:
            accumulator: What all rows were combined into. Do not change it: more rows may be added to it later.
        """

    @abstractmethod
    def merge(self, a: Acc, b: Acc, /) -> Acc:
        """Return one accumulator for the rows of two. Session windows call this when two sessions become one.

        Args:
            a: The accumulator of one part of the rows. It may be changed and returned.
            b: The accumulator of the other part.
        """


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
    """Combines two rows into one of the same columns.

    Examples:
        >>> class Larger(tg.ReduceFunction):
        ...     def reduce(self, a, b):
        ...         return a if a.amount >= b.amount else b
        >>> largest = orders.key_by("user").window(tg.TumblingEventTimeWindows.of("1 min")).reduce("largest", Larger())
        >>> with tg.testing.harness(largest) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.advance_watermark(T0 + timedelta(minutes=1))
        ...     [order.id for order in h.output()]
        [2]
    """

    @abstractmethod
    def reduce(self, a: In, b: In, /) -> In:
        """Return one row in place of two.

        Args:
            a: The row that earlier rows were reduced to.
            b: The next row or, when two sessions become one, the row that the other session was reduced to.
        """


def count(column: str | None = None) -> Aggregate:
    """The number of rows, as bigint.

    Args:
        column: Count only the rows that are not null in this column. By default, every row counts.

    Examples:
        >>> counts = orders.key_by("user").aggregate("counts", n=tg.count())
        >>> with tg.testing.harness(counts) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.set_processing_time(T0)
        ...     h.output()
        [Struct(user='ann', n=2)]
    """
    return Aggregate("count", column)


def sum(column: str) -> Aggregate:
    """The sum: bigint of integers, double of floats, decimal of decimals.

    Args:
        column: The numbers to add up. Nulls are ignored; without any number the sum is null.

    Examples:
        >>> totals = orders.key_by("user").aggregate("totals", total=tg.sum("amount"))
        >>> with tg.testing.harness(totals) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.set_processing_time(T0)
        ...     h.output()
        [Struct(user='ann', total=12.0)]
    """
    return Aggregate("sum", column)


def min(column: str) -> Aggregate:
    """The minimum, of the same type as the column.

    Args:
        column: The values to compare: numbers, strings, dates or timestamps. Nulls are ignored.

    Examples:
        >>> smallest = orders.key_by("user").aggregate("smallest", least=tg.min("amount"))
        >>> with tg.testing.harness(smallest) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.set_processing_time(T0)
        ...     h.output()
        [Struct(user='ann', least=5.0)]
    """
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """The maximum, of the same type as the column.

    Args:
        column: The values to compare: numbers, strings, dates or timestamps. Nulls are ignored.

    Examples:
        >>> largest = orders.key_by("user").aggregate("largest", most=tg.max("amount"))
        >>> with tg.testing.harness(largest) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.set_processing_time(T0)
        ...     h.output()
        [Struct(user='ann', most=7.0)]
    """
    return Aggregate("max", column)


def mean(column: str) -> Aggregate:
    """The mean, a double.

    Args:
        column: The numbers to average. Nulls are ignored; without any number the mean is null.

    Examples:
        >>> means = orders.key_by("user").aggregate("means", mean=tg.mean("amount"))
        >>> with tg.testing.harness(means) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0))
        ...     h.set_processing_time(T0)
        ...     h.output()
        [Struct(user='ann', mean=6.0)]
    """
    return Aggregate("mean", column)


def approx_distinct(column: str) -> Aggregate:
    """The approximate number of distinct values, a bigint: nearly exact for a few, with a standard error of 2.3 % for many.
    It takes two bytes of state for each value, and 2 kB at most.

    Args:
        column: The values to count, of any type that can be a key. Nulls are ignored.

    Examples:
        >>> distinct = orders.key_by("user").aggregate("distinct", amounts=tg.approx_distinct("amount"))
        >>> with tg.testing.harness(distinct) as h:
        ...     h.process((1, "ann", 5.0, T0), (2, "ann", 7.0, T0), (3, "ann", 5.0, T0))
        ...     h.set_processing_time(T0)
        ...     h.output()
        [Struct(user='ann', amounts=2)]
    """
    return Aggregate("approx_distinct", column)
