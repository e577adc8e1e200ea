"""Ends the transactions that a lineage has left prepared in a server. They hold locks, and keep vacuum from its work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from tidegate.connectors.postgres.client import connect
from tidegate.connectors.postgres.payload import epoch_in, gid_prefix
from tidegate.connectors.sink import LeftOutput
from tidegate.core.faults import reach
from tidegate.core.ids import Lineage, Uid


class PostgresCleaner:
    """Looks at the server, not at the table: that may be gone, or the sink may no longer be `two_phase`."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo

    def find(self, lineage: Lineage, sink: Uid) -> Iterator[LeftOutput]:
        with closing(connect(self._conninfo)) as connection:
            prepared = connection.execute(
                "SELECT gid, round(extract(epoch FROM prepared) * 1000)::bigint FROM pg_prepared_xacts "
                "WHERE database = current_database() AND starts_with(gid, %s) ORDER BY prepared, gid",
                [gid_prefix(lineage, sink)],
            ).fetchall()
        for gid, at_ms in prepared:
            epoch = epoch_in(gid)
            # Anyone may prepare a transaction under any name. One that no writer of ours chose is not ours to end.
            if epoch is not None:
                yield LeftOutput(kind="prepared transaction", name=gid, handle=gid, epoch=epoch, at_ms=at_ms)

    def end(self, left: Sequence[LeftOutput]) -> None:
        from psycopg import errors

        with closing(connect(self._conninfo)) as connection:
            for each in left:
                # Again, since a handle may come from anywhere by now.
                if epoch_in(each.handle) is None:
                    raise ValueError(
                        f"not a transaction of a writer: {each.handle!r}"
                    )  # it becomes part of a statement
                try:
                    connection.execute(f"ROLLBACK PREPARED '{each.handle}'")
                except errors.UndefinedObject:
                    continue
                reach("postgres.end-rolled-back", gid=each.handle)
