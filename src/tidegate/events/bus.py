"""Delivers the events of a job to its log and to its listeners, each in a separate thread."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence

from tidegate.core.log_setup import in_this_context
from tidegate.events.event import JobEvent
from tidegate.events.listener import JobListener, notify

log = logging.getLogger("tidegate")

MOST_WAITING = 1_000
"""How many events may wait for one listener."""
DRAIN_S = 5.0
"""How long the end of a job waits for all its listeners together."""


class EventBus:
    """`emit` may be called by any thread, and never waits. All listeners get the events in the same order."""

    def __init__(self, listeners: Sequence[JobListener] = (), most_waiting: int = MOST_WAITING) -> None:
        self._order = threading.Lock()
        self._closed = False
        self._deliveries = [_Delivery(listener, most_waiting) for listener in listeners]

    def emit(self, event: JobEvent) -> None:
        """Write the event to the log and hand it to every listener. After `close`, only to the log."""
        log.log(event.severity, "%s", event, extra={"event": event.NAME, "attributes": event.attributes()})
        # Held for all queues together, so every listener gets the same order. Putting into a queue never waits.
        with self._order:
            if not self._closed:
                for delivery in self._deliveries:
                    delivery.offer(event)

    def close(self, within_s: float = DRAIN_S) -> None:
        """Let the listeners handle what waits for them, then close them, within this time. May be repeated."""
        with self._order:
            if self._closed:
                return
            self._closed = True
        # Outside the lock: events that are emitted meanwhile are only logged, and their threads do not wait for listeners.
        # All listeners share the time: the first of them may use it up.
        until = time.monotonic() + within_s
        for delivery in self._deliveries:
            delivery.finish()
        for delivery in self._deliveries:
            delivery.join(max(0.0, until - time.monotonic()))


class _Delivery:
    """The events that wait for one listener, and the thread that delivers them."""

    def __init__(self, listener: JobListener, most_waiting: int) -> None:
        self._listener = listener
        self._name = type(listener).__name__
        self._most_waiting = most_waiting
        # Bounded by `offer`. A bounded queue would make the job wait for a slow listener.
        self._waiting: queue.SimpleQueue[JobEvent | None] = queue.SimpleQueue()
        self._dropped = 0
        self._errors = 0
        self._thread = threading.Thread(
            target=in_this_context(self._run), name=f"tidegate-listener-{self._name}", daemon=True
        )
        self._thread.start()

    def offer(self, event: JobEvent) -> None:
        """Called by one thread at a time."""
        if self._waiting.qsize() < self._most_waiting:
            self._waiting.put(event)
            return
        self._dropped += 1
        if self._dropped.bit_count() == 1:  # 1, 2, 4, 8 …: a line for each would drown the log.
            log.warning(
                "listener %s does not keep up: %d events wait, %d dropped so far",
                self._name,
                self._most_waiting,
                self._dropped,
            )

    def finish(self) -> None:
        """Ask the thread to end after what waits now."""
        self._waiting.put(None)

    def join(self, within_s: float) -> None:
        self._thread.join(within_s)
        if self._thread.is_alive():
            # Without the None that `finish` has put there.
            unhandled = max(0, self._waiting.qsize() - 1)
            log.warning("listener %s has not finished in time: %d events were not handled", self._name, unhandled)
        if self._dropped:
            log.warning("listener %s did not keep up: %d events were dropped", self._name, self._dropped)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                notify(self._listener, event)
            except Exception as error:
                self._failed(event.NAME, error)
        try:
            self._listener.close()
        except Exception as error:
            self._failed("close", error)

    def _failed(self, what: str, error: Exception) -> None:
        self._errors += 1
        # The traceback once: the same mistake shows with every event.
        cause = error if self._errors == 1 else None
        log.warning("listener %s raised an error at %s: %r", self._name, what, error, exc_info=cause)
