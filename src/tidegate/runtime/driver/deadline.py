"""Interrupts Spark jobs that take too long.

A job is identified by its session: tags (`addTag`) are kept per thread in a classic session, and `interruptTag` called by
any thread other than the one that waits for the job interrupts nothing. Jobs that may have to be interrupted therefore run
in a session with nothing else: a batch of a stream has one by default, the rest gets a `private_session`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from tidegate.core.log_setup import in_this_context

log = logging.getLogger("tidegate")


class DeadlinePassed(Exception):
    """The jobs within a deadline took too long and were interrupted."""


def private_session(spark: SparkSession) -> SparkSession:
    """Return a session like `spark`, including settings made at run time, that shares its executors and caches but no jobs."""
    session = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


@contextmanager
def deadline(spark: SparkSession, what: str, timeout_ms: int) -> Iterator[None]:
    """Interrupt all jobs of the session if the block takes longer; any resulting error becomes `DeadlinePassed`."""
    done = threading.Event()
    passed = threading.Event()

    def watch() -> None:
        if done.wait(timeout_ms / 1000):
            return
        passed.set()
        # Repeatedly: a job that starts just after the others were interrupted is not interrupted with them.
        while not done.is_set():
            try:
                spark.interruptAll()
            except Exception:
                log.exception("%s took longer than %d ms and could not be interrupted", what, timeout_ms)
            done.wait(1.0)

    watcher = threading.Thread(target=in_this_context(watch), name="tidegate-deadline", daemon=True)
    watcher.start()
    try:
        yield
    except Exception as error:
        if passed.is_set():
            raise DeadlinePassed(f"{what} took longer than {timeout_ms} ms and was interrupted") from error
        raise
    finally:
        done.set()
        # Not a moment longer: an interruption meant for this job must not hit the next job of this session.
        watcher.join()
