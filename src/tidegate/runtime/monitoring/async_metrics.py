"""What the calls of async functions took, as metrics of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.metrics.state_access import QUANTILES
from tidegate.runtime.exchange.messages import AsyncCallFigures, TaskAck


class AsyncMetrics:
    """Totals over all epochs, and the latencies of the last epoch that had calls. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self._totals: Mapping[str, AsyncCallFigures] = {}

    def epoch(self, acks: Iterable[TaskAck]) -> None:
        """Add the acknowledgements of an accepted epoch."""
        now: dict[str, AsyncCallFigures] = {}
        for ack in acks:
            for found in ack.metrics.calls:
                now[found.operator] = _sum(now[found.operator], found) if found.operator in now else found
        if now:
            totals = dict(self._totals)
            for operator, found in now.items():
                totals[operator] = _grown(totals[operator], found) if operator in totals else found
            self._totals = totals

    def samples(self) -> Iterator[Sample]:
        for operator, found in self._totals.items():
            labels = {"operator": operator}
            yield Sample(catalog.ASYNC_CALLS, found.calls, labels)
            yield Sample(catalog.ASYNC_RETRIES, found.retries, labels)
            yield Sample(catalog.ASYNC_TIMEOUTS, found.timeouts, labels)
            yield Sample(catalog.ASYNC_FAILURES, found.failures, labels)
            yield Sample(catalog.ASYNC_IN_FLIGHT, found.most_in_flight, labels)
            yield Sample(catalog.ASYNC_TIME, found.total_us / 1000, labels)
            for quantile, us in zip(QUANTILES, (found.median_us, found.p99_us, found.most_us)):
                yield Sample(catalog.ASYNC_LATENCY, us / 1000, {**labels, "quantile": quantile})


def _sum(one: AsyncCallFigures, other: AsyncCallFigures) -> AsyncCallFigures:
    """Two tasks of an epoch together: counts are added, and the rest is that of the slower or busier one."""
    return msgspec.structs.replace(
        _grown(one, other),
        most_in_flight=max(one.most_in_flight, other.most_in_flight),
        median_us=max(one.median_us, other.median_us),
        p99_us=max(one.p99_us, other.p99_us),
        most_us=max(one.most_us, other.most_us),
    )


def _grown(total: AsyncCallFigures, last: AsyncCallFigures) -> AsyncCallFigures:
    """The last epoch, with the counts of all before it."""
    return msgspec.structs.replace(
        last,
        calls=total.calls + last.calls,
        retries=total.retries + last.retries,
        timeouts=total.timeouts + last.timeouts,
        failures=total.failures + last.failures,
        total_us=total.total_us + last.total_us,
    )
