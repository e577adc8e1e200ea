"""When an empty epoch runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

_SHORTEST_IDLE_S, _LONGEST_IDLE_S = 0.5, 2.0


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


def idle_s(streaming_ms: int | None) -> float:
    """Return how long no batch must have arrived before uploads get an empty epoch, given what Structured Streaming takes between
    two epochs. An empty epoch that begins just before a batch arrives delays it, and every later one if the machine is busy."""
    expected_s = 0.0 if streaming_ms is None else 1.5 * streaming_ms / 1000
    return min(max(_SHORTEST_IDLE_S, expected_s), _LONGEST_IDLE_S)
