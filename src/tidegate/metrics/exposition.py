"""Samples in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from tidegate.metrics.metric import Kind, Metric, Sample


class _Samples(Collector):
    def __init__(self, job: str, samples: Iterable[Sample]) -> None:
        self._job, self._samples = job, tuple(samples)

    def collect(self) -> Iterator[Family]:
        by_metric: dict[Metric, list[Sample]] = {}
        for sample in self._samples:
            by_metric.setdefault(sample.metric, []).append(sample)
        for metric, samples in by_metric.items():
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(metric.prometheus_name, metric.help, labels=metric.label_names)
            for sample in samples:
                labels = [self._job, *(sample.labels[name] for name in metric.label_names[1:])]
                family.add_metric(labels, sample.value * metric.factor)
            yield family


def exposition(job: str, samples: Iterable[Sample]) -> bytes:
    """Return the samples of one job as Prometheus reads them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(job, samples))
    return generate_latest(registry)
