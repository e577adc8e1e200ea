"""The state of Spark SQL's own operators, where tidegate has the same operator: aggregates of a key, of windows, and seen keys.

Spark stores the buffers of aggregate functions one after the other, without the columns they belong to. So the job declares the
aggregates in the order of the query, and the names of the buffers (`count`, `sum`, …) show whether the order can be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tidegate.control.spark_import.carried_state import (
    CarriedState,
    FieldsOf,
    ImportRefused,
    KeyMatch,
    LeftState,
    SparkRows,
    Verdict,
)
from tidegate.core.times import TimeDomain
from tidegate.graph.combine import PartialAggregate
from tidegate.graph.model import Process
from tidegate.graph.states import TIMERS, StateSpec
from tidegate.operators.column_aggregates import ColumnAggregates
from tidegate.operators.deduplicate import Deduplicate
from tidegate.operators.running_aggregate import RunningAggregate
from tidegate.operators.window_operator import WindowOperator
from tidegate.savepoint.entries import StateEntry, StateLayout
from tidegate.savepoint.incoming import new_entry
from tidegate.schema.datatype import DataType
from tidegate.state.keys.entry_keys import TimeWindow

_COLUMNS = ("key", "value")
_WINDOW = "window"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")

Take = Callable[[Sequence[Any]], Any]
"""Makes a part of an accumulator out of the buffers."""


def aggregate_state(operator: int, node: Process, fields_of: FieldsOf) -> list[Verdict]:
    """Decide about `groupBy(…).agg(…)` without a window."""
    function: RunningAggregate = node.function
    spark_name = "aggregates of a key"
    fields = fields_of({})
    try:
        key = KeyMatch(node, fields["key"])
        parts = _parts(function.aggregates, node, fields["value"])
    except ValueError as error:
        return [LeftState(operator=operator, spark_name=spark_name, why=str(error))]

    def entries(layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        return (new_entry(layout, key.of(row[0]), tuple([take(row[1]) for take in parts])) for row in rows)

    return [_carried(operator, spark_name, node, node.states[0], entries, _swappable(function.aggregates, node))]


def window_state(operator: int, node: Process, fields_of: FieldsOf) -> list[Verdict]:
    """Decide about `groupBy(window(…), …).agg(…)`: one value for each key and window, and the timer that ends the window."""
    function: WindowOperator = node.function
    spark_name = "aggregates of windows"
    uid = str(node.uid)
    fields = fields_of({})

    # Spark stores the window as one column of the key, wherever the query named it.
    key_columns = fields["key"]
    place = next((at for at, (name, _) in enumerate(key_columns) if name == _WINDOW), None)
    try:
        aggregates = function.aggregates()
        if place is None or aggregates is None:
            raise ValueError(
                f"{uid!r} must be event-time windows of a fixed size with built-in aggregates, without a trigger or allowed "
                "lateness of its own"
            )
        key = KeyMatch(node, [part for part in key_columns if part[0] != _WINDOW])
        parts = _parts(aggregates, node, fields["value"])
    except ValueError as error:
        return [LeftState(operator=operator, spark_name=spark_name, why=str(error))]
    at = place
    local = dict(fields[f"key.{_WINDOW}"])["start"] == "timestamp"

    def split(row: Any) -> tuple[Any, TimeWindow]:
        window = TimeWindow(*(_ms(bound, local) for bound in row[0][at]))
        if not function.assigns(window):
            raise ImportRefused(
                f"Spark has the window from {window.start_ms} to {window.end_ms} (milliseconds), to which {uid!r} assigns no "
                "row. Give it the size and the slide of the query."
            )
        return key.of([part for number, part in enumerate(row[0]) if number != at]), window

    def contents(layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        for row in rows:
            of, window = split(row)
            yield new_entry(layout, of, tuple([take(row[1]) for take in parts]), space=window)

    # Spark has no timers for windows: it scans its state for those that the watermark has passed.
    def timers(layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        for row in rows:
            of, window = split(row)
            yield new_entry(layout, of, window.max_timestamp(), TimeDomain.EVENT_TIME.name, window)

    return [
        _carried(
            operator,
            spark_name,
            node,
            next(spec for spec in node.states if spec.windowed),
            contents,
            _swappable(aggregates, node),
        ),
        _carried(operator, "ends of windows", node, TIMERS, timers),
    ]


def seen_keys(operator: int, node: Process, fields_of: FieldsOf, clock_ms: int) -> list[Verdict]:
    """Decide about `dropDuplicates(…)`."""
    function: Deduplicate = node.function
    try:
        key = KeyMatch(node, fields_of({})["key"])
    except ValueError as error:
        return [LeftState(operator=operator, spark_name="seen keys", why=str(error))]

    def entries(layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        return (new_entry(layout, key.of(row[0]), True) for row in rows)

    def timers(layout: StateLayout, rows: SparkRows) -> Iterator[StateEntry]:
        # Spark does not store when it saw a key, so all of them end one lifetime after the query stopped.
        ends = clock_ms + (function.ttl_ms or 0)
        return (new_entry(layout, key.of(row[0]), ends, TimeDomain.PROCESSING_TIME.name) for row in rows)

    seen = _carried(operator, "seen keys", node, node.states[0], entries)
    if function.ttl_ms is None:
        return [seen]
    return [seen, _carried(operator, "ends of seen keys", node, TIMERS, timers)]


def _carried(
    operator: int, spark_name: str, node: Process, spec: StateSpec, entries: Any, unsure: str = ""
) -> CarriedState:
    return CarriedState(
        operator=operator,
        spark_name=spark_name,
        uid=node.uid,
        spec=spec,
        options={},
        columns=_COLUMNS,
        entries=entries,
        unsure=unsure,
    )


def _swappable(aggregates: ColumnAggregates, node: Process) -> str:
    """Say which aggregates of a node could be those of another column. Spark's buffers carry no columns, so `sum(a), sum(b)` and
    `sum(b), sum(a)` are stored alike: in the wrong order, every key would continue with the total of the other column.
    """
    alike: dict[tuple[Any, ...], list[str]] = {}
    for part in aggregates.parts:
        shown = f"{part.name}({part.column or '*'})"
        others = alike.setdefault(_buffers(part, node), [])
        if shown not in others:
            others.append(shown)
    groups = [", ".join(each) for each in alike.values() if len(each) > 1]
    if not groups:
        return ""
    return (
        f"Spark stores the aggregates of {str(node.uid)!r} without their columns, so nothing shows whether the query has "
        f"{'; '.join(groups)} in this order, too"
    )


def _column_type(part: PartialAggregate, node: Process) -> DataType | None:
    if part.column is None:
        return None
    schema = node.input.schema
    return schema.fields[schema.index(part.column)].type


def _buffers(part: PartialAggregate, node: Process) -> tuple[tuple[str, str], ...]:
    """Return the names and types of Spark's buffers of one aggregate."""
    column = _column_type(part, node)
    decimal = column is not None and column.kind == "decimal"
    match part.name:
        case "sum" if decimal:
            return ("sum", "decimal"), ("isEmpty", "boolean")
        case "mean":
            return ("sum", "decimal" if decimal else "double"), ("count", "bigint")
        case "count" | "sum" | "min" | "max":
            return ((part.name, part.type.ddl()),)
        case other:
            raise ValueError(f"Spark's state of {other} has another form than tidegate's")


def _parts(aggregates: ColumnAggregates, node: Process, columns: Sequence[tuple[str, str]]) -> list[Take]:
    """Return how each part of the accumulator is made of Spark's buffers. Raises ValueError if these are not its buffers."""
    buffers: list[tuple[str, str]] = []
    takes: list[Take] = []
    for part in aggregates.parts:
        at = len(buffers)
        buffers += _buffers(part, node)
        column = _column_type(part, node)
        match part.name:
            case "sum" if column is not None and column.kind == "decimal":
                takes.append(partial(_decimal_sum, at))
            case "mean":
                whole = column is not None and column.kind in _INTEGERS
                takes.append(partial(_mean, at, whole))
            case _:
                takes.append(partial(_plain, at, part.type.kind == "timestamp"))
    stored = [(name, "decimal" if type.startswith("decimal") else type) for name, type in columns]
    if stored != buffers:
        raise ValueError(
            f"Spark's aggregates are stored as ({_shown(stored)}), those of {str(node.uid)!r} would be ({_shown(buffers)}); "
            "declare the same aggregates in the same order"
        )
    return takes


def _shown(buffers: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {type}" for name, type in buffers)


def _decimal_sum(at: int, buffers: Sequence[Any]) -> Any:
    if buffers[at + 1]:
        return None
    return _not_overflown(buffers[at])


def _mean(at: int, whole: bool, buffers: Sequence[Any]) -> tuple[Any, int]:
    total = buffers[at]
    count = buffers[at + 1]
    if count == 0:
        return None, 0
    total = _not_overflown(total)
    # For a mean, Spark adds up integers as doubles.
    return int(total) if whole else total, count


def _not_overflown(total: Any) -> Any:
    if total is None:
        raise ImportRefused(
            "A sum of decimals has overflown in Spark, so what it is made of is lost. Leave this state behind with -n, or "
            "fix the query first."
        )
    return total


def _plain(at: int, local: bool, buffers: Sequence[Any]) -> Any:
    value = buffers[at]
    return value.astimezone(UTC) if local and isinstance(value, datetime) else value


def _ms(moment: datetime, local: bool) -> int:
    """Return a time of Spark's rows, which have no zone, in milliseconds. `local`: it is an instant in local time."""
    return round((moment.astimezone(UTC) if local else moment.replace(tzinfo=UTC)).timestamp() * 1000)
