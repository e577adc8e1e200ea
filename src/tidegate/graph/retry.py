"""When a call of an async function is tried again, with the strategies of Flink's `AsyncRetryStrategies`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidegate.core.durations import Duration, argument_ms, duration_ms
from tidegate.core.errors import GraphError

IfException = Callable[[Exception], bool] | type[Exception] | tuple[type[Exception], ...]
"""Which exceptions are worth another try: a predicate, a class, or several."""


@dataclass(frozen=True)
class RetryStrategy(ABC):
    """After a try that failed, or whose result is not good enough, there may be another. A row is tried at most
    `max_attempts` times after its first try, as in Flink.
    """

    max_attempts: int
    if_exception: IfException = field(default=Exception, kw_only=True)
    if_result: Callable[[Any], bool] | None = field(default=None, kw_only=True)
    """Whether to try again after a result, given what `async_invoke` returned. None: never."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_attempts, int) or self.max_attempts < 1:
            raise GraphError(f"max_attempts is how often a call is tried again, at least 1; got {self.max_attempts!r}.")
        if not _is_predicate(self.if_exception):
            raise GraphError(
                f"if_exception={self.if_exception!r} is not known. Use a class of exceptions, a tuple of them, or a function."
            )
        if self.if_result is not None and not callable(self.if_result):
            raise GraphError(f"if_result takes a function of a result; got {self.if_result!r}.")

    @abstractmethod
    def delay_ms(self, tries: int) -> int:
        """Return how long to wait after so many `tries`, before the next."""

    def again_after_error(self, error: Exception, tries: int) -> bool:
        if tries > self.max_attempts:
            return False
        if isinstance(self.if_exception, type | tuple):
            return isinstance(error, self.if_exception)
        return bool(self.if_exception(error))

    def again_after_result(self, result: object, tries: int) -> bool:
        return self.if_result is not None and tries <= self.max_attempts and bool(self.if_result(result))


@dataclass(frozen=True)
class FixedDelayRetry(RetryStrategy):
    """Try again after a fixed delay: `FixedDelayRetry(3, "100 ms")`.

    Args:
        max_attempts: How many more tries a row gets after its first one.
        delay: How long to wait after a try has failed.
        if_exception: Which exceptions are worth another try: a class, a tuple of them, or a predicate. By default, all.
        if_result: A predicate: whether to try again after this result of `async_invoke`. By default, never.
    """

    delay: Duration

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive_ms("delay", self.delay, "FixedDelayRetry")

    def delay_ms(self, tries: int) -> int:
        return duration_ms(self.delay)


@dataclass(frozen=True)
class ExponentialBackoffDelayRetry(RetryStrategy):
    """Try again after growing delays: `ExponentialBackoffDelayRetry(5, "100 ms", "5 s")`.

    Args:
        max_attempts: How many more tries a row gets after its first one.
        initial_delay: How long to wait after the first try.
        max_delay: The longest delay.
        multiplier: The factor by which the delay grows with every try.
        if_exception: Which exceptions are worth another try: a class, a tuple of them, or a predicate. By default, all.
        if_result: A predicate: whether to try again after this result of `async_invoke`. By default, never.
    """

    initial_delay: Duration
    max_delay: Duration
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multiplier < 1:
            raise GraphError(f"multiplier={self.multiplier!r} would make the delays shorter. Use at least 1.")
        if self._ms("max_delay") < self._ms("initial_delay"):
            raise GraphError(f"max_delay={self.max_delay!r} is shorter than initial_delay={self.initial_delay!r}.")

    def _ms(self, name: str) -> int:
        return _positive_ms(name, getattr(self, name), "ExponentialBackoffDelayRetry")

    def delay_ms(self, tries: int) -> int:
        delay: float = duration_ms(self.initial_delay)
        most_ms = duration_ms(self.max_delay)
        # In steps, not as a power: with many tries, that would overflow a float.
        for _ in range(tries - 1):
            delay *= self.multiplier
            if delay >= most_ms:
                break
        return round(min(delay, most_ms))


def _positive_ms(name: str, value: Duration, of: str) -> int:
    ms = argument_ms(name, value, of=of)
    if ms < 1:
        raise GraphError(f"{name}={value!r} is not positive. Give at least 1 ms.")
    return ms


def _is_predicate(value: object) -> bool:
    if isinstance(value, type):
        return issubclass(value, Exception)
    if isinstance(value, tuple):
        return bool(value) and all(isinstance(each, type) and issubclass(each, Exception) for each in value)
    return callable(value)
