"""Epochs without a batch: who asks for one, and when time passes in it."""

from __future__ import annotations

import pytest

from tidegate.runtime.epochs.empty_epochs import EmptyEpoch, empty_epoch, idle_s


@pytest.mark.feature("B1")
@pytest.mark.parametrize(
    ("waiting", "timers_due", "held", "found"),
    [
        (False, False, False, None),
        (True, False, False, EmptyEpoch(time_stands=False)),
        (False, True, False, EmptyEpoch(time_stands=False)),
        (False, True, True, None),
        (True, True, True, EmptyEpoch(time_stands=True)),
    ],
)
def test_timers_wait_while_too_much_output_does(
    waiting: bool, timers_due: bool, held: bool, found: EmptyEpoch | None
) -> None:
    assert empty_epoch(waiting, timers_due, held) == found


@pytest.mark.parametrize(
    ("streaming_ms", "expected_s"), [(None, 0.5), (20, 0.5), (400, 0.6), (1_000, 1.5), (60_000, 2.0)]
)
def test_an_empty_epoch_waits_until_no_batch_is_about_to_arrive(streaming_ms: int | None, expected_s: float) -> None:
    assert idle_s(streaming_ms) == pytest.approx(expected_s)
