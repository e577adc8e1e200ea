"""Samples in the text format that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from tidegate.metrics.flink_names import FlinkSample, flink_samples
from tidegate.metrics.metric import Kind, Metric, Sample


class _FlinkSamples(Collector):
    def __init__(self, samples: Iterable[FlinkSample]) -> None:
        self._samples = tuple(samples)

    def collect(self) -> Iterator[Family]:
        by_name: dict[str, list[FlinkSample]] = {}
        for sample in self._samples:
            by_name.setdefault(sample.name, []).append(sample)
        for name, samples in by_name.items():
            # Flink's reporter exports counters as gauges, too.
            family = GaugeMetricFamily(name, samples[0].help)
            for sample in samples:
                family.add_sample(name, dict(sample.labels), sample.value)
            yield family


class _Samples(Collector):
    def __init__(self, job: str, samples: Iterable[Sample]) -> None:
        self._job = job
        self._samples = tuple(samples)

    def collect(self) -> Iterator[Family]:
        by_metric: dict[Metric, list[Sample]] = {}
        for sample in self._samples:
            by_metric.setdefault(sample.metric, []).append(sample)
        for metric, samples in by_metric.items():
            kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
            family = kind(metric.prometheus_name, metric.help, labels=metric.label_names)
            for sample in samples:
                # The first label name is `job`, which samples do not carry.
                labels = [self._job, *(sample.labels[name] for name in metric.label_names[1:])]
                family.add_metric(labels, sample.value * metric.factor)
            yield family


def exposition(job: str, samples: Iterable[Sample], flink_id: str | None = None) -> bytes:
    """Return the samples of one job as Prometheus reads them; with `flink_id`, its id, also under Flink's names."""
    current = tuple(samples)
    # Described automatically, each collector would be read once when it is registered, and again for the answer.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Samples(job, current))
    if flink_id is not None:
        registry.register(_FlinkSamples(flink_samples(job, flink_id, current)))
    return generate_latest(registry)
