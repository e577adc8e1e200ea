"""The target table: its definition as read from the server, and whether rows of a stream fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import SchemaError
from tidegate.schema.schema import Schema

if TYPE_CHECKING:
    import psycopg

TYPES = {
    "boolean": ("bool",),
    "tinyint": ("int2", "int4", "int8", "numeric"),
    "smallint": ("int2", "int4", "int8", "numeric"),
    "int": ("int4", "int8", "numeric"),
    "bigint": ("int8", "numeric"),
    "float": ("float4", "float8"),
    "double": ("float8",),
    "decimal": ("numeric",),
    "string": ("text", "varchar", "bpchar", "citext", "json", "jsonb", "uuid"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
    "array": ("jsonb", "json"),
    "map": ("jsonb", "json"),
    "struct": ("jsonb", "json"),
}
"""Type of a stream's column → table types that can hold every value of it. The first is the recommended one."""


class TableRefused(SchemaError):
    """The table cannot take the rows of the stream, or not in the requested mode."""

    code = "TABLE_REFUSED"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    """PostgreSQL's short name."""
    not_null: bool = False
    filled: bool = False
    """Whether the table fills it if a row does not provide it: a default, an identity."""
    computed: bool = False
    """Whether it must not be written."""


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    name: str
    columns: tuple[str, ...]
    plain: bool = True
    """Covers all rows, by columns only, and is checked immediately: the requirements of ON CONFLICT."""


@dataclass(frozen=True, slots=True)
class TargetTable:
    schema: str
    name: str
    kind: str
    """`r` for a table, `p` for a partitioned one, other values for anything else."""
    logged: bool
    columns: tuple[Column, ...]
    unique: tuple[UniqueIndex, ...] = ()

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def check_table(table: TargetTable, rows: Schema, key: Sequence[str], two_phase: bool) -> None:
    """Raise TableRefused, saying what to change. `key`: the columns of an upsert, empty for appends."""
    # One finding at a time, the most general first: what is said about columns of a view would be of no use.
    if table.kind not in ("r", "p"):
        raise TableRefused(f"{table} is not a table. Name the table to write to.")
    if not table.logged:
        raise TableRefused(
            f"{table} is unlogged or temporary: a crash of the server empties it, and committed output would be lost. "
            f"Make it durable: ALTER TABLE {table} SET LOGGED."
        )
    columns = {column.name: column for column in table.columns}
    for field in rows.fields:
        fitting = TYPES[field.type.kind]
        if field.name not in columns:
            raise TableRefused(
                f'{table} has no column {field.name!r}. Add it (ALTER TABLE {table} ADD COLUMN "{field.name}" {fitting[0]}), '
                "or leave it out of the stream."
            )
        found = columns[field.name]
        if found.computed:
            raise TableRefused(f"{table}.{found.name} is computed by the table. Leave it out of the stream.")
        if found.type not in fitting:
            raise TableRefused(
                f"{table}.{found.name} is {found.type}, but the stream's column is {field.type}. Make the table's column "
                f"{' or '.join(fitting)}, or cast the stream's."
            )
    for column in table.columns:
        if column.not_null and not column.filled and column.name not in rows:
            raise TableRefused(
                f"{table}.{column.name} must not be null and has no default, but the stream does not provide it. The "
                f"stream's columns are {', '.join(rows.names)}."
            )
    if key:
        _check_key(table, key)
    if two_phase:
        _check_append_only(table, rows)


def _check_key(table: TargetTable, key: Sequence[str]) -> None:
    if not any(index.plain and set(index.columns) == set(key) for index in table.unique):
        listed = ", ".join(f'"{name}"' for name in key)
        raise TableRefused(
            f"Upserts into {table} by {', '.join(key)} need a primary key or a unique index on exactly these columns: "
            f"ALTER TABLE {table} ADD PRIMARY KEY ({listed})."
        )


def _check_append_only(table: TargetTable, rows: Schema) -> None:
    """A prepared transaction keeps its locks until its checkpoint completes. An insert of an equal key in the next epoch
    waits for that, and the checkpoint may wait for that epoch.
    """
    for index in table.unique:
        if not index.columns or all(name in rows for name in index.columns):
            raise TableRefused(
                f"two_phase requires an append-only table, but {table} has the unique index {index.name}: an equal key in "
                "the next epoch would wait for a checkpoint that waits for it. Omit two_phase."
            )


def read_table(connection: psycopg.Connection[Any], name: str) -> TargetTable:
    """Read the table's definition from the server. `name` is `table` or `schema.table`, verbatim, without quotes."""
    from psycopg import sql

    # Quoted, so that the name means what it says, also with capitals.
    identifier = sql.Identifier(*name.split(".", 1)).as_string(connection)
    found = connection.execute(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, c.relpersistence = 'p' FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
        [identifier],
    ).fetchone()
    if found is None:
        info = connection.info
        raise TableRefused(
            f"There is no table {name} in the database {info.dbname!r} at {info.host}:{info.port}, or the user {info.user!r} may "
            "not see its schema. Create it before starting the job."
        )
    oid, schema, table, kind, logged = found
    columns = connection.execute(
        "SELECT a.attname, t.typname, a.attnotnull, a.atthasdef OR a.attidentity <> '', "
        "a.attgenerated <> '' OR a.attidentity = 'a' FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [oid],
    ).fetchall()
    unique = connection.execute(
        "SELECT c.relname, array(SELECT a.attname FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k)::text[], "
        "i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL "
        "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = %s AND i.indisunique",
        [oid],
    ).fetchall()
    return TargetTable(
        schema=schema,
        name=table,
        kind=kind,
        logged=logged,
        columns=tuple(Column(*column) for column in columns),
        unique=tuple(UniqueIndex(index, tuple(names), plain) for index, names, plain in unique),
    )
