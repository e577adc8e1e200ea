"""The committer: writes rows and their markers in one transaction, in a task or in the driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidegate.connectors.outcome import CommitInDoubt, CommitOutcome, CommitRefused, outcomes
from tidegate.connectors.postgres.client import connect, driver
from tidegate.connectors.postgres.marker import SETTLED, Markers
from tidegate.connectors.postgres.payload import Copy, Payload, Prepared, decode, epoch_in, gid_prefix
from tidegate.connectors.postgres.table import TableRefused, TargetTable, check_table, read_table
from tidegate.connectors.postgres.writer import CHUNK_BYTES
from tidegate.connectors.read_ahead import read_ahead
from tidegate.connectors.sink import Committable, CommitterContext, Settled
from tidegate.core.faults import reach

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tidegate")
T = TypeVar("T")
_Waiting: TypeAlias = tuple[Committable, Payload]

MOST_BYTES = 256 << 20
"""The rows of one transaction, unless a single epoch has more: all of it is repeated if the connection breaks."""


class PostgresCommitter:
    """One connection, opened on first use and again after it breaks. Threads are serialized by a lock."""

    def __init__(
        self,
        conninfo: str,
        table: str,
        context: CommitterContext,
        *,
        key: Sequence[str],
        two_phase: bool,
        description: str,
    ) -> None:
        """`description` names the sink in messages: a conninfo may hold a password."""
        self._conninfo, self._table, self._context = conninfo, table, context
        self._key, self._two_phase, self._description = key, two_phase, description
        self._connection: psycopg.Connection[Any] | None = None
        self._lock = threading.Lock()

    def check(self) -> None:
        """Check the table now, so that a job that cannot work does not start. An unreachable server is not
        an error: output waits for it.
        """
        try:
            self._connect()
        except driver().OperationalError as error:
            log.warning("%s is not reachable yet; output will wait for it: %s", self._description, error)

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        """Publish in the order of epochs: rows that wait in the job's storage many requests at a time, transactions that are
        prepared one after the other."""
        ordered = [(request, decode(request.payload)) for request in sorted(requests, key=lambda r: (r.epoch, r.slot))]
        published: list[Committable] = []
        for together in _transactions(ordered):
            match together[0]:
                case request, Prepared() as payload:
                    if self._on_server(partial(self._commit_prepared, request, payload)) is CommitOutcome.COMMITTED:
                        published.append(request)
                case _:
                    published += self._on_server(partial(self._copy, together))
        return outcomes(requests, published)

    def close(self) -> None:
        """Close the connection. The committer remains usable and opens a new one."""
        with self._lock:
            self._forget()

    def _copy(self, together: Sequence[_Waiting], connection: psycopg.Connection[Any]) -> list[Committable]:
        """In one transaction:

        1. Lock the markers of all (lineage, sink, slot), and move them forward. Requests that they cover are skipped. Any
           other committer that wants one of them waits here until this transaction has ended.
        2. Copy the rows, in epoch order; for upserts through a temporary table, in which the last row of each key wins.
        3. Commit. If the response is lost, the markers show whether it succeeded when the requests are repeated.
        """
        with connection.transaction():
            markers = self._markers.hold(
                connection, together[0][0].sink, {(request.lineage, request.slot) for request, _ in together}
            )
            new = [(r, payload) for r, payload in together if r.epoch > markers[r.lineage, r.slot]]
            if not new:
                return []
            last = {(request.lineage, request.slot): request.epoch for request, _ in new}
            self._markers.advance(connection, new[0][0].sink, last)
            reach("postgres.1-marked", epoch=new[-1][0].epoch)
            for columns, tokens in _same_columns(new):
                if self._key:
                    self._upsert(connection, columns, tokens)
                else:
                    self._copy_into(connection, self._target, columns, tokens)
            reach("postgres.2-copied", epoch=new[-1][0].epoch)
        reach("postgres.3-committed", epoch=new[-1][0].epoch)
        return [request for request, _ in new]

    def _copy_into(
        self, connection: psycopg.Connection[Any], table: Any, columns: Sequence[str], tokens: Sequence[str]
    ) -> None:
        from psycopg import sql

        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, _names(columns))
        with connection.cursor().copy(statement) as copy:
            for text in read_ahead(self._context.read, tokens):
                copy.write(text)

    def _upsert(self, connection: psycopg.Connection[Any], names: Sequence[str], tokens: Sequence[str]) -> None:
        from psycopg import sql

        staged, columns, key = sql.Identifier("tidegate_staged"), _names(names), _names(self._key)
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                staged, columns, self._target
            )
        )
        self._copy_into(connection, staged, names, tokens)
        others = [sql.Identifier(name) for name in names if name not in self._key]
        changes = [sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(changes)) if changes else sql.SQL("NOTHING")
        # Rows of a new table are stored in insertion order: the position of a row shows which is the last.
        connection.execute(
            sql.SQL(
                "INSERT INTO {target} ({columns}) SELECT DISTINCT ON ({key}) {columns} FROM {staged} "
                "ORDER BY {key}, ctid DESC ON CONFLICT ({key}) DO {action}"
            ).format(target=self._target, columns=columns, key=key, staged=staged, action=action)
        )
        connection.execute(sql.SQL("DROP TABLE {}").format(staged))

    def _commit_prepared(
        self, request: Committable, payload: Prepared, connection: psycopg.Connection[Any]
    ) -> CommitOutcome:
        """The second phase.

        1. The checkpoint is complete. A crash leaves the transaction prepared, for as long as necessary.
        2. Commit it. If no transaction with that id exists, it was committed if its note can be read, or if its whole epoch
           is settled; otherwise someone rolled it back, and its rows are lost.
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
                    f"The prepared transaction {payload.gid} of epoch {request.epoch}, with {payload.rows} rows, no longer "
                    "exists, and nothing shows that it was committed. It was rolled back by hand, or the database was "
                    "replaced by an older copy. Start the job from a savepoint taken before that epoch, so that its rows are "
                    "produced again."
                ) from None
            return CommitOutcome.ALREADY_COMMITTED
        reach("postgres.commit-2-committed", gid=payload.gid)
        return CommitOutcome.COMMITTED

    def sweep(self, settled: Settled) -> None:
        """Two-phase only: rows staged in the job's storage are cleaned up by the job.

        1. Record the settled epoch. A crash leaves that record, and everything else for the next sweep.
        2. Roll back transactions that discarded attempts prepared. 3. Delete the notes of committed ones.
        """
        if self._two_phase:
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
        """Run `work`, and repeat it once if a connection opened long ago turns out to be dead: all work is repeatable."""
        library = driver()
        try:
            return self._locked(work)
        except (library.DataError, library.IntegrityError, library.ProgrammingError) as error:
            # The transaction is rolled back with its marker, and the same rows would fail in the same way.
            raise CommitRefused(
                f"{self._description}: the database rejects the rows: {str(error).strip()}. Change the table so that it "
                "accepts them, and restart the job: the rows are kept."
            ) from error

    def _locked(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        with self._lock:
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
            connection = connect(self._conninfo)
            try:
                table = read_table(connection, self._table)
                check_table(table, self._context.schema, self._key, self._two_phase)
                self._check_server(connection, table)
                self._markers = Markers(table.schema)
                self._markers.create(connection)
            except BaseException:
                connection.close()
                raise
            self._target = sql.Identifier(table.schema, table.name)
            self._connection = connection
        return self._connection

    def _check_server(self, connection: psycopg.Connection[Any], table: TargetTable) -> None:
        if self._two_phase and connection.execute("SHOW max_prepared_transactions").fetchone() == ("0",):
            raise TableRefused(
                f"two_phase into {table} needs prepared transactions, but the server allows none. Set "
                "max_prepared_transactions (at least parallelism × epochs of two checkpoint intervals) and restart the "
                "server, or omit two_phase: the default is also exactly-once."
            )
        rights = "INSERT, SELECT, UPDATE" if self._key else "INSERT"
        for right in rights.split(", "):
            if connection.execute(
                "SELECT has_table_privilege(to_regclass(%s), %s)",
                [f"{_quoted(table.schema)}.{_quoted(table.name)}", right],
            ).fetchone() != (True,):
                raise TableRefused(
                    f"The user {connection.info.user} may not {right} in {table}. Grant it: GRANT {rights} ON {table} TO "
                    f"{connection.info.user}."
                )

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _transactions(ordered: Sequence[_Waiting]) -> Iterator[list[_Waiting]]:
    """Group the requests to commit together: as many as `MOST_BYTES` allows, split between epochs. A
    prepared transaction stands alone.
    """
    together: list[_Waiting] = []
    size = 0
    for _, found in groupby(ordered, lambda each: each[0].epoch):
        epoch = list(found)
        copies = [each for each in epoch if isinstance(each[1], Copy)]
        added = sum(_size_bytes(each[1]) for each in copies)
        if together and size + added > MOST_BYTES:
            yield together
            together, size = [], 0
        together, size = together + copies, size + added
        if len(copies) < len(epoch):
            if together:
                yield together
            yield from ([each] for each in epoch if isinstance(each[1], Prepared))
            together, size = [], 0
    if together:
        yield together


def _size_bytes(payload: Payload) -> int:
    return (payload.size_bytes or len(payload.tokens) * CHUNK_BYTES) if isinstance(payload, Copy) else 0


def _same_columns(waiting: Sequence[_Waiting]) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the tokens of consecutive requests with equal columns: a changed job may have different ones."""
    copies = [payload for _, payload in waiting if isinstance(payload, Copy)]
    for columns, found in groupby(copies, lambda payload: payload.columns):
        yield columns, [token for payload in found for token in payload.tokens]


def _names(columns: Sequence[str]) -> Any:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
