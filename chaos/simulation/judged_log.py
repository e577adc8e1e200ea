"""What the product logs while a seed runs. Trouble is what a seed is made of, so nobody reads it; but an error of the code must
not hide in it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from chaos.simulation.faults import Violation
from tidegate.core.errors import TidegateError


class _Judge(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        error = None if record.exc_info is None else record.exc_info[1]
        # Clean-up, among others, survives every error. Those of storage and of the protocol have a class of their own.
        if isinstance(error, Exception) and not isinstance(error, TidegateError):
            raise Violation(f"{record.getMessage()} ({type(error).__name__})") from error


@contextmanager
def judged_log() -> Iterator[None]:
    """While a seed runs: nothing is printed, and an error that is only logged is a `Violation`."""
    log = logging.getLogger("tidegate")
    level, propagate, handlers = log.level, log.propagate, log.handlers
    log.setLevel(logging.WARNING)
    log.propagate = False
    log.handlers = [_Judge()]
    try:
        yield
    finally:
        log.setLevel(level)
        log.propagate = propagate
        log.handlers = handlers
