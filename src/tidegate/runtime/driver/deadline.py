"""Ending Spark jobs that take too long.

A job is found again by its session: tags (`addTag`) are kept per thread in a classic session, and `interruptTag` called by
any other thread than the one that waits for the job ends nothing. So what may have to be ended runs in a session in which
nothing else does: a batch of a stream has one by itself, the rest gets a `private_session`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

log = logging.getLogger("tidegate")


class DeadlinePassed(Exception):
    """The jobs within a deadline took too long and were ended."""


def private_session(spark: SparkSession) -> SparkSession:
    """A session like `spark`, settings made at run time included, that shares its executors and caches but no jobs."""
    session = spark.newSession()
    for key, value in spark.conf.getAll.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
    return session


@contextmanager
def deadline(spark: SparkSession, what: str, timeout_ms: int) -> Iterator[None]:
    """End all jobs of the session when the block takes longer; whatever error that gives becomes `DeadlinePassed`."""
    done = threading.Event()
    passed = threading.Event()

    def watch() -> None:
        if done.wait(timeout_ms / 1000):
            return
        passed.set()
        # Again and again: a job that starts just after the others were ended is not ended with them.
        while not done.is_set():
            try:
                spark.interruptAll()
            except Exception:
                log.exception("%s took longer than %d ms and could not be interrupted", what, timeout_ms)
            done.wait(1.0)

    watcher = threading.Thread(target=watch, name="tidegate-deadline", daemon=True)
    watcher.start()
    try:
        yield
    except Exception as error:
        if passed.is_set():
            raise DeadlinePassed(f"{what} took longer than {timeout_ms} ms and was interrupted") from error
        raise
    finally:
        done.set()
        # Not one moment longer: the next job of this session must not be hit by an interruption of this one.
        watcher.join()
