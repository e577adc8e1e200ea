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
