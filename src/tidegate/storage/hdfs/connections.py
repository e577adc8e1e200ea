"""HTTP connections that are kept for the next request."""

from __future__ import annotations

import http.client
import os
import select
import threading
import time
from urllib.parse import urlsplit

_LONGEST_IDLE_S = 5.0
"""NameNodes close connections that were idle for 10 s or more, depending on their version."""
_MOST_IDLE = 16


class Connections:
    """Thread-safe. A forked child opens connections of its own."""

    def __init__(self, timeout_s: float, connect_timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._lock = threading.Lock()
        self._idle: dict[str, list[tuple[float, http.client.HTTPConnection]]] = {}
        self._process = os.getpid()

    def take(self, server: str) -> http.client.HTTPConnection:
        """Return a connection to `http://host:port` that no other thread uses. Raises OSError; then nothing was sent."""
        while (kept := self._kept(server)) is not None:
            idle_since, connection = kept
            if time.monotonic() - idle_since < _LONGEST_IDLE_S and _is_silent(connection):
                return connection
            connection.close()
        parts = urlsplit(server)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        made = kind(parts.hostname or "", parts.port, timeout=self._connect_timeout_s)
        made.connect()
        made.sock.settimeout(self._timeout_s)
        return made

    def give_back(self, server: str, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose response was read to its end."""
        with self._lock:
            kept = self._idle.setdefault(server, [])
            if connection.sock is not None and len(kept) < _MOST_IDLE:
                kept.append((time.monotonic(), connection))
                return
        connection.close()

    def _kept(self, server: str) -> tuple[float, http.client.HTTPConnection] | None:
        with self._lock:
            # Parent and child would write to one socket.
            if self._process != os.getpid():
                self._idle = {}
                self._process = os.getpid()
            kept = self._idle.get(server)
            return kept.pop() if kept else None


def _is_silent(connection: http.client.HTTPConnection) -> bool:
    """Whether the server has sent nothing since the last response. If it has, it closed the connection."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)
