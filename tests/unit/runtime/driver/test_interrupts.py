"""Interrupts while a job starts are noted, and those while somebody waits do not reach Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from tests.waiting import eventually
from tidegate.runtime.driver.interrupts import children_ignore_sigterm, interrupts_spare_spark, interrupts_wait


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


def test_a_sigterm_to_the_group_spares_the_processes_that_the_driver_started() -> None:
    """The JVM, which the driver needs for its last checkpoint."""
    before = signal.getsignal(signal.SIGTERM)
    script = ["sh", "-c", "kill -TERM $$; echo alive"]

    def said() -> str:
        # PySpark starts the JVM with a function of its own that runs after the fork.
        return subprocess.run(script, capture_output=True, text=True, check=False, preexec_fn=lambda: None).stdout

    assert said() == ""
    with children_ignore_sigterm():
        assert said() == "alive\n"
        assert signal.getsignal(signal.SIGTERM) == before
        in_a_thread(lambda: said() == "" or pytest.fail("a child of another thread ignores SIGTERM"))
    assert said() == ""
    assert signal.getsignal(signal.SIGTERM) == before


JVM = """#!/bin/sh
grep SigIgn /proc/self/status > "$TIDEGATE_SEEN.new"
mv "$TIDEGATE_SEEN.new" "$TIDEGATE_SEEN"
cat > /dev/null
"""
"""In place of Spark's own script: it notes which signals it ignores, says nothing, and ends with its input, as the JVM does."""


def test_a_sigterm_while_the_jvm_starts_ends_the_process(tmp_path: Path) -> None:
    """The JVM takes seconds to start. Whoever deletes a pod meanwhile would otherwise wait until it is killed."""
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(JVM)
    script.chmod(0o755)
    seen = tmp_path / "seen"
    environment = os.environ | {"SPARK_HOME": str(tmp_path), "TIDEGATE_SEEN": str(seen)}
    command = [sys.executable, "-c", "import tidegate as tg; tg.session('job')"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as driver:
        try:
            eventually(seen.exists, "the script that starts the JVM")
            driver.terminate()
            assert driver.wait(60) == -signal.SIGTERM
        finally:
            driver.kill()
    ignored = int(seen.read_text().split()[1], 16)
    assert ignored & 1 << (signal.SIGTERM - 1), "a SIGTERM to the group would end the JVM"
