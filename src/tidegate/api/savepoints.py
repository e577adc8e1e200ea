"""Savepoints for users: open a savepoint or a checkpoint, and read its state. No job has to run.

sp = tg.Savepoint.open("s3://bucket/savepoints/sp-1")
sp.state("totals", "total").get("ann")
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tidegate.api.rows import Stored

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa

    from tidegate.api.spark_types import FrameMaker, Unitable
    from tidegate.checkpoint.metadata import CheckpointMetadata
    from tidegate.savepoint.entries import StateEntry
    from tidegate.savepoint.snapshot import StoredSnapshot

Frame = TypeVar("Frame", bound="Unitable")
_BATCH = 16_384
_FRAME = 250_000
"""Rows passed to Spark at once."""
_READ = "read with tg.Savepoint"
"""The reason that a pin gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDescription:
    """One state of a snapshot. Types are shown as stored."""

    uid: str
    state: str
    kind: str
    """value, list, map, sorted_map, reducing, aggregating or timers."""
    key: str
    value: str
    map_key: str | None
    distribution: str = "keyed"
    """keyed; for operator state split, union or broadcast."""
    windowed: bool = False
    ttl_ms: int | None = None
    size_bytes: int | None = None
    """The size of its tables. None if states share files, as they do in checkpoints and native savepoints."""


class Savepoint:
    """An opened savepoint or checkpoint. Opening reads only its metadata, and runs no code from it.

    While state of a job's checkpoint is read, a pin keeps the job from deleting it. Raises NotRetained if the job has dropped the
    checkpoint before.

    Examples:
        >>> writer = tg.SavepointWriter.new("orders")
        >>> writer = writer.with_state("totals", "total", {"ann": 12.0}, key="user string", value=float)
        >>> savepoint = writer.write("savepoints/sp-1")
        >>> [(state.uid, state.state, state.kind) for state in tg.Savepoint.open("savepoints/sp-1").states()]
        [('totals', 'total', 'value')]
    """

    def __init__(self, snapshot: StoredSnapshot) -> None:
        self._snapshot = snapshot

    @staticmethod
    def open(path: str | Path, **storage_options: object) -> Savepoint:
        """Open a savepoint or a checkpoint.

        Args:
            path: Its directory, or the `_metadata` in it: local, `s3://…`, `gs://…` or `az://…`.
            storage_options: Options of the object store, such as `endpoint`, `region`, `access_key_id` and `secret_access_key`.
        """
        from tidegate.savepoint.snapshot import StoredSnapshot

        return Savepoint(StoredSnapshot.open(path, **storage_options))

    @property
    def path(self) -> str:
        return self._snapshot.url

    @property
    def metadata(self) -> CheckpointMetadata:
        return self._snapshot.metadata

    def states(self) -> list[StateDescription]:
        """Return every state in the snapshot."""
        from tidegate.savepoint.schema_codec import show_schema

        return [
            StateDescription(
                uid=str(operator.uid),
                state=state.name,
                kind=state.kind,
                key=show_schema(operator.key),
                value=show_schema(state.value),
                map_key=None if state.map_key is None else show_schema(state.map_key),
                distribution=str(state.distribution),
                windowed=state.namespace is not None,
                ttl_ms=state.ttl_ms,
                size_bytes=self._snapshot.table_bytes(state.id),
            )
            for operator, state in self._snapshot.states()
        ]

    def state(self, uid: str, name: str) -> SavedState:
        """Return one state. Raises StateNotFound, which lists the existing ones.

        Args:
            uid: The uid of the operator.
            name: The name of the state.

        Examples:
            >>> writer = tg.SavepointWriter.new("orders")
            >>> writer = writer.with_state("totals", "total", {"ann": 12.0}, key="user string", value=float)
            >>> writer.write("savepoints/sp-1").state("totals", "total").get("ann")
            12.0
        """
        self._snapshot.layout(uid, name)  # raises StateNotFound here, and not when the contents are read
        return SavedState(self._snapshot, uid, name)

    def timers(self, uid: str) -> SavedState:
        """Return the timers of an operator: entries whose map key is the clock, and whose value is the time in milliseconds.

        Args:
            uid: The uid of the operator.
        """
        from tidegate.graph.states import TIMERS

        return self.state(uid, TIMERS.name)

    def __repr__(self) -> str:
        return f"<Savepoint {self.path}>"


class SavedState:
    """The contents of one state. Dataclasses are returned as dicts by field name, enums as their values."""

    def __init__(self, snapshot: StoredSnapshot, uid: str, name: str) -> None:
        self._snapshot = snapshot
        self.uid = uid
        self.name = name

    def get(self, key: object, map_key: object = None, *, window: tuple[int, int] | None = None) -> Stored:
        """Return what is stored for a key: a value or None, a list, or a dict. Fetches the files of one task.

        Args:
            key: The key. A key of several columns is a tuple.
            map_key: For a map: return only the value under this key.
            window: For a state that exists once per window: its start and end, in milliseconds since 1970-01-01 UTC.
        """
        from tidegate.savepoint.pinned import pinned_if_allowed
        from tidegate.savepoint.reader import SnapshotReader
        from tidegate.state.keys.entry_keys import TimeWindow

        more = {} if map_key is None else {"map_key": map_key}
        with pinned_if_allowed(self._snapshot, _READ), SnapshotReader(self._snapshot) as reader:
            return reader.get(self.uid, self.name, key, None if window is None else TimeWindow(*window), **more)

    def entries(self) -> Iterator[StateEntry]:
        """Yield every entry: key group, key, namespace, map key or position, value."""
        from tidegate.savepoint.pinned import pinned_if_allowed
        from tidegate.savepoint.reader import SnapshotReader

        with pinned_if_allowed(self._snapshot, _READ), SnapshotReader(self._snapshot) as reader:
            yield from reader.entries(self.uid, self.name)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield everything as `pyarrow.RecordBatch`es, with the columns of a canonical savepoint."""
        from tidegate.savepoint.canonical_table import StateTable

        table, entries = StateTable(self._snapshot.layout(self.uid, self.name)), self.entries()
        while chunk := list(islice(entries, _BATCH)):
            yield table.batch(chunk)

    def to_arrow(self) -> pa.Table:
        """Return everything as a `pyarrow.Table`."""
        import pyarrow as pa

        from tidegate.savepoint.canonical_table import StateTable

        table = StateTable(self._snapshot.layout(self.uid, self.name))
        # An empty table has a batch, too: Spark takes none without.
        return pa.Table.from_batches(list(self.to_batches()) or [table.batch([])], table.schema)

    def to_df(self, spark: FrameMaker[Frame]) -> Frame:
        """Return everything as a Spark DataFrame, through the driver.

        For more than fits there, read the tables of a canonical savepoint: `spark.read.parquet(f"{path}/{uid}/{state}")`.
        Columns of exact bytes are present only if a value needs them.

        Args:
            spark: The session that creates the DataFrame.
        """
        table = self.to_arrow()
        unused = [n for n in table.column_names if n.startswith("exact_") and table[n].null_count == len(table)]
        table = table.drop_columns(unused)
        frames = [spark.createDataFrame(table.slice(at, _FRAME)) for at in range(0, max(1, len(table)), _FRAME)]
        return reduce(lambda one, other: one.unionAll(other), frames)

    def to_pandas(self) -> pd.DataFrame:
        """Return everything as a pandas DataFrame with flat columns, to look at.

        A field of a dataclass is `value.field`, and columns of a key of several are `key.k1`, `key.k2`, … Columns about storage
        are left out where no entry uses them.
        """
        import pyarrow as pa

        flat = self.to_arrow().drop_columns(["operator", "state", "key_group"])
        while any(pa.types.is_struct(field.type) for field in flat.schema):
            flat = flat.flatten()
        contents = re.compile(r"(key|value)\b")
        kept = [name for name in flat.column_names if contents.match(name) or flat[name].null_count < len(flat)]
        return flat.select(kept).to_pandas()

    def __repr__(self) -> str:
        return f"<state {self.name!r} of {self.uid!r} in {self._snapshot.url}>"
