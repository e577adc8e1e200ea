"""What functions measured with `ctx.span`, as metrics of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.runtime.exchange.messages import TaskAck
from tidegate.runtime.monitoring.run_report import SpanLine


@dataclass(slots=True)
class _Uses:
    """The uses of one name."""

    count: int = 0
    total_us: int = 0
    longest_us: int = 0
    longest_key: str | None = None

    def add(self, count: int, total_us: int, longest_us: int, key: str | None) -> None:
        self.count += count
        self.total_us += total_us
        if longest_us > self.longest_us:
            self.longest_us = longest_us
            self.longest_key = key


class SpanMetrics:
    """Totals over all epochs, and the longest use: of all, and in the last epoch that had one. One thread adds, any thread
    reads."""

    def __init__(self) -> None:
        self._found: Mapping[tuple[str, str], _Uses] = {}
        self._last_us: Mapping[tuple[str, str], int] = {}

    def epoch(self, acks: Iterable[TaskAck]) -> None:
        """Add the acknowledgements of an accepted epoch."""
        last_us: dict[tuple[str, str], int] = {}
        # Copies: another thread may be reading the last ones.
        found = {place: replace(uses) for place, uses in self._found.items()}
        for ack in acks:
            for operator, spans in ack.spans.items():
                keys = ack.slowest_keys.get(operator, {})
                for name, (count, total_us, longest_us) in spans.items():
                    place = (operator, name)
                    last_us[place] = max(last_us.get(place, 0), longest_us)
                    found.setdefault(place, _Uses()).add(count, total_us, longest_us, keys.get(name))
        if last_us:
            self._last_us = {**self._last_us, **last_us}
            self._found = found

    def lines(self) -> tuple[SpanLine, ...]:
        """The most time first."""
        return tuple(
            SpanLine(
                operator=operator,
                span=name,
                uses=uses.count,
                total_ms=uses.total_us / 1000,
                longest_ms=uses.longest_us / 1000,
                longest_key=uses.longest_key,
            )
            for (operator, name), uses in sorted(self._found.items(), key=lambda each: -each[1].total_us)
        )

    def samples(self) -> Iterator[Sample]:
        for line in self.lines():
            labels = {"operator": line.operator, "span": line.span}
            yield Sample(catalog.SPANS, line.uses, labels)
            yield Sample(catalog.SPAN_TIME, line.total_ms, labels)
            yield Sample(catalog.SPAN_TIME_MAX, self._last_us[line.operator, line.span] / 1000, labels)
