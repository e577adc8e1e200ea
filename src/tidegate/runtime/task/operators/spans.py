"""Measures what a user function wraps in `with ctx.span("name"):`, added up by name for each operator and attempt."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tidegate.runtime.task.operators.hot_keys import key_text

MOST_NAMES = 100
"""A name made of a value in the row would otherwise fill the acknowledgement."""
OTHERS = "(others)"
"""The name under which further ones are added up."""


class Span:
    """One use of a name. Uses may be nested."""

    __slots__ = ("_name", "_started_ns", "_times")

    def __init__(self, times: SpanTimes, name: str) -> None:
        self._times = times
        self._name = name
        self._started_ns = 0

    def __enter__(self) -> None:
        self._started_ns = time.perf_counter_ns()

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._times.add(self._name, time.perf_counter_ns() - self._started_ns)


class SpanTimes:
    """Count, total and longest time by name. Empty, and of no cost, as long as nobody uses it."""

    __slots__ = ("_found", "_slowest", "key_of")

    def __init__(self) -> None:
        self._found: dict[str, list[int]] = {}
        self._slowest: dict[str, Any] = {}
        self.key_of: Callable[[], Any] | None = None
        """Returns the key that is being processed; None: there is none, or nobody wants to know."""

    def span(self, name: str) -> Span:
        return Span(self, name)

    def add(self, name: str, took_ns: int) -> None:
        entry = self._found.get(name)
        if entry is None:
            if len(self._found) >= MOST_NAMES:
                name = OTHERS
            entry = self._found.setdefault(name, [0, 0, 0])
        entry[0] += 1
        entry[1] += took_ns
        if took_ns > entry[2]:
            entry[2] = took_ns
            if self.key_of is not None:
                self._slowest[name] = self.key_of()

    def totals(self) -> dict[str, tuple[int, int, int]]:
        """Name → count, total and longest time in microseconds."""
        return {name: (count, total // 1000, longest // 1000) for name, (count, total, longest) in self._found.items()}

    def slowest_keys(self) -> dict[str, str]:
        """Name → the key whose use took longest, as text. None for a use without a key, such as one in `open`."""
        return {name: key_text(key) for name, key in self._slowest.items() if key is not None}
