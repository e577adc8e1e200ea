"""Tables of a canonical savepoint: one state of one operator, for any Parquet reader.

    operator, state     texts, the same in every row
    key_group           int32
    key                 the key column; several are a struct of `k1`, `k2`, …
    namespace           null, or a struct of `start`, `end` (a window) and `name`
    map_key             of a map: the user key
    position            of a list: 0, 1, …; a list is as many rows as it has elements, in order
    value               typed, see `arrow_types`
    renewed             of an entry with a time to live: when it was last renewed, and by which clock
    exact_map_key, exact_value
                        the stored bytes where the typed column cannot hold the value exactly; nearly always null

A timer is a row whose map key is its clock and whose value is its time in ms. Operator state has no key: it is `position`,
`map_key` (of a broadcast map) and `value`, and every file is the share of one task.

The footer describes the state, under `tidegate`, so that a table can be read on its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from tidegate.checkpoint.metadata import Distribution, MetadataTooNew, OperatorInfo, StateInfo, UntrustedSnapshot
from tidegate.checkpoint.metadata.validation import check_operator
from tidegate.core.ids import EpochId, Uid
from tidegate.savepoint.arrow_types import ArrowForm, arrow_form, from_column, to_column
from tidegate.savepoint.entries import NO_GROUP, ByteEntry, StateEntry, StateLayout
from tidegate.savepoint.quick_columns import QuickColumns
from tidegate.savepoint.schema_codec import schema_codec
from tidegate.savepoint.snapshot import CANONICAL_BACKEND
from tidegate.state.accessors.ttl import Stamp
from tidegate.state.keys.entry_keys import Namespace, TimeWindow

FORMAT = 1
_FOOTER = b"tidegate"
_MOMENT = pa.timestamp("ms", tz="UTC")
_NAMESPACE = pa.struct([pa.field("start", _MOMENT), pa.field("end", _MOMENT), pa.field("name", pa.string())])


_RENEWED = pa.struct([pa.field("at", _MOMENT), pa.field("clock", pa.string())])
# By `Stamp.event_time`.
_CLOCKS = {False: "processing", True: "event"}


class StateTable:
    """The columns of one state: converts typed entries to record batches and back."""

    def __init__(self, layout: StateLayout) -> None:
        self.layout = layout
        self._keys = [type.to_arrow() for type in layout.key_types]
        self._value = arrow_form(layout.value)
        self._map_key: ArrowForm | None = None if layout.map_key is None else arrow_form(layout.map_key)
        self._element = schema_codec(layout.value)
        self.schema = self._schema()
        self._quick = QuickColumns(layout, self._key_type() if layout.keyed else None, self._value, self._map_key)
        self._quick._keys_of = self._keys_of

    def batch_of_bytes(self, entries: Sequence[ByteEntry]) -> Any:
        """Build a `pyarrow.RecordBatch` from stored entries."""
        # None: some entry needs the careful way.
        quick = self._quick.columns(entries)
        if quick is None:
            return self.batch(list(self.layout.typed(entries)))
        if isinstance(quick["key"], list):
            quick["key"] = self._key_column(quick["key"])
        count, layout = len(entries), self.layout
        quick["operator"], quick["state"] = (
            pa.repeat(pa.scalar(text), count) for text in (str(layout.uid), layout.info.name)
        )
        columns = [quick[f.name] if f.name in quick else pa.nulls(count, f.type) for f in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def bytes_of(self, batch: Any, epoch: EpochId) -> Iterable[ByteEntry]:
        """Convert the rows of a batch or table to stored entries. Not for a list, whose rows may span batches."""
        quick = self._quick.stored(batch) if self._quick.serves else None
        return self.layout.stored(self.entries(batch), epoch) if quick is None else quick

    def batch(self, entries: Sequence[StateEntry]) -> Any:
        """Build a `pyarrow.RecordBatch` from these entries."""
        layout, count = self.layout, len(entries)
        columns = [pa.repeat(pa.scalar(str(layout.uid)), count), pa.repeat(pa.scalar(layout.info.name), count)]
        if layout.keyed:
            columns += [
                pa.array([entry.key_group for entry in entries], pa.int32()),
                self._key_column([entry.key for entry in entries]),
                _namespace_column([entry.namespace for entry in entries]),
            ]
        apart = []
        if self._map_key is not None and layout.map_keys is not None:
            keys, encode_key = [entry.map_key for entry in entries], layout.map_keys.encode
            column, exact = to_column(keys, self._map_key, lambda row: encode_key(keys[row]))
            columns.append(column)
            apart.append(exact)
        if self._has_positions:
            columns.append(pa.array([entry.position for entry in entries], pa.int64()))
        values, encode = [entry.value for entry in entries], self._element.encode
        column, exact = to_column(values, self._value, lambda row: encode(values[row]))
        columns.append(column)
        if layout.keyed:
            columns.append(_stamp_column([entry.stamp for entry in entries]))
        return pa.RecordBatch.from_arrays([*columns, *apart, exact], schema=self.schema)

    def entries(self, batch: Any) -> list[StateEntry]:
        """Return the entries of a batch or table, in order. Uid and name come from the layout, not from the rows."""
        layout, names = self.layout, set(batch.schema.names)
        nothing: list[Any] = [None] * batch.num_rows
        groups, keys, namespaces = [NO_GROUP] * batch.num_rows, nothing, nothing
        map_keys = positions = stamps = nothing
        if layout.keyed:
            groups = batch.column("key_group").to_pylist()
            keys = self._keys_of(batch.column("key"))
            namespaces = _namespaces_of(batch.column("namespace"))
            stamps = _stamps_of(batch.column("renewed")) if "renewed" in names else nothing
        if self._map_key is not None and layout.map_keys is not None:
            decode_key = layout.map_keys.decode
            exact = batch.column("exact_map_key")
            map_keys = from_column(batch.column("map_key"), exact, self._map_key, lambda raw: decode_key(raw, 0)[0])
        if self._has_positions:
            positions = batch.column("position").to_pylist()
        values = from_column(batch.column("value"), batch.column("exact_value"), self._value, self._element.decode)
        uid, name = layout.uid, layout.info.name
        return [
            StateEntry(uid, name, *row)
            for row in zip(groups, keys, namespaces, map_keys, positions, values, stamps, strict=True)
        ]

    @property
    def _has_positions(self) -> bool:
        return self.layout.is_list or not self.layout.keyed

    def _schema(self) -> Any:
        fields = [pa.field("operator", pa.string(), False), pa.field("state", pa.string(), False)]
        if self.layout.keyed:
            fields += [
                pa.field("key_group", pa.int32(), False),
                pa.field("key", self._key_type()),
                pa.field("namespace", _NAMESPACE),
            ]
        apart = []
        if self._map_key is not None:
            fields.append(pa.field("map_key", self._map_key.type))
            apart.append(pa.field("exact_map_key", pa.binary()))
        if self._has_positions:
            fields.append(pa.field("position", pa.int64(), False))
        fields.append(pa.field("value", self._value.type))
        if self.layout.keyed:
            fields.append(pa.field("renewed", _RENEWED))
        return pa.schema([*fields, *apart, pa.field("exact_value", pa.binary())], {_FOOTER: _footer(self.layout)})

    def _key_type(self) -> Any:
        if len(self._keys) == 1:
            return self._keys[0]
        return pa.struct([pa.field(f"k{n}", type) for n, type in enumerate(self._keys, 1)])

    def _key_column(self, keys: list[Any]) -> Any:
        if len(self._keys) == 1:
            return pa.array(keys, self._keys[0])
        parts = [pa.array([key[n] for key in keys], type) for n, type in enumerate(self._keys)]
        return pa.StructArray.from_arrays(parts, fields=list(self._key_type()))

    def _keys_of(self, column: Any) -> list[Any]:
        normalized = self.layout.keys.normalized
        if len(self._keys) == 1:
            return [normalized(key) for key in column.to_pylist()]
        whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        parts = [whole.field(n).to_pylist() for n in range(len(self._keys))]
        return [normalized(key) for key in zip(*parts)]


def table_of(schema: Any, state_id: int, uid: str | None = None, name: str | None = None) -> StateTable:
    """Return the table that the footer of a Parquet file describes; `uid` and `name` are its current names, if renamed."""
    text = (schema.metadata or {}).get(_FOOTER)
    if text is None:
        raise UntrustedSnapshot(
            "A table of the savepoint has no description of its state in its footer: it was not written by tidegate, or was "
            "rewritten by a tool that drops it. Write the savepoint again."
        )
    try:
        footer = json.loads(text)
        if footer["format"] > FORMAT:
            raise MetadataTooNew(footer["format"], FORMAT, str(footer["tidegate"])[:100])
        state = StateInfo(
            name=name or footer["state"],
            id=state_id,
            kind=footer["kind"],
            value=footer["value"],
            map_key=footer["map_key"],
            namespace=footer["namespace"],
            distribution=Distribution(footer.get("distribution", Distribution.KEYED)),
        )
        # Level and parallelism belong to a job, and a table has none.
        operator = OperatorInfo(
            uid=Uid(uid or footer["operator"]),
            level=0,
            parallelism=0,
            backend=CANONICAL_BACKEND,
            key=footer["key"],
            states=(state,),
        )
    # Anyone can write a Parquet file. Whatever is wrong with its footer, it is not one of ours.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UntrustedSnapshot("The footer of a table does not describe a state") from None
    check_operator(operator)
    return StateTable(StateLayout(operator, state))


def _footer(layout: StateLayout) -> bytes:
    info = layout.info
    return json.dumps(
        {
            "format": FORMAT,
            "tidegate": version("tidegate"),
            "operator": str(layout.uid),
            "state": info.name,
            "kind": info.kind,
            "distribution": info.distribution,
            "key": {"columns": [type.ddl() for type in layout.key_types]} if layout.keyed else None,
            "map_key": info.map_key,
            "value": info.value,
            "namespace": info.namespace,
        },
        ensure_ascii=False,
    ).encode()


def _namespace_column(namespaces: list[Namespace]) -> Any:
    # The usual case, without windows.
    if not any(namespace is not None for namespace in namespaces):
        return pa.nulls(len(namespaces), _NAMESPACE)
    windows = [namespace if isinstance(namespace, TimeWindow) else None for namespace in namespaces]
    return pa.StructArray.from_arrays(
        [
            pa.array([None if window is None else window.start_ms for window in windows], _MOMENT),
            pa.array([None if window is None else window.end_ms for window in windows], _MOMENT),
            pa.array([namespace if isinstance(namespace, str) else None for namespace in namespaces], pa.string()),
        ],
        fields=list(_NAMESPACE),
        mask=pa.array([namespace is None for namespace in namespaces]),
    )


def _namespaces_of(column: Any) -> list[Namespace]:
    if column.null_count == len(column):
        return [None] * len(column)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    valid = whole.is_valid().to_pylist()
    # As integers: a datetime would have to be made of each, and ends with the year 9999.
    starts, ends = (whole.field(n).cast(pa.int64()).to_pylist() for n in (0, 1))
    names = whole.field(2).to_pylist()
    return [
        None if not there else TimeWindow(start, end) if start is not None else name
        for there, start, end, name in zip(valid, starts, ends, names)
    ]


def _stamp_column(stamps: list[Stamp | None]) -> Any:
    if not any(stamp is not None for stamp in stamps):
        return pa.nulls(len(stamps), _RENEWED)
    return pa.StructArray.from_arrays(
        [
            pa.array([None if stamp is None else stamp.time_ms for stamp in stamps], _MOMENT),
            pa.array([None if stamp is None else _CLOCKS[stamp.event_time] for stamp in stamps], pa.string()),
        ],
        fields=list(_RENEWED),
        mask=pa.array([stamp is None for stamp in stamps]),
    )


def _stamps_of(column: Any) -> list[Stamp | None]:
    if column.null_count == len(column):
        return [None] * len(column)
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    times, clocks = whole.field(0).cast(pa.int64()).to_pylist(), whole.field(1).to_pylist()
    return [
        Stamp(clock == _CLOCKS[True], time) if there else None
        for there, time, clock in zip(whole.is_valid().to_pylist(), times, clocks)
    ]
