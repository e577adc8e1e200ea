"""A keyed count into a table, exactly once through lost replies and a cancelled run, on local Spark."""

from __future__ import annotations

from collections import Counter

import pytest

import tidegate as tg
from tests.contract.lakehouse.targets import DeltaTarget, IcebergTarget
from tests.integration.inputs import stream, write_batches
from tests.integration.test_docs import blocks
from tests.waiting import eventually, while_running
from tidegate.core import faults

WORDS = [["a", "b", "a"], ["b", "c"], ["a", "d", "c"], ["a", "b"], ["e", "a"], ["c", "c", "b"]]
MORE = [["a", "e"], ["f", "b"]]
LOST = 2


class Count(tg.KeyedProcessFunction):
    """How often each key was seen."""

    n = tg.ValueState(int, default=0)

    def process_element(self, row, ctx):
        self.n.update(self.n.value() + 1)
        yield ctx.get_current_key(), self.n.value()


def count_words(source, sink):
    job = tg.Job("words-to-table", parallelism=2)
    words = job.source("words", source)
    words.key_by("w").process("count", Count(), schema="w string, n bigint").sink("out", sink)
    return job


@pytest.fixture
def lost_replies():
    """The table took the first commits, and the committer never heard of it."""
    lost = []

    def lose(point, **context):
        if point.endswith(".3-added") and len(lost) < LOST:
            lost.append(point)
            raise ConnectionError("the reply was lost")

    faults.arm(lose)
    yield lost
    faults.arm(None)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.feature("J1", "J16")
def test_every_row_is_in_the_table_once_though_replies_were_lost_and_the_run_was_cancelled(
    spark, tmp_path, kind, lost_replies
):
    target = DeltaTarget(str(tmp_path / "table"), ("w",)) if kind == "delta" else IcebergTarget(tmp_path / "lake")
    source = stream(spark, tmp_path / "in", "w string", [[(w,) for w in batch] for batch in WORDS])
    kept = tg.Checkpointing(dir=str(tmp_path / "checkpoints"), interval="1 s", incremental=True)
    first = count_words(source, target.sink).start(spark, checkpoint=kept, trigger="500 ms")
    eventually(while_running(first, target.rows), timeout_s=60)
    first.cancel()
    before = target.rows()

    write_batches(tmp_path / "in", "w string", [[(w,) for w in batch] for batch in MORE], first=len(WORDS))
    count_words(source, target.sink).run(spark, checkpoint=kept, trigger="available-now")

    total = Counter(w for batch in WORDS + MORE for w in batch)
    assert target.rows() == sorted((w, n + 1) for w, times in total.items() for n in range(times))
    assert 0 < len(before) < len(target.rows())
    assert len(lost_replies) == LOST


@pytest.mark.parametrize("page", ["delta", "iceberg"])
def test_the_program_of_a_page_runs(spark, page):
    (program,) = blocks(f"docs/connectors/{page}.md")
    exec(program, {"__name__": "page"})
