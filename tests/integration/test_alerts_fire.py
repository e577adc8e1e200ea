"""A real Prometheus reads a running job and tells when something is wrong with it."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.integration.test_slow_storage import s3_options
from tests.servers.fixtures import postgres_server
from tests.servers.prometheus import Prometheus
from tests.servers.proxy import Answer, Rule
from tests.waiting import eventually
from tidegate.control.cli import main
from tidegate.metrics import catalog as c

__all__ = ["postgres_server"]

EVALUATION_S = 8
STALL_S = 4
"""Of the test of that alert. The others have the default: on a busy machine, rows may not come for some seconds."""
SCHEMA = "v int, k string"


class Count(tg.KeyedProcessFunction):
    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield row.k, self.n.value()


class Feeder:
    """Writes a file with rows three times a second, until stopped."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stopped, self._number = folder, threading.Event(), 0
        self._write()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        write_batches(self._folder, SCHEMA, [[(n, f"k{n % 4}") for n in range(8)]], self._number)
        self._number += 1

    def _run(self) -> None:
        while not self._stopped.wait(0.3):
            self._write()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


@contextlib.contextmanager
def watched(
    spark, folder: Path, sink, checkpoint: tg.Checkpointing, stall: str = "10 min", **options: str
) -> Iterator[tuple[Prometheus, Feeder]]:
    """A job with rows coming in, and a Prometheus that has the shipped files and the token of the job in a file."""
    feeder = Feeder(folder / "in")
    job = tg.Job("watched", parallelism=2)
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 20).parquet(str(folder / "in"))
    counted = job.source("lines", rows).key_by("k").process("n", Count(), schema="k string, n bigint")
    counted.sink("out", sink)
    run = job.start(spark, checkpoint=checkpoint, options={"local_dir": str(folder / "local"), **options})
    try:
        with tg.serve(run, port=0) as server, shipped(folder, server, stall) as prometheus:
            eventually(lambda: (prometheus.value(c.CHECKPOINTS_COMPLETED.prometheus_name) or 0) >= 2)
            yield prometheus, feeder
    finally:
        feeder.stop()
        run.stop_within(1)
        run.cancel()


@contextlib.contextmanager
def shipped(folder: Path, server, stall: str) -> Iterator[Prometheus]:
    (folder / "token").write_text(server.token)
    given = {
        "--to": str(folder), "--token-file": str(folder / "token"), "--target": f"127.0.0.1:{server.port}",
        "--evaluation-interval": f"{EVALUATION_S} s", "--scrape-interval": "1 s", "--stall": stall,
    }  # fmt: skip
    written = CliRunner().invoke(main, ["dashboards", *(word for pair in given.items() for word in pair)])
    assert written.exit_code == 0, written.output
    prometheus = Prometheus(folder)
    try:
        yield prometheus
    finally:
        prometheus.stop()


def test_a_database_that_stops_raises_an_alert_within_two_evaluations(spark, tmp_path, postgres_server):
    table = f"t{uuid.uuid4().hex}"
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as db:
        db.execute(f"CREATE TABLE {table} (k text, n bigint)")
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "c"), interval="500 ms")
    sink = tg.PostgresSink(postgres_server.conninfo, table)
    with watched(spark, tmp_path, sink, checkpoint) as (prometheus, _):
        assert prometheus.firing() == {}
        with postgres_server.outage():
            # From when the job has noticed: how soon it next commits depends on the machine.
            eventually(lambda: prometheus.value(c.SEND_ERRORS.prometheus_name) == 1)
            took_s = prometheus.await_alert("TidegateTargetRefuses", 2 * EVALUATION_S)
            labels = prometheus.firing()["TidegateTargetRefuses"]
        print(f"fired after {took_s:.1f} s")
        assert (labels["job"], labels["sink"]) == ("watched", "out")
        eventually(lambda: prometheus.firing() == {}, "the alert has ended")


@pytest.mark.slow
def test_storage_that_becomes_read_only_raises_an_alert_within_two_evaluations(spark, tmp_path, s3_server, s3_proxy):
    checkpoint = tg.Checkpointing(
        dir=f"s3://{s3_server.bucket}/{uuid.uuid4().hex}", interval="500 ms", tolerable_failures=1_000
    )
    options = s3_options(s3_server.behind(s3_proxy.port).options())
    with watched(spark, tmp_path, tg.DiscardSink(), checkpoint, **options) as (prometheus, _):
        assert prometheus.firing() == {}
        s3_proxy.script(Rule(Answer(403, applied=False), method="PUT|POST|DELETE", times=None))
        try:
            eventually(lambda: (prometheus.value(c.CHECKPOINTS_FAILED.prometheus_name) or 0) > 0)
            took_s = prometheus.await_alert("TidegateCheckpointsFailing", 2 * EVALUATION_S)
        finally:
            s3_proxy.script()
        print(f"fired after {took_s:.1f} s")


@pytest.mark.slow
def test_a_source_that_stalls_raises_an_alert_within_two_evaluations(spark, tmp_path):
    checkpoint = tg.Checkpointing(dir=str(tmp_path / "c"), interval="500 ms")
    with watched(spark, tmp_path, tg.DiscardSink(), checkpoint, f"{STALL_S} s") as (prometheus, feeder):
        assert prometheus.firing() == {}
        feeder.stop()
        took_s = prometheus.await_alert("TidegateSourceStalled", STALL_S + 2 * EVALUATION_S)
        print(f"fired after {took_s:.1f} s")
        assert prometheus.firing()["TidegateSourceStalled"]["source"] == "lines"
