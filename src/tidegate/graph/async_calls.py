"""How an operator makes the calls of an async function."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.core.durations import Duration, argument_ms, show_ms
from tidegate.core.errors import GraphError
from tidegate.graph.retry import RetryStrategy


@dataclass(frozen=True, slots=True)
class AsyncCalls:
    """The limits and the order of the calls of one operator."""

    timeout_ms: int
    """For each row, over all its tries and the delays between them."""
    capacity: int
    """Rows whose calls are in progress in one task, at most. With `ordered`, rows whose results wait for an earlier one count."""
    ordered: bool
    """Whether results are emitted in the order of the rows, or as calls finish."""
    retry: RetryStrategy | None = None

    @staticmethod
    def of(uid: str, *, timeout: Duration, capacity: int, ordered: bool, retry: RetryStrategy | None) -> AsyncCalls:
        """Check the user's choice; `uid` says in errors whose it is."""
        timeout_ms = argument_ms(f"async_map {uid!r}: timeout", timeout)
        if timeout_ms < 1:
            raise GraphError(f"async_map {uid!r}: timeout={timeout!r} is not positive. Give at least 1 ms.")
        if not isinstance(capacity, int) or isinstance(capacity, bool) or capacity < 1:
            raise GraphError(
                f"async_map {uid!r}: capacity={capacity!r}; it is how many calls a task makes at a time, at least 1."
            )
        if retry is not None and not isinstance(retry, RetryStrategy):
            raise GraphError(
                f"async_map {uid!r}: retry={retry!r} is not known. Use, for example, FixedDelayRetry(3, '100 ms')."
            )
        return AsyncCalls(timeout_ms, capacity, bool(ordered), retry)

    def __str__(self) -> str:
        order = "ordered" if self.ordered else "unordered"
        more = "" if self.retry is None else f", up to {self.retry.max_attempts} retries"
        return f"{order}, at most {self.capacity} at a time in each task, timeout {show_ms(self.timeout_ms)}{more}"
