"""A job on RocksDB within the memory of its executor."""

from __future__ import annotations

import pytest

import tidegate as tg
from tests.integration.inputs import stream
from tidegate.errors import OptionError
from tidegate.metrics import catalog

MB = 1 << 20
PER_EXECUTOR = "state.backend.rocksdb.memory.fixed-per-tm"


class Keep(tg.KeyedProcessFunction):
    last = tg.ValueState(str)

    def process_element(self, row, ctx):
        self.last.update(row.k * 100)
        yield row.k, self.last.value()


def started(spark, folder, **options):
    job = tg.Job("memory", parallelism=2)
    rows = job.source("in", stream(spark, folder / "in", "v int, k string", [[(n, f"k{n}") for n in range(20)]]))
    rows.key_by("k").process("keep", Keep(), schema="k string, text string").sink("out", tg.DiscardSink())
    return job.start(
        spark, trigger="available-now", state_backend="rocksdb", options={"local_dir": str(folder), **options}
    )


@pytest.mark.feature("F44")
def test_tasks_share_the_memory_of_their_executor_and_report_it(spark, tmp_path):
    cores = int(spark.conf.get("spark.master").removeprefix("local[").split(",")[0].rstrip("]"))
    run = started(spark, tmp_path, **{PER_EXECUTOR: f"{32 * cores} mb"})
    run.await_termination()
    found = {(s.metric, s.labels.get("task")): s.value for s in run.samples()}
    for task in ("L1-S0", "L1-S1"):
        # A slot has 32 MB, RocksDB 24 of them, and its cache 5/6 of that.
        assert found[catalog.BLOCK_CACHE_CAPACITY, task] == 20 * MB
        assert 0 < found[catalog.BLOCK_CACHE_USAGE, task] <= 20 * MB
        assert 0 < found[catalog.WRITE_BUFFER_USAGE, task] <= 8 * MB
        assert 0 < found[catalog.WRITE_CACHE_USAGE, task] <= 8 * MB
        assert found[catalog.RESIDENT, task] > 10 * MB


@pytest.mark.feature("F44")
def test_a_budget_that_cannot_work_is_refused_at_the_start(spark, tmp_path):
    with pytest.raises(OptionError, match=r"fixed-per-tm, 12 MB for an executor with \d+ tasks at once"):
        started(spark, tmp_path, **{PER_EXECUTOR: "12 mb"})
