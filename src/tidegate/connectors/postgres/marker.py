"""tidegate's own tables next to the target, which record commits. Each row is written in the transaction that it describes.

tidegate_commits   (lineage, sink, slot) → the last epoch committed; under slot -1, up to which epoch all is final
tidegate_prepared  the prepared transactions that were committed, until they are final
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from tidegate.core.errors import PreconditionFailed
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed, Identifier

FINAL_SLOT = -1
"""In place of a slot: the row that says up to which epoch all output is final. Stored, so it never changes."""

_TABLES = {
    "tidegate_commits": "lineage text NOT NULL, sink text NOT NULL, slot integer NOT NULL, term bigint NOT NULL, "
    "epoch bigint NOT NULL, at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (lineage, sink, slot)",
    "tidegate_prepared": "gid text PRIMARY KEY, lineage text NOT NULL, sink text NOT NULL, term bigint NOT NULL, "
    "epoch bigint NOT NULL, at timestamptz NOT NULL DEFAULT now()",
}


class Markers:
    """The marker tables in one schema. Every method works in the caller's transaction."""

    def __init__(self, schema: str) -> None:
        from psycopg import sql

        self._sql = sql
        self._schema = schema

    def create(self, connection: psycopg.Connection[Any]) -> None:
        """Create the tables if they are missing. Two drivers may do so at once."""
        psycopg = _errors()
        for name, columns in _TABLES.items():
            # CREATE TABLE needs a right that a user with existing tables may lack, even if it would do nothing.
            if connection.execute("SELECT to_regclass(%s)", [self._table(name).as_string(connection)]).fetchone() != (
                None,
            ):
                continue
            statement = self._sql.SQL(f"CREATE TABLE IF NOT EXISTS {{}} ({columns})").format(self._table(name))
            try:
                connection.execute(statement)
            except (psycopg.UniqueViolation, psycopg.DuplicateTable):
                continue  # another driver was first
            except psycopg.InsufficientPrivilege as error:
                raise PreconditionFailed(
                    f"The table {self._schema}.{name}, in which tidegate records commits, is missing, and this user may not "
                    f"create it. Have it created, with the right to read and write it: {statement.as_string(connection)};"
                ) from error

    def move(self, connection: psycopg.Connection[Any], lineage: Lineage, sink: Uid, slot: int, to: EpochId) -> bool:
        """Move the marker forward and lock it until the end of the transaction. False: it already covers `to`."""
        return (
            connection.execute(
                self._of(
                    "INSERT INTO {commits} AS c (lineage, sink, slot, term, epoch) VALUES (%s, %s, %s, %s, %s) "
                    "ON CONFLICT (lineage, sink, slot) DO UPDATE SET term = EXCLUDED.term, epoch = EXCLUDED.epoch, "
                    "at = now() WHERE (c.term, c.epoch) < (EXCLUDED.term, EXCLUDED.epoch) RETURNING 1"
                ),
                [lineage, sink, slot, to.term, to.number],
            ).fetchone()
            is not None
        )

    def read(
        self, connection: psycopg.Connection[Any], sink: Uid, slots: Collection[tuple[Lineage, Slot]]
    ) -> dict[tuple[Lineage, Slot], EpochId]:
        """Read the markers of these slots, without a lock. They may have moved on since."""
        lineages, numbers = zip(*sorted(slots))
        found = connection.execute(
            self._of(
                "SELECT lineage, slot, term, epoch FROM {commits} WHERE (lineage, slot) IN "
                "(SELECT * FROM unnest(%s::text[], %s::integer[])) AND sink = %s"
            ),
            [list(lineages), list(numbers), sink],
        )
        return {(Lineage(lineage), slot): EpochId(Term(term), epoch) for lineage, slot, term, epoch in found.fetchall()}

    def hold(
        self, connection: psycopg.Connection[Any], sink: Uid, slots: Collection[tuple[Lineage, Slot]]
    ) -> dict[tuple[Lineage, Slot], EpochId]:
        """Read the markers of these slots and lock them until the end of the transaction. Missing ones are created. All
        committers lock several markers in the same order, so that there is no deadlock.
        """
        lineages, numbers = zip(*sorted(slots))
        values = [list(lineages), list(numbers), sink]
        connection.execute(
            self._of(
                "INSERT INTO {commits} (lineage, sink, slot, term, epoch) SELECT l, %s, s, 0, 0 "
                "FROM unnest(%s::text[], %s::integer[]) AS t (l, s) ORDER BY l, s ON CONFLICT DO NOTHING"
            ),
            [sink, *values[:2]],
        )
        found = connection.execute(
            self._of(
                "SELECT lineage, slot, term, epoch FROM {commits} WHERE (lineage, slot) IN "
                "(SELECT * FROM unnest(%s::text[], %s::integer[])) AND sink = %s ORDER BY lineage, slot FOR UPDATE"
            ),
            values,
        )
        return {(Lineage(lineage), slot): EpochId(Term(term), epoch) for lineage, slot, term, epoch in found.fetchall()}

    def advance(
        self, connection: psycopg.Connection[Any], sink: Uid, to: Mapping[tuple[Lineage, Slot], EpochId]
    ) -> None:
        """Move locked markers."""
        moved = sorted((lineage, slot, epoch.term, epoch.number) for (lineage, slot), epoch in to.items())
        connection.execute(
            self._of(
                "UPDATE {commits} AS c SET term = t.term, epoch = t.epoch, at = now() FROM "
                "unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[]) AS t (lineage, slot, term, epoch) "
                "WHERE c.lineage = t.lineage AND c.slot = t.slot AND c.sink = %s"
            ),
            [*map(list, zip(*moved)), sink],
        )

    def all_of(self, connection: psycopg.Connection[Any], lineage: Lineage, sink: Uid) -> list[EpochId]:
        """Return the epochs of all markers, of every slot and of prepared transactions that were committed."""
        found = connection.execute(
            self._of(
                "SELECT term, epoch FROM {commits} WHERE lineage = %s AND sink = %s "
                "UNION SELECT term, epoch FROM {prepared} WHERE lineage = %s AND sink = %s"
            ),
            [lineage, sink, lineage, sink],
        )
        return [EpochId(Term(term), epoch) for term, epoch in found.fetchall()]

    def final_epoch(self, connection: psycopg.Connection[Any], lineage: Lineage, sink: Uid) -> EpochId | None:
        """Return the epoch up to which all output is final."""
        found = connection.execute(
            self._of("SELECT term, epoch FROM {commits} WHERE lineage = %s AND sink = %s AND slot = %s"),
            [lineage, sink, FINAL_SLOT],
        ).fetchone()
        return None if found is None else EpochId(Term(found[0]), found[1])

    def add_prepared(
        self, connection: psycopg.Connection[Any], gid: str, lineage: Lineage, sink: Uid, epoch: EpochId
    ) -> None:
        connection.execute(
            self._of("INSERT INTO {prepared} (gid, lineage, sink, term, epoch) VALUES (%s, %s, %s, %s, %s)"),
            [gid, lineage, sink, epoch.term, epoch.number],
        )

    def has_prepared(self, connection: psycopg.Connection[Any], gid: str) -> bool:
        """Whether a prepared transaction was committed."""
        return connection.execute(self._of("SELECT 1 FROM {prepared} WHERE gid = %s"), [gid]).fetchone() is not None

    def forget_prepared(
        self, connection: psycopg.Connection[Any], lineage: Lineage, sink: Uid, upto: EpochId, keep: list[str]
    ) -> None:
        connection.execute(
            self._of(
                "DELETE FROM {prepared} WHERE lineage = %s AND sink = %s AND (term, epoch) <= (%s, %s) AND gid <> ALL(%s)"
            ),
            [lineage, sink, upto.term, upto.number, keep],
        )

    def _table(self, name: str) -> Identifier:
        return self._sql.Identifier(self._schema, name)

    def _of(self, statement: str) -> Composed:
        return self._sql.SQL(statement).format(
            commits=self._table("tidegate_commits"), prepared=self._table("tidegate_prepared")
        )


def _errors() -> Any:
    from psycopg import errors

    return errors
