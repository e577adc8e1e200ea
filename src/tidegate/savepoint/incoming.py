"""Converts user data to state entries: pairs, mappings, Arrow tables, Spark DataFrames.

Independent of Spark: a DataFrame is any object with `toArrow` or `toLocalIterator`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tidegate.core.errors import WrongValue
from tidegate.core.times import TimeDomain
from tidegate.savepoint.entries import NO_GROUP, StateEntry, StateLayout
from tidegate.state.accessors.ttl import Stamp
from tidegate.state.keys.entry_keys import Namespace

_WANTED = frozenset({"key", "map_key", "value"})
"""Columns of a table that are required if the state has them."""
# As many rows as a row group of a canonical table.
_BATCH = 16_384

Plain = Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of key and value, list of elements, or mapping; or rows of key columns, map key and value."""

    given: Any
    plain: Plain
    """Converts a value of the user's type to a plain one; None if it is plain already."""

    def __call__(self, layout: StateLayout) -> Iterator[StateEntry]:
        plain = self.plain or (lambda value: value)
        for key, what in _pairs(self.given, layout):
            if layout.map_keys is not None:
                for map_key, value in what.items() if isinstance(what, Mapping) else what:
                    yield new_entry(layout, key, plain(value), map_key=map_key)
            elif layout.is_list:
                for value in what:
                    yield new_entry(layout, key, plain(value))
            else:
                yield new_entry(layout, key, plain(what))


@dataclass(frozen=True, slots=True)
class IncomingElements:
    """Elements of an operator's list; or the mapping, or pairs, of a broadcast map; or rows of one column, or of two."""

    given: Any
    plain: Plain

    def __call__(self, layout: StateLayout) -> Iterator[StateEntry]:
        plain = self.plain or (lambda value: value)
        rows: Iterable[Any] = self.given.items() if isinstance(self.given, Mapping) else self.given
        if (table := _rows(self.given)) is not None:
            rows = table if layout.map_keys is not None else (row[0] for row in table)
        for one in rows:
            map_key, value = (None, one) if layout.map_keys is None else one
            yield new_entry(layout, None, plain(value), map_key=map_key)


@dataclass(frozen=True, slots=True)
class IncomingTimers:
    """For each clock: pairs of key and time, or of key and several times, in ms or as datetimes with a zone."""

    given: Mapping[TimeDomain, Any]

    def __call__(self, layout: StateLayout) -> Iterator[StateEntry]:
        for clock, timers in self.given.items():
            for key, when in _pairs(timers, layout):
                for moment in when if isinstance(when, list | tuple | set) else (when,):
                    yield new_entry(layout, key, _milliseconds(moment), map_key=clock.name)


@dataclass(frozen=True, slots=True)
class IncomingTable:
    """Entries, or rows with the columns of a canonical table, as returned by `to_arrow` and `to_df`."""

    given: Any

    def __call__(self, layout: StateLayout) -> Iterator[StateEntry]:
        from tidegate.savepoint.canonical_table import StateTable  # noqa: PLC0415 start-up time

        given = self.given.toArrow() if hasattr(self.given, "toArrow") else self.given
        if not hasattr(given, "schema"):
            yield from given
            return
        table = StateTable(layout)
        for batch in _batches(given):
            yield from table.entries(_columns(batch, table.schema, layout))


def new_entry(
    layout: StateLayout, key: Any, value: Any, map_key: Any = None, space: Namespace = None, stamp: Stamp | None = None
) -> StateEntry:
    """An entry from elsewhere: its key group and, in a list, its position are still to be computed."""
    return StateEntry(
        uid=layout.uid,
        state=layout.info.name,
        key_group=NO_GROUP,
        key=key,
        namespace=space,
        map_key=map_key,
        position=None,
        value=value,
        stamp=stamp,
    )


def _pairs(given: Any, layout: StateLayout) -> Iterable[tuple[Any, Any]]:
    if isinstance(given, Mapping):
        return given.items()
    if (rows := _rows(given)) is None:
        return given  # type: ignore[no-any-return]
    return (_of_row(row, len(layout.key_types), layout.map_keys is not None) for row in rows)


def _rows(given: Any) -> Iterator[tuple[Any, ...]] | None:
    """Return the rows of a table or DataFrame, or None if it is neither."""
    if hasattr(given, "toLocalIterator"):
        return (tuple(map(_plain_part, row)) for row in given.toLocalIterator())
    if hasattr(given, "schema"):
        return (row for batch in _batches(given) for row in zip(*(c.to_pylist() for c in batch.columns)))
    return None


def _plain_part(part: Any) -> Any:
    return part.asDict(True) if hasattr(part, "asDict") else part


def _of_row(row: tuple[Any, ...], columns: int, is_map: bool) -> tuple[Any, Any]:
    if len(row) != columns + 1 + is_map:
        wanted = f"{columns} of the key{', the map key' if is_map else ''} and the value"
        raise WrongValue(f"A row has {len(row)} columns, but needs {wanted}: select them in this order.")
    key = row[0] if columns == 1 else row[:columns]
    return key, {row[columns]: row[-1]} if is_map else row[-1]


def _batches(given: Any) -> Iterator[Any]:
    """Yield the batches of a table or a reader, none of them large; a batch yields itself."""
    if hasattr(given, "to_batches"):
        return iter(given.to_batches(max_chunksize=_BATCH))
    return iter(given) if hasattr(given, "read_next_batch") else iter((given,))


def _columns(batch: Any, wanted: Any, layout: StateLayout) -> Any:
    """The batch with just the columns of a state's table, in its types. Those that may be left out are made up."""
    import pyarrow as pa  # noqa: PLC0415 start-up time

    found = set(batch.schema.names)
    if missing := sorted((_WANTED & set(wanted.names)) - found):
        raise WrongValue(
            f"Rows of {layout.info.name!r} of {layout.uid!r} lack the column {missing[0]!r}. They have the columns of a "
            f"canonical table: {', '.join(wanted.names)}."
        )
    columns = []
    for field in wanted:
        if field.name not in found:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            columns.append(batch.column(field.name).cast(field.type))
        except (pa.ArrowException, ValueError) as error:
            raise WrongValue(f"The column {field.name!r} is not {field.type}: {error}.") from None
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([field.with_nullable(True) for field in wanted]))


def _milliseconds(moment: Any) -> int:
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise WrongValue(f"{moment} has no time zone, so it is ambiguous. Add one: .replace(tzinfo=UTC).")
        return round(moment.timestamp() * 1000)
    if not isinstance(moment, int) or isinstance(moment, bool):
        raise WrongValue(
            f"{moment!r} is not the time of a timer: use milliseconds since 1970, or a datetime with a zone."
        )
    return moment
