"""The inputs of a keyed operator: how rows are read, and what is called with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from tidegate.graph.combine import LATE, PANE, ROWS, SPAN, Combine
from tidegate.graph.model import Input
from tidegate.operators.port import RowCall
from tidegate.schema.columns import normalized_keys, struct_class, to_python
from tidegate.schema.schema import Schema
from tidegate.state.keys.entry_keys import KeyCodec

if TYPE_CHECKING:
    import pyarrow as pa


class KeyedInput:
    """One input of a keyed function."""

    def __init__(self, input: Input, call: RowCall) -> None:
        self.schema = input.schema
        self.row = partial(tuple.__new__, struct_class(input.schema.fields))
        self.key_columns = [input.schema.index(column) for column in input.key]
        self.key_types = [input.schema.fields[i].type for i in self.key_columns]
        self.time_column = None if input.event_time is None else input.schema.index(input.event_time)
        self.call = call


class CombinedInput:
    """Rows that were combined before the shuffle (see `graph.combine`). Each is (number of rows combined, late row or None,
    parts, milliseconds from the first of them to the last if the operator needs to know)."""

    def __init__(self, combine: Combine, call: RowCall) -> None:
        self.schema = schema = combine.schema
        self._key_types = [field.type for field in combine.key]
        self._pane = schema.index(PANE)
        self._rows = schema.index(ROWS)
        self._late = None if combine.rows is None else schema.index(LATE)
        self._span = schema.index(SPAN) if SPAN in schema.names else None
        self._parts = len(schema) - len(combine.parts)
        self.call = call

    def read(self, columns: Sequence[pa.Array]) -> tuple[Iterable[Any], list[Any], list[int | None], list[int]]:
        """Return the rows, their keys, their times, and the number of source rows that each combines."""
        fields = self.schema.fields
        values = [to_python(c, f.type) for c, f in zip(columns, fields)]
        late: Iterable[Any] = repeat(None) if self._late is None else values[self._late]
        span: Iterable[Any] = repeat(None) if self._span is None else values[self._span]
        rows = zip(values[self._rows], late, zip(*values[self._parts :]), span)
        keys = normalized_keys(values[: len(self._key_types)], self._key_types)
        return rows, keys, values[self._pane], values[self._rows]


def key_codec(schema: Schema, key: Sequence[str]) -> KeyCodec:
    """Return the codec of the keys that these columns of the schema make."""
    return KeyCodec([schema.fields[schema.index(column)].type for column in key])
