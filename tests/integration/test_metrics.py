"""The metrics of a running job, as Prometheus reads them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import tidegate as tg
from tests.integration.inputs import stream
from tests.waiting import eventually
from tidegate.control.cli import main
from tidegate.control.rest.client import Client
from tidegate.core.ids import Uid
from tidegate.metrics import catalog
from tidegate.metrics.catalog import METRICS
from tidegate.metrics.metric import Metric
from tidegate.metrics.native import NATIVE

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
            names = {sample.labels.pop(name) for name in ("job", "job_name") if name in sample.labels}
            assert names == {"measured"}
            found.setdefault(sample.name, {})[",".join(sample.labels.values())] = sample.value
    return found


def test_a_scrape_counts_every_row_and_every_checkpoint(spark, tmp_path):
    job = tg.Job("measured", parallelism=2)
    rows = job.source("in", stream(spark, tmp_path / "in", "v int, k string", BATCHES))
    rows.key_by("k").process("n", Count(), schema="k string, n bigint").sink("out", tg.DiscardSink())
    run = job.start(spark, checkpoint=tg.Checkpointing(dir=str(tmp_path / "c"), interval="100 ms"))
    with tg.serve(run, port=0) as server:
        await_rows(run, 20)
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


def test_a_scrape_has_metrics_of_sources_sinks_storage_and_hosts(spark, tmp_path):
    job = tg.Job("measured", parallelism=2)
    rows = job.source("in", stream(spark, tmp_path / "in", "v int, k string", BATCHES))
    rows.key_by("k").process("n", Count(), schema="k string, n bigint").sink("out", tg.FileSink(str(tmp_path / "out")))
    run = job.start(
        spark, checkpoint=tg.Checkpointing(dir=str(tmp_path / "c"), interval="100 ms"),
        options={"metrics.reporter.prom.naming": "flink"},
    )  # fmt: skip
    with tg.serve(run, port=0) as server:
        await_rows(run, 20)
        eventually(lambda: Uid("out") in run.checkpoints.sinks.up_to)
        found = scraped(server)
        frame = CliRunner().invoke(main, ["top", "measured", "-m", server.url], env={"TIDEGATE_TOKEN": server.token})
        client = Client(server.url, server.token)
        report = client.ask("GET", "/jobs/measured/report")
        (retained,) = client.ask("GET", "/jobs/measured/snapshots")["snapshots"]
    run.cancel()

    def value(metric: Metric, labels: str = "") -> float:
        return found[metric.prometheus_name][labels]

    assert value(catalog.SOURCE_RECORDS, "in") == 20
    assert value(catalog.RECORDS_SEND, "out") == 20
    assert value(catalog.COMMIT_DURATION, "out") >= 0
    assert value(catalog.PUBLISHED_EPOCH, "out") > 0
    assert value(catalog.CHECKPOINT_INTERVAL) == 0.1
    assert value(catalog.LAST_CHECKPOINT_METADATA_SIZE) > 100
    folder = str(tmp_path / "c" / "measured")
    for path in (next(iter(found[catalog.LAST_CHECKPOINT_PATH.prometheus_name])), retained["path"]):
        assert path.startswith(f"{folder}/chk-")
    assert report["checkpoints"]["latest"]["completed"]["external_path"].startswith(f"{folder}/chk-")
    assert value(catalog.STATUS_TIME, "RUNNING") > 0
    assert value(catalog.DOWNTIME) == 0
    assert value(catalog.STORAGE_REQUESTS, "write") > 3
    assert value(catalog.STORAGE_BYTES, "write") > 1_000
    for task in ("L1-S0", "L1-S1"):
        assert 0 < value(catalog.DISK_FREE, task) <= value(catalog.DISK_SIZE, task)
        assert 0 < value(catalog.MEMORY_USED, task) < value(catalog.MEMORY_BUDGET, task)
    assert frame.exit_code == 0, frame.output
    for part in ("measured  RUNNING", "L1-S0", "L1-S1", "EXACTLY_ONCE", "completed, 0 failed"):
        assert part in frame.output, part
    assert "flink_jobmanager_job_numRestarts" in found
    assert report["sinks"][0]["last_commit_ms"] > report["started_ms"]


class Longest(tg.AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return max(len(value), accumulator)

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return max(acc_a, acc_b)


class EveryState(tg.KeyedProcessFunction):
    """Uses every kind of keyed state in every way, and has a timer that does not fire."""

    n = tg.ValueState(int, default=0)
    listed = tg.ListState(int)
    mapped = tg.MapState(str, int)
    ordered = tg.SortedMapState(int, int)
    greatest = tg.ReducingState(int, max)
    longest = tg.AggregatingState(int, Longest())

    def process_element(self, row, ctx):
        n = self.n.value() + 1
        self.n.update(n)
        self.listed.add(n)
        self.listed.add_all([n])
        self.listed.update(list(self.listed.get())[-3:])
        self.mapped.put(row.k, n)
        self.mapped.put_all({"other": n, "more": n})
        self.mapped.remove("other")
        found = [self.mapped.get(row.k), self.mapped.contains("x"), self.mapped.is_empty(), list(self.mapped)]
        found += [list(self.mapped.keys()), list(self.mapped.values()), list(self.mapped.items())]
        self.ordered.put(n, n)
        self.ordered.clear()
        self.greatest.add(n)
        self.longest.add(row.k)
        with ctx.span("read"):
            found += [self.greatest.get(), self.longest.get()]
        ctx.timer_service().register_event_time_timer(4_000_000_000_000)
        yield row.k, len(found)

    def on_timer(self, timestamp, ctx):
        raise AssertionError("all rows are long before it")


ELSEWHERE = {
    catalog.PENDING_RECORDS,
    catalog.STORAGE_COST,
    catalog.LAST_CHECKPOINT_COST,
    catalog.BLOCK_CACHE_HIT_RATIO,
    *(each for each in METRICS if each.prometheus_name.startswith("tidegate_autoscaler_")),
}
"""What only Kafka can tell, what only storage with a price has, what is counted in one epoch out of ten, and what the autoscaler
adds if it is enabled."""


class Pass(tg.AsyncFunction):
    async def async_invoke(self, row):
        return row


@pytest.mark.budget(150)
@pytest.mark.feature("K5")
def test_a_job_with_every_kind_of_state_has_every_metric(spark, tmp_path):
    options = {f"state.backend.rocksdb.metrics.{name}": True for name in NATIVE}
    for track in ("latency", "size"):
        options |= {f"state.{track}-track.keyed-state-enabled": True, f"state.{track}-track.sample-interval": 2}
    start = datetime(2024, 1, 1, tzinfo=UTC)
    batches = [
        [(f"k{n % 4}", start + timedelta(seconds=n)) for n in range(first, first + 20)] for first in range(0, 80, 20)
    ]
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "c"), interval="100 ms", options=options)

    def started():
        job = tg.Job("measured", parallelism=2)
        source = stream(spark, tmp_path / "in", "k string, ts timestamp", batches)
        rows = job.source("in", source, event_time="ts", out_of_orderness="1 s", split="k")
        states = rows.key_by("k").process("states", EveryState(), schema="k string, n int")
        states.async_map("pass", Pass(), timeout="10 s").sink("out", tg.FileSink(str(tmp_path / "out")))
        return job.start(spark, checkpoint=checkpoint, state_backend="rocksdb")

    first = started()
    await_rows(first, 80)
    first.stop()
    (hottest, share), *_ = first.report().hot_keys["states"]
    batches.append([("k1", start + timedelta(seconds=100))] * 20)
    run = started()  # Restores its state, so that the time of that is known as well.
    with tg.serve(run, port=0) as server:
        await_rows(run, 20)
        eventually(lambda: Uid("out") in run.checkpoints.sinks.up_to)
        found = scraped(server)
        report = next(report for report in run.reports if report.rows_in)
    run.cancel()

    assert {each.prometheus_name for each in METRICS if each not in ELSEWHERE} - found.keys() == set()
    assert found[catalog.SPLIT_WATERMARK.prometheus_name].keys() >= {"in,k1"}
    assert found[catalog.PENDING_TIMERS.prometheus_name] == {"states": 4}
    assert found[catalog.HOT_KEY_SHARE.prometheus_name]["states"] > 0.9
    assert (hottest in {"k0", "k1", "k2", "k3"}, round(share, 2)) == (True, 0.25)
    assert {"plan", "run", "source", "level 1", "collect"} <= report.phases.keys()
    parts = sum(report.phases[name] for name in ("source", "level 1", "collect"))
    assert parts == report.phases["run"] > 0


def await_rows(run, count: int) -> None:
    """Wait until an epoch has read the last row, and a checkpoint has completed."""
    eventually(lambda: sum(report.rows_in for report in run.reports) >= count)
    eventually(lambda: run.checkpoints.latest_completed is not None)
