"""Restart strategies: may a failed job start again, and when. Pure: history, clock and chance are handed in.

`on_failure` is called for every failure and returns the history to keep and what to do. Histories live as long as the
driver; a driver that was itself restarted begins with none, as Flink's does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.core.clock import MonotonicMs
from tidegate.core.durations import show_ms

Uniform = Callable[[float, float], float]
"""A number between two bounds, both included; `random.Random(seed).uniform`."""

FOREVER = 2**31 - 1
"""Flink's "infinite" number of attempts."""


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure ends the job."""


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """So many restarts in the life of the driver, each after the same delay."""

    attempts: int = 1
    delay_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Restarts as long as failures do not come more often than the rate."""

    max_failures: int = 1
    interval_ms: int = 60_000
    delay_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """Each restart waits longer than the one before, until the job has been well for a while."""

    initial_ms: int = 1_000
    max_ms: int = 60_000
    multiplier: float = 1.5
    reset_ms: int = 3_600_000
    jitter: float = 0.1
    attempts: int = FOREVER


RestartStrategy = NoRestart | FixedDelay | FailureRate | ExponentialDelay


@dataclass(frozen=True, slots=True)
class FailureHistory:
    """What a strategy remembers of the failures before. Begin with `History()`."""

    attempts: int = 0
    """Restarts counted: since ever (fixed delay) or since the last reset (exponential delay)."""
    restart_at_ms: MonotonicMs | None = None
    """When the last restart was due."""
    failures_ms: tuple[MonotonicMs, ...] = ()
    """The last failures, oldest first; at most one more than the rate allows."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again at `at_ms`. `merged`: the failure came while a restart was due already, and counts with that one."""

    at_ms: MonotonicMs
    delay_ms: int
    merged: bool = False


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job fails for good."""

    reason: str


def on_failure(
    strategy: RestartStrategy, history: FailureHistory, now_ms: MonotonicMs, uniform: Uniform
) -> tuple[FailureHistory, Restart | GiveUp]:
    """Decide about one failure at `now_ms`, with Flink's algorithm of that name."""
    match strategy:
        case NoRestart():
            return history, GiveUp("No restart strategy is set (restart-strategy.type is none).")
        case FixedDelay():
            return _fixed_delay(strategy, history, now_ms)
        case FailureRate():
            return _failure_rate(strategy, history, now_ms)
        case ExponentialDelay():
            return _exponential_delay(strategy, history, now_ms, uniform)


def _fixed_delay(
    strategy: FixedDelay, history: FailureHistory, now_ms: MonotonicMs
) -> tuple[FailureHistory, Restart | GiveUp]:
    kept = FailureHistory(attempts=history.attempts + 1)
    if kept.attempts > strategy.attempts:
        return kept, GiveUp(f"Restarts are used up: restart-strategy.fixed-delay.attempts allows {strategy.attempts}.")
    return kept, Restart(MonotonicMs(now_ms + strategy.delay_ms), strategy.delay_ms)


def _failure_rate(
    strategy: FailureRate, history: FailureHistory, now_ms: MonotonicMs
) -> tuple[FailureHistory, Restart | GiveUp]:
    # One failure more than the rate allows: if even the oldest of these is within the interval, there were too many.
    kept = FailureHistory(failures_ms=(*history.failures_ms, now_ms)[-(strategy.max_failures + 1) :])
    if len(kept.failures_ms) > strategy.max_failures and now_ms - kept.failures_ms[0] <= strategy.interval_ms:
        return kept, GiveUp(
            f"{len(kept.failures_ms)} failures within {show_ms(strategy.interval_ms)}; "
            f"restart-strategy.failure-rate.max-failures-per-interval allows {strategy.max_failures}."
        )
    return kept, Restart(MonotonicMs(now_ms + strategy.delay_ms), strategy.delay_ms)


def _exponential_delay(
    strategy: ExponentialDelay, history: FailureHistory, now_ms: MonotonicMs, uniform: Uniform
) -> tuple[FailureHistory, Restart | GiveUp]:
    due_ms, attempts = history.restart_at_ms, history.attempts
    if due_ms is not None and now_ms <= due_ms:
        # Several tasks fail of one cause; they must not each lengthen the wait.
        return history, _unless_exhausted(strategy, attempts, Restart(due_ms, due_ms - now_ms, merged=True))
    if due_ms is not None and now_ms - due_ms >= strategy.reset_ms:
        attempts = 0
    delay_ms = _backoff_ms(strategy, attempts, uniform)
    kept = FailureHistory(attempts=attempts + 1, restart_at_ms=MonotonicMs(now_ms + delay_ms))
    return kept, _unless_exhausted(strategy, kept.attempts, Restart(MonotonicMs(now_ms + delay_ms), delay_ms))


def _unless_exhausted(strategy: ExponentialDelay, attempts: int, restart: Restart) -> Restart | GiveUp:
    if attempts <= strategy.attempts:
        return restart
    return GiveUp(
        f"{attempts} failures without {show_ms(strategy.reset_ms)} of rest between them; "
        f"restart-strategy.exponential-delay.attempts-before-reset-backoff allows {strategy.attempts}."
    )


def _backoff_ms(strategy: ExponentialDelay, attempts: int, uniform: Uniform) -> int:
    """The jitter never takes the delay below the initial or above the greatest backoff."""
    exponent = math.log(strategy.initial_ms) + attempts * math.log(strategy.multiplier)
    if exponent > math.log(strategy.max_ms) + 700:
        return strategy.max_ms  # The power would overflow a float (at e**709), and no jitter would make it small again.
    backoff = strategy.initial_ms * strategy.multiplier**attempts
    jittered = backoff + uniform(-strategy.jitter * backoff, strategy.jitter * backoff)
    return max(strategy.initial_ms, int(min(jittered, strategy.max_ms)))
