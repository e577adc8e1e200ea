"""The committer: writes rows and their markers in one transaction, in a task or in the driver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidegate.connectors.host_names import none_exists
from tidegate.connectors.outcome import CommitInDoubt, CommitOutcome, CommitRefused, outcomes
from tidegate.connectors.postgres.client import Address, connect, driver, host_names, refusal_of
from tidegate.connectors.postgres.lock_watch import limit_transaction, watched
from tidegate.connectors.postgres.marker import FINAL_SLOT, Markers
from tidegate.connectors.postgres.payload import Copy, Payload, Prepared, checked, epoch_in, gid_prefix
from tidegate.connectors.postgres.shared_connection import OpenTable, SharedConnection, shared
from tidegate.connectors.postgres.table import TableRefused, TargetTable, check_table, read_table
from tidegate.connectors.postgres.writer import CHUNK_BYTES
from tidegate.connectors.read_ahead import read_ahead
from tidegate.connectors.sink import Committable, CommitterContext, Settled
from tidegate.core.faults import reach
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid, ordinal

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tidegate")
T = TypeVar("T")
_Waiting: TypeAlias = tuple[Committable, Payload]

# Before every epoch: terms begin with 1.
_NEVER = EpochId(Term(0), 0)

IN_MEMORY_BYTES = 32 << 20
"""Rows that wait for a lock in memory; more of them wait on the local disk."""

MOST_BYTES = 256 << 20
"""The rows of one transaction, unless a single epoch has more: all of it is repeated if the connection breaks."""


class PostgresCommitter:
    """Shares one connection with all committers of this sink in this process (`shared_connection`)."""

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
        self._conninfo = conninfo
        self._table = table
        self._context = context
        self._key = key
        self._two_phase = two_phase
        self._description = description

    def check(self) -> None:
        """Check the table now, so that a job that cannot work does not start. An unreachable server is not
        an error: output waits for it. Neither is one that refuses the connection: `check_target` reports that.
        """
        try:
            self._shared.use(self._open, lambda table: None)
        except driver().OperationalError as error:
            if self._refused(error) is None:
                address = Address.of(self._conninfo)
                # Only a note: `check_target` asks again, and its caller decides whether the job starts.
                log.info(
                    "PostgreSQL of a sink that %s is not reachable yet (%s): %s", self._description, address, error
                )

    def check_target(self) -> None:
        try:
            self._shared.use(self._open, lambda table: None)
        except driver().OperationalError as error:
            refused = self._refused(error)
            if refused is None:
                raise
            raise refused from None

    def _refused(self, error: BaseException) -> CommitRefused | None:
        """Return the error for a connection that will always fail like this; None if it may succeed later."""
        address = Address.of(self._conninfo)
        if (refusal := refusal_of(error, self._conninfo)) is not None:
            advice = refusal.advice.format(user=address.user, database=address.database)
            host = f"{refusal.host} says: " if refusal.host else ""
            return CommitRefused(
                f"PostgreSQL refuses the connection for table {self._table} ({address}): {host}{refusal.reason}. {advice}"
            )
        if none_exists(host_names(self._conninfo)):
            return CommitRefused(
                f"PostgreSQL for table {self._table} cannot be found ({address}): there is no such host. Correct host in "
                "the conninfo of the sink."
            )
        return None

    def commit(self, requests: Sequence[Committable]) -> Sequence[CommitOutcome]:
        """Commit in the order of epochs: rows that wait in the job's storage many requests at a time, transactions that are
        prepared one after the other."""
        # All are checked before the first is committed.
        in_order = sorted(requests, key=lambda r: (r.epoch, r.slot))
        ordered = [(request, checked(request, self._context)) for request in in_order]
        committed: list[Committable] = []
        for together in _transactions(ordered):
            match together[0]:
                case request, Prepared() as payload:
                    if self._on_server(partial(self._commit_prepared, request, payload)) is CommitOutcome.COMMITTED:
                        committed.append(request)
                case _:
                    committed += self._on_server(partial(self._copy, together))
        return outcomes(requests, committed)

    def markers(self, lineage: Lineage, sink: Uid) -> list[EpochId]:
        return self._on_server(lambda table: table.markers.all_of(table.connection, lineage, sink))

    def close(self) -> None:
        """Close the connection. The committer remains usable and opens a new one."""
        self._shared.close()

    def _copy(self, together: Sequence[_Waiting], table: OpenTable) -> list[Committable]:
        """Commit rows that wait in the job's storage.

        1. Read the markers, without a lock: requests that they cover are done, and their rows may be gone. A marker that the
           job's history does not know is refused, here and in step 3.
        2. Read the rows of the others, into memory or onto the local disk. Storage may be slow, and nobody else may commit
           for these slots while their markers are locked.
        In one transaction:
        3. Lock the markers of all (lineage, sink, slot), and move them forward. Requests that they cover by now are skipped.
           Any other committer that wants one of them waits here until this transaction has ended; if it is frozen, it is
           ended (`lock_watch`).
        4. Copy the rows, in epoch order; for upserts through a temporary table, in which the last row of each key wins.
        5. Commit. If the response is lost, the markers show whether it succeeded when the requests are repeated.
        A crash before 5 leaves nothing; the server rolls the transaction back.
        """
        connection, sink = table.connection, together[0][0].sink
        slots = {(request.lineage, request.slot) for request, _ in together}
        done = table.markers.read(connection, sink, slots)
        waiting = self._missing(done, together)
        if not waiting:
            return []
        # Each is named after the lineage of its first request: a job rarely carries output of several.
        lineage = waiting[0][0].lineage
        with _SpooledRows(self._context.read, waiting) as rows, connection.transaction():
            limit_transaction(connection, lineage, sink)
            with watched(connection, self._conninfo, lineage, sink):
                markers = table.markers.hold(connection, sink, slots)
            # Asked again under the lock: another committer may have been here while the rows were read.
            new = self._missing(markers, waiting)
            if not new:
                return []
            last = {(request.lineage, request.slot): request.epoch for request, _ in new}
            # In the transaction of the rows: both become visible together, or neither.
            table.markers.advance(connection, sink, last)
            reach("postgres.1-marked", epoch=new[-1][0].epoch)
            for columns, tokens in _same_columns(new):
                if self._key:
                    self._upsert(table, columns, rows.texts(tokens))
                else:
                    self._copy_into(connection, table.target, columns, rows.texts(tokens))
            reach("postgres.2-copied", epoch=new[-1][0].epoch)
        reach("postgres.3-committed", epoch=new[-1][0].epoch)
        return [request for request, _ in new]

    def _missing(self, markers: Mapping[tuple[Lineage, Slot], EpochId], requests: Sequence[_Waiting]) -> list[_Waiting]:
        """Return the requests that the markers do not cover. Raises `ForeignOutput` if one is not of the job's history."""
        covers = self._context.covers
        # A slot without a marker has never committed anything.
        found = ((each, each[0], markers.get((each[0].lineage, each[0].slot), _NEVER)) for each in requests)
        return [
            each for each, request, marker in found if not covers(request.lineage, request.sink, marker, request.epoch)
        ]

    def _copy_into(
        self, connection: psycopg.Connection[Any], table: Any, columns: Sequence[str], texts: Iterable[bytes]
    ) -> None:
        from psycopg import sql

        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, _names(columns))
        with connection.cursor().copy(statement) as copy:
            for text in texts:
                copy.write(text)
                reach("postgres.copying")

    def _upsert(self, table: OpenTable, names: Sequence[str], texts: Iterable[bytes]) -> None:
        from psycopg import sql

        connection, target = table.connection, table.target
        staged, columns, key = sql.Identifier("tidegate_staged"), _names(names), _names(self._key)
        connection.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                staged, columns, target
            )
        )
        self._copy_into(connection, staged, names, texts)
        others = [sql.Identifier(name) for name in names if name not in self._key]
        changes = [sql.SQL("{0} = EXCLUDED.{0}").format(name) for name in others]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(changes)) if changes else sql.SQL("NOTHING")
        # Rows of a new table are stored in insertion order: the position of a row shows which is the last.
        connection.execute(
            sql.SQL(
                "INSERT INTO {target} ({columns}) SELECT DISTINCT ON ({key}) {columns} FROM {staged} "
                "ORDER BY {key}, ctid DESC ON CONFLICT ({key}) DO {action}"
            ).format(target=target, columns=columns, key=key, staged=staged, action=action)
        )
        connection.execute(sql.SQL("DROP TABLE {}").format(staged))

    def _commit_prepared(self, request: Committable, payload: Prepared, table: OpenTable) -> CommitOutcome:
        """The second phase.

        1. The checkpoint is complete. A crash leaves the transaction prepared, for as long as necessary.
        2. Commit it. If no transaction with that id exists, it was committed if its note can be read, or if its whole epoch
           is final; otherwise someone rolled it back, and its rows are lost.
        """
        from psycopg import errors

        connection, markers = table.connection, table.markers
        reach("postgres.commit-1-complete", gid=payload.gid)
        # A sweep of another history rolls back what it does not know, and then says that all is final.
        final = markers.final_epoch(connection, request.lineage, request.sink)
        self._context.check_marker(request.lineage, request.sink, final)
        try:
            connection.execute(f"COMMIT PREPARED '{payload.gid}'")
        except errors.UndefinedObject:
            # Read again: its owner may have swept just now.
            final = markers.final_epoch(connection, request.lineage, request.sink)
            is_final = self._is_final(request, final)
            # Gone, and nothing says that it was committed: repeating would lose or double its rows.
            if not markers.has_prepared(connection, payload.gid) and not is_final:
                raise CommitInDoubt(
                    f"The prepared transaction {payload.gid} of epoch {request.epoch}, with {payload.rows} rows, no longer "
                    "exists, and nothing shows that it was committed. It was rolled back by hand, or the database was "
                    "replaced by an older copy, or another history of this job has swept here. Start the job from a savepoint "
                    "taken before that epoch, so that its rows are produced again. If they are in the table, discard the output "
                    "that waits: start once without the sink and with -n "
                    "(execution.state-recovery.ignore-unclaimed-state)."
                ) from None
            return CommitOutcome.ALREADY_COMMITTED
        reach("postgres.commit-2-committed", gid=payload.gid)
        return CommitOutcome.COMMITTED

    def _is_final(self, request: Committable, final: EpochId | None) -> bool:
        """Whether a transaction that is gone was committed, and its note deleted since.

        Output of a claim with a smaller number than that of a foreign sweep may be common to both histories. Whatever waits since
        a restore is still prepared, because the lost history has ended. But if another history has a claim of the same number,
        it took this output for an orphan of its own.
        """
        if final is None:
            return False
        is_covered = self._context.covers(request.lineage, request.sink, final, request.epoch)
        return is_covered or ordinal(request.epoch.term) < ordinal(final.term)

    def sweep(self, final: Settled) -> None:
        """Two-phase only: rows staged in the job's storage are cleaned up by the job.

        1. Record the epoch up to which output is final. A crash leaves that record, and everything else for the next sweep.
        2. Roll back transactions that discarded attempts prepared. 3. Delete the notes of committed ones.
        """
        if self._two_phase:
            self._on_server(lambda table: self._sweep(table, final))

    def _sweep(self, table: OpenTable, final: Settled) -> None:
        from psycopg import errors

        connection, markers = table.connection, table.markers

        lineage, sink, upto = final.lineage, final.sink, final.epoch
        if not self._context.knows(lineage, markers.final_epoch(connection, lineage, sink)):
            return  # What looks like an orphan here may be output of the history that has swept before.
        waiting = [checked(request, self._context) for request in final.waiting]
        # What some checkpoint still carries may be committed once more.
        keep = [payload.gid for payload in waiting if isinstance(payload, Prepared)]
        # First: a repeat of an old commit finds its note deleted, and must then find that its epoch is over.
        markers.move(connection, lineage, sink, FINAL_SLOT, upto)
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
        markers.forget_prepared(connection, lineage, sink, upto, keep)

    # -- the connection ----------------------------------------------------------------------------------------------

    def _on_server(self, work: Callable[[OpenTable], T]) -> T:
        library = driver()
        try:
            return self._shared.use(self._open, work)
        except (library.DataError, library.IntegrityError, library.ProgrammingError) as error:
            if isinstance(error, library.errors.InsufficientPrivilege):
                user = Address.of(self._conninfo).user
                raise CommitRefused(
                    f"{self._description}: the user {user!r} lacks a right: {str(error).strip()}. Grant it (GRANT SELECT, "
                    f"INSERT, UPDATE, DELETE ON … TO {user}), and restart the job: the rows are kept."
                ) from error
            # The transaction is rolled back with its marker, and the same rows would fail in the same way.
            raise CommitRefused(
                f"{self._description}: the database rejects the rows: {str(error).strip()}. Change the table so that it "
                "accepts them, and restart the job: the rows are kept."
            ) from error

    @property
    def _shared(self) -> SharedConnection:
        schema = self._context.schema.ddl()
        # By everything that `_open` checks: a connection is shared only if the checked table is the same.
        return shared((self._conninfo, self._table, schema, tuple(self._key), self._two_phase))

    def _open(self) -> OpenTable:
        from psycopg import sql

        connection = connect(self._conninfo)
        try:
            table = read_table(connection, self._table)
            check_table(table, self._context.schema, self._key, self._two_phase)
            self._check_server(connection, table)
            markers = Markers(table.schema)
            markers.create(connection)
        except BaseException:
            connection.close()
            raise
        return OpenTable(connection, sql.Identifier(table.schema, table.name), markers)

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


class _SpooledRows:
    """The rows of some requests, read before a lock is taken: in memory, or on the local disk if there are many."""

    def __init__(self, read: Callable[[str], bytes], waiting: Sequence[_Waiting]) -> None:
        self._read = read
        self._tokens = [token for _, payload in waiting if isinstance(payload, Copy) for token in payload.tokens]
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 closed by __exit__
        self._places: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> _SpooledRows:
        try:
            for token, text in zip(self._tokens, read_ahead(self._read, self._tokens)):
                self._places[token] = (self._file.tell(), len(text))
                self._file.write(text)
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def texts(self, tokens: Iterable[str]) -> Iterator[bytes]:
        for token in tokens:
            start, size = self._places[token]
            self._file.seek(start)
            yield self._file.read(size)


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
        # The epoch has transactions that are prepared: what was collected so far goes first, in the order of epochs.
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
