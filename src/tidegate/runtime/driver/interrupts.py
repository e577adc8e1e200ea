"""What Ctrl-C, or the button that interrupts a cell, does to calls that start a job or wait for one, and what SIGTERM does to
the processes that they start.

Python delivers signals to the main thread, and only that thread may install handlers: in other threads interrupts act as before.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """Whether an interrupt has arrived."""

    def __init__(self) -> None:
        self.has_come = False

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.has_come:
            raise KeyboardInterrupt
        self.has_come = True

    def check(self) -> None:
        """Raise KeyboardInterrupt if one has arrived."""
        if self.has_come:
            raise KeyboardInterrupt


@contextmanager
def interrupts_wait() -> Iterator[Interrupt]:
    """Within the block, the first interrupt is only noted: what was begun is not torn apart. A second one raises."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt.on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


@contextmanager
def interrupts_spare_spark() -> Iterator[None]:
    """Within the block, an interrupt raises KeyboardInterrupt and does nothing else. PySpark's own handler would also cancel all
    jobs of the session, and with them the epoch of a job that only somebody waits for.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None
    if not getattr(before, "__module__", "").startswith("pyspark."):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_starters: set[int] = set()
"""Threads whose child processes ignore SIGTERM."""


def _in_child() -> None:
    if threading.get_ident() in _starters:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


# Called in the child, between fork and exec: what it ignores stays ignored. `subprocess` calls it for processes that are
# started with a `preexec_fn`, as PySpark starts its JVM. The handlers of this process are never touched.
os.register_at_fork(after_in_child=_in_child)


@contextmanager
def children_ignore_sigterm() -> Iterator[None]:
    """The JVM that this thread starts within the block ignores SIGTERM, as PySpark has it ignore SIGINT. A supervisor that ends a
    whole process group would otherwise end the JVM first, with which the driver takes its last checkpoint. The JVM ends with
    the driver all the same: its input is a pipe to it. A SIGTERM to the driver itself acts as before.
    """
    thread = threading.get_ident()
    _starters.add(thread)
    try:
        yield
    finally:
        _starters.discard(thread)
