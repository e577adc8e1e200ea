"""Metrics in Flink's form, which the dashboard reads; `GET /metrics` has them for Prometheus."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

Aggregate = float | Literal["NaN"]
"""`NaN` is a text, as in Flink: no task has a value."""


class MetricValue(Struct, frozen=True):
    """The id of a metric and, where metrics were asked for by their ids, the value as a text."""

    id: str
    value: str | UnsetType = UNSET


class AggregatedMetric(Struct, frozen=True, kw_only=True):
    """The id of a metric and, where metrics were asked for by their ids, the aggregates of its values that were asked for.

    `skew` is the average absolute deviation in percent of the average, at most 100.
    """

    id: str
    min: Aggregate | UnsetType = UNSET
    max: Aggregate | UnsetType = UNSET
    avg: Aggregate | UnsetType = UNSET
    sum: Aggregate | UnsetType = UNSET
    skew: Aggregate | UnsetType = UNSET
