"""Times of spans as OpenTelemetry wants them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.reporters.otel.span_export import nanoseconds


@given(st.integers(1_700_000_000_000, 2_000_000_000_000))
def test_a_time_is_the_same_whether_it_was_added_up_or_not(ms: int) -> None:
    assert nanoseconds(ms) == nanoseconds(float(ms)) == ms * 1_000_000


@given(st.integers(1_700_000_000_000, 2_000_000_000_000), st.floats(0, 1e6), st.floats(0, 1e6))
def test_what_is_not_earlier_does_not_become_earlier(ms: int, some: float, more: float) -> None:
    assert nanoseconds(ms) <= nanoseconds(ms + some) <= nanoseconds(ms + some + more)
