"""What tasks measure of themselves. Travels to them with their assignment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StateTracking:
    """How accesses to keyed state are sampled."""

    # The defaults are Flink's, of `state.latency-track.*` and `state.size-track.*`.
    sample_interval: int = 100
    """One access in this many is measured."""
    history_size: int = 128
    """Measurements of one state and one kind of access that quantiles are made of: the last ones of an epoch."""
    by_state: bool = True
    """Whether states are measured separately. If not, the accesses of one kind to all states of an operator count together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measuring:
    """What is measured in tasks."""

    tasks: bool = True
    """Time, bytes, memory, timers, and the metrics that the state backend was asked for."""
    hot_keys: bool = True
    """The keys with the most rows. Only with `tasks`."""
    latencies: StateTracking | None = None
    """How long accesses to keyed state take. None: not measured."""
    sizes: StateTracking | None = None
    """How large the keys and values of keyed state are. None: not measured."""


MEASURING = Measuring()
"""What is measured unless options say otherwise."""
