"""When a call is tried again."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tidegate as tg
from tidegate.core.errors import GraphError


def test_a_fixed_delay_stays_as_it_is():
    retry = tg.FixedDelayRetry(3, timedelta(seconds=2))
    assert [retry.delay_ms(tries) for tries in (1, 2, 3)] == [2000, 2000, 2000]


def test_an_exponential_delay_grows_up_to_its_limit():
    retry = tg.ExponentialBackoffDelayRetry(9, "100 ms", "1 s", multiplier=3)
    assert [retry.delay_ms(tries) for tries in (1, 2, 3, 4, 200)] == [100, 300, 900, 1000, 1000]


def test_as_in_flink_the_first_try_is_not_one_of_the_attempts():
    retry = tg.FixedDelayRetry(2, "1 ms")
    assert [retry.again_after_error(OSError(), tries) for tries in (1, 2, 3)] == [True, True, False]
    assert not retry.again_after_result((1,), 1)


def test_predicates_choose_what_is_tried_again():
    retry = tg.FixedDelayRetry(2, "1 ms", if_exception=lambda error: "503" in str(error), if_result=lambda r: r is None)
    assert retry.again_after_error(OSError("503"), 1)
    assert not retry.again_after_error(OSError("404"), 1)
    assert retry.again_after_result(None, 2)
    assert not retry.again_after_result(None, 3)
    assert not retry.again_after_result((1,), 1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tg.FixedDelayRetry(0, "1 s"), "at least 1"),
        (lambda: tg.FixedDelayRetry(1, "0 s"), "not positive"),
        (lambda: tg.FixedDelayRetry(1, "soon"), "is not a duration"),
        (lambda: tg.FixedDelayRetry(1, "1 s", if_exception=KeyboardInterrupt), "class of exceptions"),
        (lambda: tg.FixedDelayRetry(1, "1 s", if_exception=()), "class of exceptions"),
        (lambda: tg.FixedDelayRetry(1, "1 s", if_result="empty"), "function of a result"),
        (lambda: tg.ExponentialBackoffDelayRetry(1, "2 s", "1 s"), "shorter than initial_delay"),
        (lambda: tg.ExponentialBackoffDelayRetry(1, "1 s", "2 s", 0.5), "at least 1"),
    ],
)
def test_what_cannot_be_is_refused(make, text):
    with pytest.raises(GraphError, match=text):
        make()
