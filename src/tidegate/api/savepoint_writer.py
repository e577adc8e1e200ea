"""Savepoints created by the user: bootstrapped from data, or modified. Needs neither a running job nor Spark.

tg.SavepointWriter.from_existing(tg.Savepoint.open("…/sp-1")).remove("gone").write("…/sp-2")
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tidegate.api.savepoints import Savepoint
from tidegate.core.errors import GraphError
from tidegate.core.times import TimeDomain

if TYPE_CHECKING:
    import pyarrow as pa

    from tidegate.api.rows import Key
    from tidegate.api.spark_types import SparkFrame
    from tidegate.checkpoint.metadata import CheckpointMetadata, Distribution
    from tidegate.savepoint.additions import Addition
    from tidegate.savepoint.entries import StateEntry, StateLayout
    from tidegate.savepoint.snapshot import StoredSnapshot

Table: TypeAlias = "pa.Table | SparkFrame"
"""Rows as columns: an Arrow table, or a Spark DataFrame, which comes through this process."""
Contents: TypeAlias = "Mapping[Key, object] | Iterable[tuple[Key, object]] | Table"
"""Keys and what is stored for them."""
Elements: TypeAlias = "Iterable[object] | Mapping[Key, object] | Table"
"""Elements of a list, or the entries of a BroadcastState."""
_MAPS = ("map", "sorted_map")


class SavepointWriter:
    """Builds a new canonical savepoint. Nothing is written before `write`; every other method returns a new writer.

    Contents are Python objects, Arrow tables, or Spark DataFrames, which are collected into this process. A duplicate entry
    is rejected when the savepoint is written.
    """

    def __init__(self, base: StoredSnapshot | CheckpointMetadata) -> None:
        self._base = base
        self._renames: dict[str, str] = {}
        self._drops: frozenset[tuple[str, str | None]] = frozenset()
        self._additions: tuple[Addition, ...] = ()
        self._max_parallelism: int | None = None

    @staticmethod
    def new(job: str, max_parallelism: int = 128, parallelism: int = 1) -> SavepointWriter:
        """Start from nothing, for a job that will start with this state and at the beginning of its sources."""
        from importlib.metadata import version

        from tidegate.checkpoint.metadata import CheckpointMetadata, SnapshotKind
        from tidegate.core.ids import EpochId, Lineage, Term
        from tidegate.graph.parallelism import check_parallelism

        check_parallelism(parallelism, max_parallelism)
        return SavepointWriter(
            CheckpointMetadata(
                job=job,
                lineage=Lineage(uuid.uuid4().hex),
                checkpoint_id=0,
                term=Term(0),
                epoch=EpochId(Term(0), 0),
                kind=SnapshotKind.SAVEPOINT,
                triggered_ms=0,
                completed_ms=0,
                tidegate_version=version("tidegate"),
                spark_version="",
                max_parallelism=max_parallelism,
                parallelism=parallelism,
                clock_ms=0,
            )
        )

    @staticmethod
    def from_existing(savepoint: Savepoint) -> SavepointWriter:
        """Start from another savepoint, or a checkpoint. Positions of sources, the watermark and the clock are kept."""
        return SavepointWriter(savepoint._snapshot)

    def with_state(
        self, uid: str, state: str, contents: Contents, *,
        key: str | None = None, value: object = None, map_key: object = None, kind: str | None = None,
    ) -> SavepointWriter:  # fmt: skip
        """Add a keyed state, or replace the contents of an existing one.

        `contents` are pairs of key and value (a ListState: list of elements; a MapState: dict), a mapping of these, or a
        DataFrame or Arrow table whose columns are the key's, then, for a map, the map key, then the value. For a new state,
        give `key` (its columns, as in `"user string"`) and `value` (a Python type; for an AggregatingState that of its
        accumulator), for a map `map_key`, and `kind` if it is not "value" or "map": "list", "sorted_map", "reducing",
        "aggregating". For an existing state, the types are known; its dataclasses are dicts by field name.
        """
        from tidegate.savepoint.incoming import Pairs

        return self._with(uid, state, lambda plain: Pairs(contents, plain), key, value, map_key, kind)

    def with_entries(
        self, uid: str, state: str, entries: Iterable[StateEntry] | Table, *,
        key: str | None = None, value: object = None, map_key: object = None, kind: str | None = None, windowed: bool = False,
    ) -> SavepointWriter:  # fmt: skip
        """Like `with_state` and `with_operator_state`, with everything that an entry may have: window, position, stamp.

        `entries` are what `SavedState.entries()` yields, or an Arrow table or DataFrame with the columns of `to_arrow()`
        and `to_df()`. Only `key`, `map_key` and `value` are needed, if the state has them; `operator`, `state` and
        `key_group` are computed. `windowed` declares that a new state exists once for each window.
        """
        from tidegate.savepoint.incoming import IncomingTable

        return self._with(uid, state, lambda _: IncomingTable(entries), key, value, map_key, kind, windowed=windowed)

    def with_timers(
        self, uid: str, *, event_time: Contents = (), processing_time: Contents = (), key: str | None = None
    ) -> SavepointWriter:  # fmt: skip
        """Give the keyed operator `uid` these timers, replacing those it has. They fire once the job runs.

        For each clock: a mapping, pairs, a DataFrame or an Arrow table of keys and times: milliseconds since 1970, or
        datetimes with a zone; or a list of them. For a new operator, give its `key`.
        """
        from tidegate.graph.states import TIMERS
        from tidegate.savepoint.incoming import IncomingTimers

        given = {TimeDomain.EVENT_TIME: event_time, TimeDomain.PROCESSING_TIME: processing_time}
        return self._with(uid, TIMERS.name, lambda _: IncomingTimers(given), key, int, None, str(TIMERS.kind))

    def with_operator_state(
        self, uid: str, state: str, contents: Elements, *,
        value: object = None, map_key: object = None, union: bool = False, key: str | None = None,
    ) -> SavepointWriter:  # fmt: skip
        """Add state of an operator's tasks, or replace the contents of an existing one.

        `contents` are the elements of a list, distributed over the tasks; or, with `map_key`, the mapping of a
        BroadcastState; or a DataFrame or Arrow table of one column, or of two. For a new state, give `value` (a Python
        type), and `union` if every task reads the whole list. A keyed operator without keyed state here needs its `key`.
        """
        from tidegate.checkpoint.metadata import Distribution
        from tidegate.savepoint.incoming import IncomingElements

        spread = Distribution.UNION if union else Distribution.SPLIT if map_key is None else Distribution.BROADCAST
        kind = None if value is None else "list" if map_key is None else "map"
        return self._with(
            uid, state, lambda plain: IncomingElements(contents, plain), key, value, map_key, kind, spread
        )

    def rename_uid(self, old: str, new: str) -> SavepointWriter:
        """Rename the operator or source `old` to `new`."""
        made = self._like()
        made._renames = {**self._renames, old: new}
        return made

    def remove(self, uid: str, state: str | None = None) -> SavepointWriter:
        """Omit one state of an operator, or all of them."""
        made = self._like()
        made._drops = self._drops | {(uid, state)}
        return made

    def with_max_parallelism(self, max_parallelism: int) -> SavepointWriter:
        """Redistribute the key groups: the only way to change max parallelism."""
        made = self._like()
        made._max_parallelism = max_parallelism
        return made

    def write(self, path: str | Path, **storage_options: object) -> Savepoint:
        """Write everything into the empty directory `path`. It is a savepoint once this returns, and none before."""
        from tidegate.savepoint.changes import Changes
        from tidegate.savepoint.copy import copy_snapshot
        from tidegate.savepoint.snapshot import StoredSnapshot
        from tidegate.storage import open_storage

        options: dict[str, Any] = storage_options
        target = open_storage(path, **options)
        base = (
            self._base if isinstance(self._base, StoredSnapshot) else StoredSnapshot(target, "", self._base, target.url)
        )
        changes = Changes(self._max_parallelism, self._renames, self._drops)
        copy_snapshot(base, target, changes=changes, additions=self._additions)
        return Savepoint.open(path, **storage_options)

    def _with(  # noqa: PLR0913 one parameter for each kind of state
        self, uid: str, state: str, contents: Callable[[Any], Any], key: str | None, value: Any, map_key: Any,
        kind: str | None, spread: Distribution | None = None, windowed: bool = False,
    ) -> SavepointWriter:  # fmt: skip
        """Return a writer with one more addition, which replaces what the snapshot has under this name."""
        from tidegate.checkpoint.metadata import Distribution
        from tidegate.savepoint.additions import Addition

        there = self._known(uid, state)
        if value is None and there is None:
            raise GraphError(
                f"The state {state!r} of {uid!r} is new. Say its type: with_state(…, key='user string', value=float)."
            )
        if value is None and there is not None:
            spread, windowed = there.info.distribution, there.info.namespace is not None
        spread = spread or Distribution.KEYED
        kind = kind or (there.info.kind if there and value is None else "value" if map_key is None else "map")
        schema, keys, plain = _types(value, map_key, kind, there)
        columns = self._columns(uid, key, spread is Distribution.KEYED)
        new = self._like()
        new._additions = (
            *self._additions,
            Addition(
                uid=uid,
                state=state,
                kind=kind,
                key=columns,
                value=schema,
                map_key=keys,
                contents=contents(plain),
                distribution=spread,
                windowed=windowed,
            ),
        )
        if there is not None:
            new._drops = self._drops | {(self._old_uid(uid), state)}
        return new

    def _like(self) -> SavepointWriter:
        made = SavepointWriter(self._base)
        made._renames, made._drops, made._additions = dict(self._renames), self._drops, self._additions
        made._max_parallelism = self._max_parallelism
        return made

    def _old_uid(self, uid: str) -> str:
        return next((old for old, new in self._renames.items() if new == uid), uid)

    def _known(self, uid: str, state: str) -> StateLayout | None:
        from tidegate.savepoint.snapshot import StoredSnapshot

        if not isinstance(self._base, StoredSnapshot):
            return None
        old = self._old_uid(uid)
        operator = next((o for o in self._base.metadata.operators if o.uid == old), None)
        if operator is None or all(s.name != state for s in operator.states):
            return None
        return self._base.layout(old, state)

    def _columns(self, uid: str, key: str | None, keyed: bool) -> tuple[str, ...]:
        """Return the DDL types of the key columns: as given, as the operator has them, or as an earlier addition gave them."""
        from tidegate.graph.schema import Schema
        from tidegate.savepoint.snapshot import StoredSnapshot

        if key is not None:
            return tuple(field.type.ddl() for field in Schema.parse(key))
        before = next((one.key for one in self._additions if one.uid == uid and one.key), ())
        if not before and isinstance(self._base, StoredSnapshot):
            old = next((o for o in self._base.metadata.operators if o.uid == self._old_uid(uid)), None)
            before = tuple((old.key or {}).get("columns", ())) if old is not None else ()
        if keyed and not before:
            raise GraphError("A new state needs its key columns: with_state(…, key='user string').")
        return before


def _types(value: Any, map_key: Any, kind: str, there: Any) -> tuple[Any, Any, Any]:
    """Return the stored schemas, and the function that converts a user value into a plain one."""
    from tidegate.core.types import codec_of, schema_of
    from tidegate.savepoint.schema_codec import schema_codec

    if value is None:
        return there.value, there.info.map_key, None
    if (kind in _MAPS) != (map_key is not None):
        raise GraphError("A map needs both types: with_state(…, value=int, map_key=str); nothing else has a map_key.")
    encode, decode = codec_of(value).encode, schema_codec(schema_of(value)).decode
    return schema_of(value), None if map_key is None else schema_of(map_key), lambda one: decode(encode(one))
