"""How long the driver waits for a job of which it hears nothing."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runtime.epochs.deadline import DeadlinePassed, ProgressWatch, deadline, watched
from tidegate.runtime.epochs.tolerance import Silence, Tolerance


class Session:
    """Counts interruptions, and ends the job that waits for one."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()

    def interruptAll(self) -> None:
        self.interrupted.set()


def run(session: Session, seconds: float) -> None:
    """A Spark job of so many seconds."""
    if session.interrupted.wait(seconds):
        raise RuntimeError("cancelled")


def test_a_job_whose_tasks_leave_marks_may_take_any_time():
    session = Session()
    watch = ProgressWatch(60, "the.option", Tolerance(), lambda: True)
    with watched(session, "epoch 1.1", watch):
        run(session, 0.6)
    assert not watch.interrupted


@given(st.lists(st.integers(1, 59), min_size=1))
def test_a_mark_within_each_limit_is_enough_however_long_the_job_takes(pauses_ms):
    silence, now_ms = Silence(60, 60, 0), 0
    for pause_ms in pauses_ms:
        now_ms += pause_ms
        assert silence.left_ms(now_ms) == 60 - pause_ms
        silence = silence.at_mark(now_ms)


def test_a_job_without_progress_is_interrupted_and_the_message_names_the_option():
    session = Session()
    marks = iter([True, True])
    watch = ProgressWatch(60, "the.option", Tolerance(), lambda: next(marks, False), unheard=6)
    message = r"epoch 1\.1 made no progress for 60 ms \(the\.option is 60 ms\)"
    with pytest.raises(DeadlinePassed, match=message), watched(session, "epoch 1.1", watch):
        run(session, 30)
    assert watch.end() == Tolerance(2.0)


def test_a_job_without_a_first_mark_gets_more_time():
    silence = Silence(limit_ms=100, first_ms=600, since_ms=0)
    assert silence.left_ms(599) == 1
    heard = silence.at_mark(500)
    assert (heard.left_ms(599), heard.left_ms(600)) == (1, 0)


def test_marks_that_cannot_be_read_are_no_silence():
    def unreachable() -> bool:
        raise OSError("away")

    session = Session()
    with watched(session, "epoch 1.1", ProgressWatch(30, "the.option", Tolerance(), unreachable)):
        run(session, 0.2)


def test_a_short_job_reads_no_progress_marks():
    looks: list[int] = []
    watch = ProgressWatch(60_000, "the.option", Tolerance(), lambda: bool(looks.append(1)))
    with watched(Session(), "epoch 1.1", watch):
        time.sleep(0.01)
    assert (watch.end(), looks) == (Tolerance(), [])


@given(seconds=st.integers(1, 10**6), limit=st.integers(1, 10**4))
def test_a_job_that_can_end_does_so_after_a_few_tries_however_long_it_is_silent(seconds, limit):
    """Also if nothing is ever heard of it: the tries together take no more than four times as long as the job."""
    tolerance, spent = Tolerance(), 0.0
    while limit * tolerance.scale < seconds:
        spent += limit * tolerance.scale
        tolerance = tolerance.after_interruption()
    assert spent + seconds <= 4 * max(seconds, limit)
    again = tolerance.after_success(seconds / limit)
    assert limit * again.scale >= seconds, "the next one is not interrupted at all"


def test_what_took_long_once_is_forgotten():
    tolerance = Tolerance().after_success(8.0)
    for _ in range(10):
        tolerance = tolerance.after_success(0.1)
    assert tolerance == Tolerance()


def test_a_deadline_is_not_moved_by_marks():
    session = Session()
    with pytest.raises(DeadlinePassed, match="tidying up took longer than 50 ms"), deadline(session, "tidying up", 50):
        run(session, 30)
