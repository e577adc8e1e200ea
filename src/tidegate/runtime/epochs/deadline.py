"""Interrupts Spark jobs that take too long, or of which nothing was heard for too long.

A job is identified by its session: tags (`addTag`) are kept per thread in a classic session, and `interruptTag` called by
any thread other than the one that waits for the job interrupts nothing. Jobs that may have to be interrupted therefore run
in a session with nothing else: a batch of a stream has one by default, the rest gets a `private_session`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tidegate.core.durations import show_ms
from tidegate.core.log_setup import in_this_context
from tidegate.runtime.epochs.failover import first_line
from tidegate.runtime.epochs.tolerance import Silence, Tolerance
from tidegate.runtime.exchange.progress_marks import SHARE_OF_LIMIT

log = logging.getLogger("tidegate")

TakeMark = Callable[[], bool]


class DeadlinePassed(Exception):
    """The jobs within a deadline took too long and were interrupted."""


def private_session(spark: SparkSession) -> SparkSession:
    """Return a session like `spark`, including settings made at run time, that shares its executors and caches but no jobs."""
    session = spark.newSession()
    # `newSession` does not take over what was set at run time.
    for key, value in spark.conf.getAll.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


def is_dead(spark: SparkSession) -> bool:
    """Whether the session was stopped, or its JVM is gone."""
    try:
        spark.conf.get("spark.app.name")
        spark.range(0)
    except Exception:
        return True
    return False


@contextmanager
def deadline(spark: SparkSession, what: str, timeout_ms: int) -> Iterator[None]:
    """Interrupt all jobs of the session if the block takes longer; any resulting error becomes `DeadlinePassed`."""
    reason = f"took longer than {show_ms(timeout_ms)}"
    with _interrupting(spark, what, lambda: reason, lambda done: done.wait(timeout_ms / 1000)):
        yield


class ProgressWatch:
    """Watches one Spark job for marks of its tasks."""

    def __init__(
        self, limit_ms: int, option: str, tolerance: Tolerance, take_mark: TakeMark, *, heard: int = 1, unheard: int = 1
    ) -> None:
        """`option` names the limit to the user. `take_mark` returns whether there is a new mark. The job may be silent for this
        many times the limit: `unheard` until the first mark, `heard` after it."""
        self._limit_ms = limit_ms
        self._option = option
        self._tolerance = tolerance
        self._take_mark = take_mark
        self._looks = 0
        scaled_ms = limit_ms * tolerance.scale
        self._silence = Silence(scaled_ms * heard, scaled_ms * unheard, _now_ms())
        self.interrupted = False

    @property
    def reason(self) -> str:
        """Why the job was interrupted."""
        silence = self._silence
        return f"made no progress for {show_ms(round(silence.current_limit_ms))} ({self._option} is {show_ms(self._limit_ms)})"

    def wait(self, done: threading.Event) -> bool:
        """Return True when the job is done, False when it has been silent for too long."""
        every_ms = self._limit_ms / SHARE_OF_LIMIT
        while not done.wait(min(every_ms, self._silence.left_ms(_now_ms())) / 1000):
            self._looks += 1
            if self._is_marked():
                self._silence = self._silence.at_mark(_now_ms())
            elif not self._silence.left_ms(_now_ms()):
                self.interrupted = True
                return False
        return True

    def end(self) -> Tolerance:
        """The job has ended. Return the tolerance with the next one."""
        if self._looks:
            self._is_marked()  # Nobody looks for the last marks any more: remove them.
        if self.interrupted:
            return self._tolerance.after_interruption()
        return self._tolerance.after_success(self._silence.share_at(_now_ms()) * self._tolerance.scale)

    def _is_marked(self) -> bool:
        try:
            return self._take_mark()
        except Exception as error:
            # Who cannot look knows nothing, least of all that the job is silent.
            log.info("the marks of a running job could not be read: %s", first_line(error))
            return True


@contextmanager
def watched(spark: SparkSession, what: str, watch: ProgressWatch) -> Iterator[None]:
    """Interrupt all jobs of the session if they are silent for too long; any resulting error becomes `DeadlinePassed`."""
    with _interrupting(spark, what, lambda: watch.reason, watch.wait):
        yield


@contextmanager
def _interrupting(
    spark: SparkSession, what: str, reason: Callable[[], str], wait: Callable[[threading.Event], bool]
) -> Iterator[None]:
    """`wait` returns whether the block was done in time."""
    done = threading.Event()
    passed = threading.Event()

    def interrupt_late() -> None:
        if wait(done):
            return
        passed.set()
        # Repeatedly: a job that starts just after the others were interrupted is not interrupted with them.
        while not done.is_set():
            try:
                spark.interruptAll()
            except Exception:
                log.exception("%s %s and could not be interrupted", what, reason())
            done.wait(1.0)

    watcher = threading.Thread(target=in_this_context(interrupt_late), name="tidegate-deadline", daemon=True)
    watcher.start()
    try:
        yield
    except Exception as error:
        if passed.is_set():
            raise DeadlinePassed(f"{what} {reason()} and was interrupted") from error
        raise
    finally:
        done.set()
        # Not a moment longer: an interruption meant for this job must not hit the next job of this session.
        watcher.join()


def _now_ms() -> float:
    return time.monotonic() * 1000
