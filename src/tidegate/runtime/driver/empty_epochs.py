"""When an empty epoch runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmptyEpoch:
    time_stands: bool
    """No timer fires in it."""


def empty_epoch(waiting: bool, timers_due: bool, held: bool) -> EmptyEpoch | None:
    """Decide whether to run an empty epoch. `waiting`: uploads or orders to publish wait for an epoch. `held`:
    too much output waits for a sink.

    While `held`, timers wait: their output would wait, too, and without a bound. Uploads and orders do not.
    """
    if held:
        return EmptyEpoch(time_stands=True) if waiting else None
    return EmptyEpoch(time_stands=False) if waiting or timers_due else None
