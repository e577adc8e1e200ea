"""Savepoints in the hands of the user: open one or a checkpoint, read its state, write a new one. No job has to run.

sp = tg.Savepoint.open("s3://bucket/savepoints/sp-1")
sp.state("totals", "total").get("ann")
tg.SavepointWriter.from_existing(sp).remove("gone").write("s3://bucket/savepoints/sp-2")
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import GraphError

if TYPE_CHECKING:
    from tidegate.checkpoint.metadata import CheckpointMetadata
    from tidegate.savepoint.additions import Addition
    from tidegate.savepoint.entries import StateEntry
    from tidegate.savepoint.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StateDescription:
    """One state of a snapshot. Types are shown as they are written."""

    uid: str
    state: str
    kind: str
    key: str
    value: str
    map_key: str | None


class Savepoint:
    """An opened savepoint or checkpoint. Opening reads its metadata only, and runs nothing of what it holds."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @staticmethod
    def open(path: str | Path, **storage_options: Any) -> Savepoint:
        """`path` is the directory, or the `_metadata` in it: local, `s3://…`, `gs://…` or `az://…`."""
        from tidegate.savepoint.snapshot import Snapshot

        return Savepoint(Snapshot.open(path, **storage_options))

    @property
    def path(self) -> str:
        return self._snapshot.url

    @property
    def metadata(self) -> CheckpointMetadata:
        return self._snapshot.metadata

    def states(self) -> list[StateDescription]:
        """Every state in it."""
        from tidegate.savepoint.plain import show_schema

        return [
            StateDescription(
                str(operator.uid), state.name, state.kind, show_schema(operator.key), show_schema(state.value),
                None if state.map_key is None else show_schema(state.map_key),
            )
            for operator, state in self._snapshot.states()
        ]  # fmt: skip

    def state(self, uid: str, name: str) -> SavedState:
        """One state. Raises StateNotFound, naming those there are."""
        self._snapshot.layout(uid, name)
        return SavedState(self._snapshot, uid, name)

    def __repr__(self) -> str:
        return f"<Savepoint {self.path}>"


class SavedState:
    """The contents of one state. Dataclasses come as dicts by field name, enums as their values."""

    def __init__(self, snapshot: Snapshot, uid: str, name: str) -> None:
        self._snapshot, self.uid, self.name = snapshot, uid, name

    def get(self, key: Any, map_key: Any = None) -> Any:
        """What is stored for a key: a value or None, a list, a dict; with `map_key` one value of a map.

        A key of several columns is a tuple. Fetches the files of one task.
        """
        from tidegate.savepoint.reader import SnapshotReader

        more = {} if map_key is None else {"map_key": map_key}
        with SnapshotReader(self._snapshot) as reader:
            return reader.get(self.uid, self.name, key, **more)

    def entries(self) -> Iterator[StateEntry]:
        """Every entry: key group, key, namespace, map key or position, value."""
        from tidegate.savepoint.reader import SnapshotReader

        with SnapshotReader(self._snapshot) as reader:
            yield from reader.entries(self.uid, self.name)

    def to_arrow(self) -> Any:
        """All of it as a `pyarrow.Table`, with the columns of a canonical savepoint."""
        import pyarrow as pa

        from tidegate.savepoint.canonical_table import StateTable

        table = StateTable(self._snapshot.layout(self.uid, self.name))
        return pa.Table.from_batches([table.batch(list(self.entries()))], table.schema)

    def to_df(self, spark: Any) -> Any:
        """All of it as a Spark DataFrame, through the driver. For more than fits there, read the tables of a canonical
        savepoint: `spark.read.parquet(f"{path}/{uid}/{state}")`."""
        table = self.to_arrow()
        return spark.createDataFrame(table.drop_columns([n for n in table.column_names if n.startswith("exact_")]))

    def __repr__(self) -> str:
        return f"<state {self.name!r} of {self.uid!r} in {self._snapshot.url}>"


class SavepointWriter:
    """Puts a new canonical savepoint together. Nothing is written before `write`; every other method returns a new writer."""

    def __init__(self, base: Snapshot | CheckpointMetadata) -> None:
        self._base = base
        self._renames: dict[str, str] = {}
        self._drops: frozenset[tuple[str, str | None]] = frozenset()
        self._additions: tuple[Addition, ...] = ()
        self._max_parallelism: int | None = None

    @staticmethod
    def new(job: str, max_parallelism: int = 128, parallelism: int = 1) -> SavepointWriter:
        """From nothing, for a job that is going to start with this state and at the beginning of its sources."""
        from importlib.metadata import version

        from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind
        from tidegate.core.ids import EpochId, Lineage, Term
        from tidegate.graph.parallelism import check_parallelism

        check_parallelism(parallelism, max_parallelism)
        return SavepointWriter(
            CheckpointMetadata(
                job, Lineage(uuid.uuid4().hex), 0, Term(0), EpochId(Term(0), 0), SnapshotKind.SAVEPOINT, 0, 0,
                version("tidegate"), "", max_parallelism, parallelism, 0,
            )
        )  # fmt: skip

    @staticmethod
    def from_existing(savepoint: Savepoint) -> SavepointWriter:
        """From another savepoint, or a checkpoint. Positions of sources, the watermark and the clock stay."""
        return SavepointWriter(savepoint._snapshot)

    def with_state(
        self, uid: str, state: str, contents: Mapping[Any, Any] | Iterable[tuple[Any, Any]] | Any, *,
        key: str | None = None, value: Any = None, map_key: Any = None, kind: str | None = None,
    ) -> SavepointWriter:  # fmt: skip
        """Add a state, or put other contents into one that is there.

        `contents` are pairs of key and value (a ListState: list of elements; a MapState: dict), a mapping of these, or a
        DataFrame whose columns are the key's, then, for a map, the map key, then the value. For a new state say `key`
        (its columns, as in `"user string"`) and `value` (a Python type), for a map `map_key`, and for a list
        `kind="list"`. Of a state that is there, types are known; its dataclasses are dicts by field name.
        """
        from tidegate.savepoint.additions import Addition

        there = self._known(uid, state)
        if value is None and there is None:
            raise GraphError(
                f"The state {state!r} of {uid!r} is new. Say its type: with_state(…, key='user string', value=float)."
            )
        kind = kind or (there.info.kind if there and value is None else "value" if map_key is None else "map")
        columns = _columns(key, there)
        schema, keys, plain = _types(value, map_key, kind, there)
        addition = Addition(uid, state, kind, columns, schema, keys, _Contents(contents, len(columns), kind, plain))
        new = self._like()
        new._additions = (*self._additions, addition)
        if there is not None:
            new._drops = self._drops | {(self._old_uid(uid), state)}
        return new

    def rename_uid(self, old: str, new: str) -> SavepointWriter:
        """The operator or source `old` is called `new` from now on."""
        made = self._like()
        made._renames = {**self._renames, old: new}
        return made

    def remove(self, uid: str, state: str | None = None) -> SavepointWriter:
        """Leave out one state of an operator, or all of them."""
        made = self._like()
        made._drops = self._drops | {(uid, state)}
        return made

    def with_max_parallelism(self, max_parallelism: int) -> SavepointWriter:
        """Cut the key groups anew: the one way to change max parallelism."""
        made = self._like()
        made._max_parallelism = max_parallelism
        return made

    def write(self, path: str | Path, **storage_options: Any) -> Savepoint:
        """Write everything into the empty directory `path`. It is a savepoint once this returns, and none before."""
        from tidegate.checkpoint.storage import open_storage
        from tidegate.savepoint.changes import Changes
        from tidegate.savepoint.copy import copy_snapshot
        from tidegate.savepoint.snapshot import Snapshot

        target = open_storage(path, **storage_options)
        base = self._base if isinstance(self._base, Snapshot) else Snapshot(target, "", self._base, target.url)
        changes = Changes(self._max_parallelism, self._renames, self._drops)
        copy_snapshot(base, target, changes=changes, additions=self._additions)
        return Savepoint.open(path, **storage_options)

    def _like(self) -> SavepointWriter:
        made = SavepointWriter(self._base)
        made._renames, made._drops, made._additions = dict(self._renames), self._drops, self._additions
        made._max_parallelism = self._max_parallelism
        return made

    def _old_uid(self, uid: str) -> str:
        return next((old for old, new in self._renames.items() if new == uid), uid)

    def _known(self, uid: str, state: str) -> Any:
        from tidegate.savepoint.snapshot import Snapshot

        if not isinstance(self._base, Snapshot):
            return None
        old = self._old_uid(uid)
        operator = next((o for o in self._base.metadata.operators if o.uid == old), None)
        if operator is None or all(s.name != state for s in operator.states):
            return None
        return self._base.layout(old, state)


def _columns(key: str | None, there: Any) -> tuple[str, ...]:
    from tidegate.graph.schema import Schema

    if key is not None:
        return tuple(field.type.ddl() for field in Schema.parse(key))
    if there is None:
        raise GraphError("A new state needs its key columns: with_state(…, key='user string').")
    return tuple(type.ddl() for type in there.key_types)


def _types(value: Any, map_key: Any, kind: str, there: Any) -> tuple[Any, Any, Any]:
    """The stored schemas, and what turns a value of the user's into a plain one."""
    from tidegate.core.types import codec_of, schema_of
    from tidegate.savepoint.plain import plain_codec

    if value is None:
        return there.value, there.map_key, None
    if (kind == "map") != (map_key is not None):
        raise GraphError("A map needs both types: with_state(…, value=int, map_key=str); nothing else has a map_key.")
    encode, decode = codec_of(value).encode, plain_codec(schema_of(value)).decode
    return schema_of(value), None if map_key is None else schema_of(map_key), lambda one: decode(encode(one))


@dataclass(frozen=True, slots=True)
class _Contents:
    """What the user gave, as pairs of key and plain value. May be walked again if what was given may."""

    given: Any
    columns: int
    kind: str
    plain: Any

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        plain = self.plain
        for key, what in _rows(self.given, self.columns, self.kind):
            if plain is None:
                yield key, what
            elif self.kind == "list":
                yield key, [plain(one) for one in what]
            elif self.kind == "map":
                yield key, {map_key: plain(one) for map_key, one in dict(what).items()}
            else:
                yield key, plain(what)


def _rows(contents: Any, columns: int, kind: str) -> Iterable[tuple[Any, Any]]:
    if isinstance(contents, Mapping):
        return contents.items()
    if not hasattr(contents, "toLocalIterator"):
        return contents  # type: ignore[no-any-return]
    return (_of_row(row, columns, kind) for row in contents.toLocalIterator())


def _of_row(row: Any, columns: int, kind: str) -> tuple[Any, Any]:
    parts = tuple(row)
    key = parts[0] if columns == 1 else parts[:columns]
    value = parts[-1].asDict(True) if hasattr(parts[-1], "asDict") else parts[-1]
    return key, {parts[columns]: value} if kind == "map" else value
