"""The metrics of a running job, as Prometheus reads them."""

from __future__ import annotations

import time

import httpx
from prometheus_client.parser import text_string_to_metric_families

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.metrics import catalog
from tidegate.metrics.metric import Metric

BATCHES = [[(n, f"k{n % 4}") for n in range(first, first + 5)] for first in range(0, 20, 5)]


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()


def scraped(server) -> dict[str, dict[str, float]]:
    """Prometheus name → the labels besides `job` → value."""
    answer = httpx.get(f"{server.url}/metrics", headers={"Authorization": f"Bearer {server.token}"})
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            assert sample.labels.pop("job") == "measured"
            found.setdefault(sample.name, {})[",".join(sample.labels.values())] = sample.value
    return found


def test_a_scrape_counts_every_row_and_every_checkpoint(spark, tmp_path):
    job = tg.Job("measured", parallelism=2)
    rows = job.source("in", stream(spark, tmp_path / "in", "v int, k string", BATCHES))
    rows.key_by("k").process("n", Count(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    run = job.start(spark, checkpoint=tg.Checkpointing(dir=str(tmp_path / "c"), interval="100 ms"))
    with tg.serve(run, port=0) as server:
        until = time.monotonic() + 90
        while sum(report.rows_in for report in run.reports) < 20 or run.checkpoints.latest_completed is None:
            assert time.monotonic() < until
            time.sleep(0.1)
        found = scraped(server)
    run.cancel()

    def value(metric: Metric, labels: str = "") -> float:
        return found[metric.prometheus_name][labels]

    assert value(catalog.RECORDS_IN, "n") == 20
    assert sum(found[catalog.TASK_RECORDS_IN.prometheus_name].values()) == 20
    assert value(catalog.CHECKPOINTS_COMPLETED) >= 1
    assert value(catalog.STATE, "RUNNING") == 1
    assert set(found[catalog.OUTPUT_WAITING.prometheus_name]) == {"out"}
    assert set(found[catalog.RESIDENT.prometheus_name]) == {"L1-S0", "L1-S1"}
    assert min(found[catalog.RESIDENT.prometheus_name].values()) > 10_000_000
    for task in ("L1-S0", "L1-S1"):
        shares = [value(metric, task) for metric in (catalog.BUSY, catalog.IDLE, catalog.HELD)]
        assert abs(sum(shares) - 1) < 0.01
