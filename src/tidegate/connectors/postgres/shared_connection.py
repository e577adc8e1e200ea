"""One connection for each process and sink, however many committers share it, and none while nobody uses it.

A process commits for many slots, each with a committer of its own, and a server has about a hundred connections.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tidegate.connectors.postgres.client import driver
from tidegate.connectors.postgres.marker import Markers

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

IDLE_S = 30.0
"""A job commits once per checkpoint interval; opening a connection takes some milliseconds."""

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A connection to a table that was checked."""

    connection: psycopg.Connection[Any]
    target: Any
    """The table's name as a part of a statement."""
    markers: Markers


@dataclass
class SharedConnection:
    """Used by one thread at a time. Opened on first use, again after it breaks, and closed when idle."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    opened: OpenTable | None = None
    used_s: float = 0.0
    watched: bool = False
    """Whether a timer will look whether it is idle."""

    def use(self, open_table: Callable[[], OpenTable], work: Callable[[OpenTable], T]) -> T:
        """Run `work`, and repeat it once if a connection opened long ago turns out to be dead: all work is repeatable."""
        with self._in_use():
            fresh = self.opened is None
            try:
                try:
                    return work(self._open(open_table))
                except driver().OperationalError:
                    self._close()
                    # The server is not reachable now: a second try would wait as long as the first.
                    if fresh:
                        raise
                    return work(self._open(open_table))
            except BaseException:
                # Whatever was under way: the transaction ends with its connection.
                self._close()
                raise

    def close(self) -> None:
        with self.lock:
            self._close()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        with self.lock:
            try:
                yield
            finally:
                self.used_s = time.monotonic()
                if self.opened is not None and not self.watched:
                    self.watched = True
                    self._look_in(IDLE_S)

    def _open(self, open_table: Callable[[], OpenTable]) -> OpenTable:
        if self.opened is None:
            self.opened = open_table()
        return self.opened

    def _close(self) -> None:
        if self.opened is not None:
            self.opened.connection.close()
            self.opened = None

    def _look_in(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._close_if_idle)
        timer.daemon = True
        timer.name = "tidegate-postgres-idle"
        timer.start()

    def _close_if_idle(self) -> None:
        with self.lock:
            left = IDLE_S - (time.monotonic() - self.used_s)
            if self.opened is not None and left > 0:
                self._look_in(left)
                return
            self._close()
            self.watched = False


_shared: dict[Key, SharedConnection] = {}
_guard = threading.Lock()


def shared(key: Key) -> SharedConnection:
    """Return the connection of this process for a sink. `key` tells sinks of different configurations apart."""
    with _guard:
        # A forked process must not use the socket of its parent.
        return _shared.setdefault((os.getpid(), *key), SharedConnection())


def close_all() -> None:
    """Close all connections of this process. They are opened again when they are used."""
    with _guard:
        found = [each for key, each in _shared.items() if key[0] == os.getpid()]
    for each in found:
        each.close()
