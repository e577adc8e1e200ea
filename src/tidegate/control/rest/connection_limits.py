"""Bounds on what the clients of a REST server can hold: how many connections, and each request for how long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from tidegate.control.rest.request_checks import MAX_BODY_BYTES


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connections: int = 64
    """When there are more, the one that has been sending its request for the longest time is closed."""
    request_s: float = 30.0
    """From when a connection is made, or has answered, to the end of the next answer."""
    body_bytes: int = MAX_BODY_BYTES
    head_bytes: int = 16 << 10


def bounded_protocol(limits: ConnectionLimits) -> type[H11Protocol]:
    """Return uvicorn's protocol with a deadline for each connection. uvicorn itself waits for a request without limit."""

    class BoundedProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._restart_clock()
            # One too many: close whoever has been sending for the longest time. Those who wait for our answer stay: they are
            # not to blame if it takes long.
            open_ones = [one for one in self.connections if not one.transport.is_closing()]
            if len(open_ones) > limits.connections:
                waiting = [one for one in open_ones if isinstance(one, BoundedProtocol) and not one.is_answering]
                min(waiting, key=lambda one: one.due_at, default=self).transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_clock()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            # The connection may carry a further request, which has the same time.
            self._restart_clock()
            super().on_response_complete()

        @property
        def is_answering(self) -> bool:
            """Whether a whole request has arrived and its answer is not out yet."""
            return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

        @property
        def due_at(self) -> float:
            if self._deadline is None:
                return 0.0  # its clock is stopped: it goes first
            return self._deadline.when()

        def _restart_clock(self) -> None:
            self._stop_clock()
            self._deadline = self.loop.call_later(limits.request_s, self._expire)

        def _stop_clock(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _expire(self) -> None:
            self.transport.abort()

    return BoundedProtocol
