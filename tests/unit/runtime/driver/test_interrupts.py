"""Interrupts while a job starts are noted, and those while somebody waits do not reach Spark."""

from __future__ import annotations

import signal
import threading
from types import FunctionType
from typing import Any

import pytest

from tidegate.runtime.driver.interrupts import interrupts_spare_spark, interrupts_wait


def raise_twice() -> None:
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def handlers():
    before = signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, before)


def test_the_first_interrupt_is_noted():
    with interrupts_wait() as interrupt:
        assert not interrupt.has_come
        signal.raise_signal(signal.SIGINT)
        assert interrupt.has_come


def test_a_check_raises_what_was_noted():
    with interrupts_wait() as interrupt:
        interrupt.check()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupt.check()


def test_the_second_interrupt_raises():
    with pytest.raises(KeyboardInterrupt), interrupts_wait():
        raise_twice()


def in_a_thread(work: Any) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not errors


def test_other_threads_install_no_handler():
    def work() -> None:
        with interrupts_wait() as interrupt, interrupts_spare_spark():
            assert not interrupt.has_come

    in_a_thread(work)


def handler_of(module: str) -> tuple[Any, list[int]]:
    """A handler as a module defines it, and the signals that it got."""
    seen: list[int] = []

    def handler(number: int, frame: Any) -> None:
        seen.append(number)

    made = FunctionType(handler.__code__, handler.__globals__, closure=handler.__closure__)
    made.__module__ = module
    return made, seen


def test_an_interrupt_while_waiting_does_not_reach_the_handler_of_pyspark():
    theirs, seen = handler_of("pyspark.core.context")
    before = signal.signal(signal.SIGINT, theirs)
    try:
        with pytest.raises(KeyboardInterrupt), interrupts_spare_spark():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is theirs
        assert seen == []
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_handlers_stay():
    own, seen = handler_of("tidegate.runtime.driver.ending")
    before = signal.signal(signal.SIGINT, own)
    try:
        with interrupts_spare_spark():
            signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)
