"""What functions measured with `ctx.span`, as metrics of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tidegate.metrics import catalog
from tidegate.metrics.metric import Sample
from tidegate.runtime.driver.run_report import SpanLine
from tidegate.runtime.exchange.messages import TaskAck


class SpanMetrics:
    """Totals over all epochs, and the longest use in the last epoch that had one. One thread adds, any thread reads."""

    def __init__(self) -> None:
        self._found: Mapping[tuple[str, str], tuple[int, int, int]] = {}

    def epoch(self, acks: Iterable[TaskAck]) -> None:
        """Add the acknowledgements of an accepted epoch."""
        now: dict[tuple[str, str], tuple[int, int, int]] = {}
        for ack in acks:
            for operator, spans in ack.spans.items():
                for name, (count, total_us, longest_us) in spans.items():
                    before = now.get((operator, name), (0, 0, 0))
                    now[operator, name] = (before[0] + count, before[1] + total_us, max(before[2], longest_us))
        if now:
            found = dict(self._found)
            for key, (count, total_us, longest_us) in now.items():
                counted, added_us, _ = found.get(key, (0, 0, 0))
                found[key] = (counted + count, added_us + total_us, longest_us)
            self._found = found

    def lines(self) -> tuple[SpanLine, ...]:
        """The most time first."""
        found = sorted(self._found.items(), key=lambda each: -each[1][1])
        return tuple(
            SpanLine(operator=operator, span=name, uses=uses, total_ms=total_us / 1000, longest_ms=longest_us / 1000)
            for (operator, name), (uses, total_us, longest_us) in found
        )

    def samples(self) -> Iterator[Sample]:
        for line in self.lines():
            labels = {"operator": line.operator, "span": line.span}
            yield Sample(catalog.SPANS, line.uses, labels)
            yield Sample(catalog.SPAN_TIME, line.total_ms, labels)
            yield Sample(catalog.SPAN_TIME_MAX, line.longest_ms, labels)
