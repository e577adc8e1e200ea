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


class SavepointWriter:
    """Builds a new canonical savepoint. Nothing is written before `write`; every other method returns a new writer.

    Contents are Python objects, Arrow tables, or Spark DataFrames, which are collected into this process. A duplicate entry
    is rejected when the savepoint is written.

    Examples:
        >>> totals = {"ann": 12.0, "bob": 3.0}
        >>> writer = tg.SavepointWriter.new("orders").with_state("totals", "total", totals, key="user string", value=float)
        >>> first = writer.write("savepoints/sp-1")
        >>> second = tg.SavepointWriter.from_existing(first).rename_uid("totals", "sums").write("savepoints/sp-2")
        >>> second.state("sums", "total").get("bob")
        3.0
    """

    def __init__(self, base: StoredSnapshot | CheckpointMetadata) -> None:
        self._base = base
        self._renames: dict[str, str] = {}
        self._drops: frozenset[tuple[str, str | None]] = frozenset()
        self._additions: tuple[Addition, ...] = ()
        self._max_parallelism: int | None = None

    @staticmethod
    def new(job: str, max_parallelism: int = 128, parallelism: int = 1) -> SavepointWriter:
        """Start from nothing, for a job that will start with this state and at the beginning of its sources.

        Args:
            job: The name of the job.
            max_parallelism: The number of key groups. The job must have the same.
            parallelism: The parallelism that the savepoint says it was taken with. The job may have another.
        """
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
        """Start from another savepoint, or a checkpoint. Positions of sources, the watermark and the clock are kept.

        Args:
            savepoint: What `Savepoint.open` returns.
        """
        return SavepointWriter(savepoint._snapshot)

    def with_state(
        self,
        uid: str,
        state: str,
        contents: Contents,
        *,
        key: str | None = None,
        value: object = None,
        map_key: object = None,
        kind: str | None = None,
    ) -> SavepointWriter:
        """Add a keyed state, or replace the contents of an existing one.

        For an existing state, the types are known; its dataclasses are dicts by field name.

        Args:
            uid: The uid of the operator.
            state: The name of the state.
            contents: Pairs of key and value (a ListState: list of elements; a MapState: dict), a mapping of these, or a
                DataFrame or Arrow table whose columns are the key's, then, for a map, the map key, then the value.
            key: For a new operator: its key columns, as in `"user string"`.
            value: For a new state: a Python type; for an AggregatingState that of its accumulator.
            map_key: For a new map: the type of its keys.
            kind: For a new state that is neither `"value"` nor `"map"`: `"list"`, `"sorted_map"`, `"reducing"` or
                `"aggregating"`.

        Examples:
            >>> pages = [("ann", {"home": 2}), ("bob", {"cart": 1})]
            >>> writer = tg.SavepointWriter.new("clicks")
            >>> writer = writer.with_state("pages", "seen", pages, key="user string", value=int, map_key=str)
            >>> writer.write("savepoints/sp-1").state("pages", "seen").get("ann")
            {'home': 2}
        """
        from tidegate.savepoint.incoming import Pairs

        return self._with(uid, state, lambda plain: Pairs(contents, plain), key, value, map_key, kind)

    def with_entries(
        self,
        uid: str,
        state: str,
        entries: Iterable[StateEntry] | Table,
        *,
        key: str | None = None,
        value: object = None,
        map_key: object = None,
        kind: str | None = None,
        windowed: bool = False,
    ) -> SavepointWriter:
        """Like `with_state` and `with_operator_state`, with everything that an entry may have: window, position, stamp.

        Args:
            uid: The uid of the operator.
            state: The name of the state.
            entries: What `SavedState.entries()` yields, or an Arrow table or DataFrame with the columns of `to_arrow()` and
                `to_df()`. Only `key`, `map_key` and `value` are needed, if the state has them; `operator`, `state` and
                `key_group` are computed.
            key: For a new operator: its key columns, as in `"user string"`.
            value: For a new state: a Python type.
            map_key: For a new map: the type of its keys.
            kind: For a new state: its kind, as for `with_state`.
            windowed: For a new state: it exists once for each window.
        """
        from tidegate.savepoint.incoming import IncomingTable

        return self._with(uid, state, lambda _: IncomingTable(entries), key, value, map_key, kind, windowed=windowed)

    def with_timers(
        self, uid: str, *, event_time: Contents = (), processing_time: Contents = (), key: str | None = None
    ) -> SavepointWriter:
        """Give a keyed operator these timers, replacing those it has. They fire once the job runs.

        For each clock: a mapping, pairs, a DataFrame or an Arrow table of keys and times: milliseconds since 1970-01-01 UTC, or
        datetimes with a zone; or a list of them.

        Args:
            uid: The uid of the operator.
            event_time: Timers that fire when the watermark reaches them.
            processing_time: Timers that fire when the clock reaches them.
            key: For a new operator: its key columns, as in `"user string"`.
        """
        from tidegate.graph.states import TIMERS
        from tidegate.savepoint.incoming import IncomingTimers

        given = {TimeDomain.EVENT_TIME: event_time, TimeDomain.PROCESSING_TIME: processing_time}
        return self._with(uid, TIMERS.name, lambda _: IncomingTimers(given), key, int, None, str(TIMERS.kind))

    def with_operator_state(
        self,
        uid: str,
        state: str,
        contents: Elements,
        *,
        value: object = None,
        map_key: object = None,
        union: bool = False,
        key: str | None = None,
    ) -> SavepointWriter:
        """Add state of an operator's tasks, or replace the contents of an existing one.

        Args:
            uid: The uid of the operator.
            state: The name of the state.
            contents: The elements of a list, distributed over the tasks; or, with `map_key`, the mapping of a BroadcastState; or
                a DataFrame or Arrow table of one column, or of two.
            value: For a new state: a Python type.
            map_key: For a new BroadcastState: the type of its keys.
            union: For a new list: every task reads the whole list.
            key: The key columns of a keyed operator that has no keyed state in the savepoint.
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
        """Omit one state of an operator, or all of them.

        Args:
            uid: The uid of the operator.
            state: The name of the state. By default, all states.
        """
        made = self._like()
        made._drops = self._drops | {(uid, state)}
        return made

    def with_max_parallelism(self, max_parallelism: int) -> SavepointWriter:
        """Redistribute the key groups: the only way to change max parallelism.

        Args:
            max_parallelism: The new number of key groups.
        """
        made = self._like()
        made._max_parallelism = max_parallelism
        return made

    def write(self, path: str | Path, **storage_options: object) -> Savepoint:
        """Write everything. The directory is a savepoint once this returns, and none before.

        Args:
            path: An empty directory, local or in an object store.
            storage_options: Options of the object store, such as `endpoint`, `region`, `access_key_id` and `secret_access_key`.
        """
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
        self,
        uid: str,
        state: str,
        contents: Callable[[Any], Any],
        key: str | None,
        value: Any,
        map_key: Any,
        kind: str | None,
        spread: Distribution | None = None,
        windowed: bool = False,
    ) -> SavepointWriter:
        """Return a writer with one more addition, which replaces what the snapshot has under this name."""
        from tidegate.checkpoint.metadata import Distribution
        from tidegate.savepoint.additions import Addition

        there = self._known(uid, state)

        # A state that the snapshot has keeps its type, kind and distribution, unless a new type is given.
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
        # The old contents go, or both would be written.
        if there is not None:
            new._drops = self._drops | {(self._old_uid(uid), state)}
        return new

    def _like(self) -> SavepointWriter:
        made = SavepointWriter(self._base)
        made._renames = dict(self._renames)
        made._drops = self._drops
        made._additions = self._additions
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
        from tidegate.savepoint.snapshot import StoredSnapshot
        from tidegate.schema.schema import Schema

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
    from tidegate.savepoint.entries import SHAPES, Shape
    from tidegate.savepoint.schema_codec import schema_codec

    if value is None:
        return there.value, there.info.map_key, None
    if (SHAPES.get(kind) is Shape.MAP) != (map_key is not None):
        raise GraphError("A map needs both types: with_state(…, value=int, map_key=str); nothing else has a map_key.")
    encode, decode = codec_of(value).encode, schema_codec(schema_of(value)).decode
    return schema_of(value), None if map_key is None else schema_of(map_key), lambda one: decode(encode(one))
