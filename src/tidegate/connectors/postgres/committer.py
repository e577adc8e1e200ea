"""The committer, in the driver: rows and their marker in one transaction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.connectors.outcome import CommitInDoubt, CommitOutcome, CommitRefused
from tidegate.connectors.postgres.connection import connect, driver
from tidegate.connectors.postgres.markers import SETTLED, Markers
from tidegate.connectors.postgres.payload import Copy, Prepared, decode, epoch_in, gid_prefix
from tidegate.connectors.postgres.table import Table, TableRefused, check_table, read_table
from tidegate.connectors.sink import CommitRequest, CommitterContext, Settled
from tidegate.core.faults import reach

if TYPE_CHECKING:
    import psycopg

    from tidegate.connectors.postgres.sink import PostgresSink

log = logging.getLogger("tidegate")
T = TypeVar("T")


class PostgresCommitter:
    """One connection, opened when first needed and again after it broke. Threads take turns."""

    def __init__(self, sink: PostgresSink, context: CommitterContext) -> None:
        self._sink, self._context = sink, context
        self._connection: psycopg.Connection[Any] | None = None
        self._turn = threading.Lock()

    def check(self) -> None:
        """Look at the table now, so that a job that cannot work does not start. A server that does not answer is no
        reason: output waits for it."""
        try:
            self._connect()
        except driver().OperationalError as error:
            log.warning("%s does not answer yet; output will wait for it: %s", self._sink.describe(), error)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes: dict[int, CommitOutcome] = {}
        for place, request in sorted(enumerate(requests), key=lambda each: (each[1].epoch, each[1].slot)):
            match decode(request.payload):
                case Copy() as payload:
                    outcomes[place] = self._on_server(partial(self._copy, request, payload))
                case Prepared() as payload:
                    outcomes[place] = self._on_server(partial(self._commit_prepared, request, payload))
        return [outcomes[place] for place in range(len(requests))]

    def _copy(self, request: CommitRequest, payload: Copy, connection: psycopg.Connection[Any]) -> CommitOutcome:
        """In one transaction:

        1. Move the marker of (lineage, sink, slot) forward to this epoch. It is there already: nothing to do. Whoever
           else tries waits here until this transaction has ended.
        2. Copy the rows in; for an upsert by way of a temporary table, the last row of each key winning.
        3. Commit. Whether an answer that was lost said yes is told by the marker when the request comes again.
        """
        with connection.transaction():
            if not self._markers.move(connection, request.lineage, request.sink, request.slot, request.epoch):
                return CommitOutcome.ALREADY_COMMITTED
            reach("postgres.1-marked", epoch=request.epoch)
            if self._sink.key:
                self._upsert(connection, payload)
            else:
                self._copy_into(connection, self._target, payload)
            reach("postgres.2-copied", epoch=request.epoch)
        reach("postgres.3-committed", epoch=request.epoch)
        return CommitOutcome.COMMITTED

    def _copy_into(self, connection: psycopg.Connection[Any], table: Any, payload: Copy) -> None:
        from psycopg import sql

        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, _names(payload.columns))
        with connection.cursor().copy(statement) as copy:
            for token in payload.tokens:
                copy.write(self._context.read(token))

    def _upsert(self, connection: psycopg.Connection[Any], payload: Copy) -> None:
        from psycopg import sql

        staged, columns, key = sql.Identifier("tidegate_staged"), _names(payload.columns), _names(self._sink.key)
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                staged, columns, self._target
            )
        )
        self._copy_into(connection, staged, payload)
        others = [sql.Identifier(name) for name in payload.columns if name not in self._sink.key]
        changes = [sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(changes)) if changes else sql.SQL("NOTHING")
        # Rows of a new table lie in the order in which they came: the place of a row tells which is the last.
        connection.execute(
            sql.SQL(
                "INSERT INTO {target} ({columns}) SELECT DISTINCT ON ({key}) {columns} FROM {staged} "
                "ORDER BY {key}, ctid DESC ON CONFLICT ({key}) DO {action}"
            ).format(target=self._target, columns=columns, key=key, staged=staged, action=action)
        )

    def _commit_prepared(
        self, request: CommitRequest, payload: Prepared, connection: psycopg.Connection[Any]
    ) -> CommitOutcome:
        """The second phase.

        1. The checkpoint is complete. A crash leaves the transaction prepared, for as long as it takes.
        2. Commit it. If there is none of that id, it was committed if the note in it can be read, or if all of its
           epoch is settled; else somebody rolled it back, and its rows are lost.
        """
        from psycopg import errors

        reach("postgres.commit-1-complete", gid=payload.gid)
        try:
            connection.execute(f"COMMIT PREPARED '{payload.gid}'")
        except errors.UndefinedObject:
            if not self._markers.has_prepared(connection, payload.gid) and not self._markers.is_settled(
                connection, request.lineage, request.sink, request.epoch
            ):
                raise CommitInDoubt(
                    f"The prepared transaction {payload.gid} of epoch {request.epoch}, with {payload.rows} rows, is gone, and "
                    "nothing tells that it was committed. Was it rolled back by hand, or the database replaced by an older "
                    "copy? Start the job from a savepoint taken before that epoch, so that its rows are made again."
                ) from None
            return CommitOutcome.ALREADY_COMMITTED
        reach("postgres.commit-2-committed", gid=payload.gid)
        return CommitOutcome.COMMITTED

    def sweep(self, settled: Settled) -> None:
        """Two-phase only: staged rows are the job's own to clean up.

        1. Note up to where all is settled. A crash leaves that, and everything else for the next sweep.
        2. Roll back what discarded attempts prepared. 3. Forget the notes of committed ones.
        """
        if self._sink.two_phase:
            self._on_server(lambda connection: self._sweep(connection, settled))

    def _sweep(self, connection: psycopg.Connection[Any], settled: Settled) -> None:
        from psycopg import errors

        lineage, sink, upto = settled.lineage, settled.sink, settled.epoch
        keep = [p.gid for p in map(decode, (request.payload for request in settled.waiting)) if isinstance(p, Prepared)]
        self._markers.move(connection, lineage, sink, SETTLED, upto)
        found = connection.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)",
            [gid_prefix(lineage, sink)],
        )
        for (gid,) in found.fetchall():
            epoch = epoch_in(gid)
            if epoch is not None and epoch <= upto and gid not in keep:
                try:
                    connection.execute(f"ROLLBACK PREPARED '{gid}'")
                except errors.UndefinedObject:
                    continue
        self._markers.forget_prepared(connection, lineage, sink, upto, keep)

    # -- the connection ----------------------------------------------------------------------------------------------

    def _on_server(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Do it, once more if a connection that was opened long ago turns out to be dead: all work may be repeated."""
        library = driver()
        try:
            return self._in_turn(work)
        except (library.DataError, library.IntegrityError, library.ProgrammingError) as error:
            # The transaction is rolled back with its marker, and the same rows would fail in the same way.
            raise CommitRefused(
                f"{self._sink.describe()}: the database does not take the rows: {str(error).strip()}. Change the table so "
                "that it does, and start the job again: the rows are kept."
            ) from error

    def _in_turn(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        with self._turn:
            fresh = self._connection is None
            try:
                try:
                    return work(self._connect())
                except driver().OperationalError:
                    self._forget()
                    if fresh:
                        raise
                    return work(self._connect())
            except BaseException:
                self._forget()
                raise

    def _connect(self) -> psycopg.Connection[Any]:
        from psycopg import sql

        if self._connection is None:
            connection = connect(self._sink.conninfo)
            try:
                table = read_table(connection, self._sink.table)
                check_table(table, self._context.schema, self._sink.key, self._sink.two_phase)
                self._check_server(connection, table)
                self._markers = Markers(table.schema)
                self._markers.create(connection)
            except BaseException:
                connection.close()
                raise
            self._target = sql.Identifier(table.schema, table.name)
            self._connection = connection
        return self._connection

    def _check_server(self, connection: psycopg.Connection[Any], table: Table) -> None:
        if self._sink.two_phase and connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
            raise TableRefused(
                f"two_phase into {table} needs prepared transactions, and the server allows none. Set "
                "max_prepared_transactions (at least parallelism × epochs of two checkpoint intervals) and restart it, or "
                "leave out two_phase: the default is as exact."
            )
        rights = "INSERT, SELECT, UPDATE" if self._sink.key else "INSERT"
        for right in rights.split(", "):
            if connection.execute(
                "SELECT has_table_privilege(to_regclass(%s), %s)",
                [f"{_quoted(table.schema)}.{_quoted(table.name)}", right],
            ).fetchone() != (True,):
                raise TableRefused(
                    f"The user {connection.info.user} may not {right} in {table}: GRANT {rights} ON {table} TO "
                    f"{connection.info.user}."
                )

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _names(columns: Sequence[str]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
