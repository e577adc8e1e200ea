"""Ends a transaction of our own that holds a marker although its process is frozen.

A process that is stopped, or whose host hangs, keeps its connection: the kernel still answers keepalives, and while the
server waits for rows of a COPY, neither `statement_timeout` nor `idle_in_transaction_session_timeout` applies. A committer that
needs the marker next would wait for as long as the process is frozen.

1. Each transaction that locks markers carries a name of (lineage, sink) as its `application_name`.
2. A committer that waits for a lock watches, over a connection of its own, who blocks it.
3. A blocker with that very name, whose server process has waited for its client the whole time and has received nothing,
   is ended. Its transaction is rolled back with its marker: a committer that wakes up repeats its commit, and finds the
   marker. Nobody else's transaction is ended, and the wait ends with `lock_timeout`: the output waits.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidegate.connectors.outcome import RetryLater
from tidegate.connectors.postgres.client import connect, driver
from tidegate.core.ids import Lineage, Uid

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger("tidegate")

LOCK_TIMEOUT_MS = 20_000
"""Longer than it takes to see that a blocker is frozen."""
FROZEN_S = 5.0
"""Rows are read before the markers are locked, so a committer that is alive sends without a pause."""
# If nobody waits for the lock, nobody watches either, and the server ends a frozen transaction after this time.
IDLE_IN_TRANSACTION_MS = 60_000

_BLOCKERS = """
SELECT a.pid, a.application_name, a.usename, a.state, a.wait_event = 'ClientRead',
       a.xact_start::text || a.state_change::text || coalesce({progress}, '')
FROM pg_stat_activity a WHERE a.pid = ANY(pg_blocking_pids(%s))
"""
_COPIED = "(SELECT c.bytes_processed::text FROM pg_stat_progress_copy c WHERE c.pid = a.pid)"


def holder_name(lineage: Lineage, sink: Uid) -> str:
    """Return the name of transactions that hold markers of a sink. Hashed: a server keeps 63 bytes of it."""
    return f"tidegate {hashlib.sha256(f'{lineage} {sink}'.encode()).hexdigest()[:32]}"


def limit_transaction(connection: psycopg.Connection[Any], lineage: Lineage, sink: Uid) -> None:
    """At the beginning of a transaction: name it, and let the server end it if it waits too long for a lock or for us."""
    connection.execute(
        "SELECT set_config('application_name', %s, true), set_config('lock_timeout', %s, true), "
        "set_config('idle_in_transaction_session_timeout', %s, true)",
        [holder_name(lineage, sink), str(LOCK_TIMEOUT_MS), str(IDLE_IN_TRANSACTION_MS)],
    )


@contextmanager
def watched(connection: psycopg.Connection[Any], conninfo: str, lineage: Lineage, sink: Uid) -> Iterator[None]:
    """While a lock is waited for, end blockers that are ours and frozen. Raises `RetryLater` if the lock is not free in time."""
    watch = _BlockerWatch(conninfo, connection.info.backend_pid, holder_name(lineage, sink))
    # Nearly always the lock is free at once, and no second connection is opened.
    timer = threading.Timer(min(1.0, FROZEN_S / 2), watch.run)
    timer.daemon = True
    timer.start()
    try:
        yield
    except driver().errors.LockNotAvailable as error:
        raise RetryLater(
            f"The output of sink {sink!r} waits for a lock in the database{watch.described()}. It is kept and tried again; if "
            "this persists, end the transaction that holds the lock."
        ) from error
    finally:
        watch.over.set()
        timer.cancel()


class _BlockerWatch:
    """Looks at who blocks one server process, until the wait is over."""

    def __init__(self, conninfo: str, pid: int, name: str) -> None:
        self._conninfo = conninfo
        self._pid = pid
        self._name = name
        self._blockers: list[str] = []
        self.over = threading.Event()

    def described(self) -> str:
        return f", held by {', '.join(self._blockers)}" if self._blockers else ""

    def run(self) -> None:
        try:
            with connect(self._conninfo) as connection:
                self._look(connection)
        except Exception as error:
            # The wait ends with its timeout all the same.
            log.warning("could not find out who holds a lock in the database: %s", error)

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        # The view exists since PostgreSQL 14. Without it, a slow COPY looks like a frozen one, so no session is ended.
        found = connection.execute("SELECT to_regclass('pg_catalog.pg_stat_progress_copy') IS NOT NULL").fetchone()
        sees_progress = found == (True,)
        statement = _BLOCKERS.format(progress=_COPIED if sees_progress else "NULL")
        unchanged_since: dict[tuple[int, str], float] = {}
        while not self.over.wait(min(0.5, FROZEN_S / 4)):
            rows = connection.execute(statement, [self._pid]).fetchall()
            now = time.monotonic()
            self._blockers = [f"server process {pid} ({name or user})" for pid, name, user, *_ in rows]
            frozen = {
                (pid, seen): unchanged_since.get((pid, seen), now)
                for pid, name, _, state, waits, seen in rows
                if name == self._name and waits and (sees_progress or state != "active")
            }
            for (pid, _), since in frozen.items():
                if now - since >= FROZEN_S:
                    log.warning(
                        "a committer of this sink has been frozen for %.0f s while it holds a marker; its transaction (server "
                        "process %d) is ended, and its output is committed from here",
                        now - since,
                        pid,
                    )
                    connection.execute("SELECT pg_terminate_backend(%s)", [pid])
            unchanged_since = frozen
