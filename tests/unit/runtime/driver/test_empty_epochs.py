"""Epochs without a batch: who asks for one, and when time passes in it."""

from __future__ import annotations

import pytest

from tidegate.runtime.driver.empty_epochs import EmptyEpoch, empty_epoch


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
