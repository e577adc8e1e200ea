"""Functions of a real job hear what became of its checkpoints, and act on it."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest

import tidegate as tg
from tests.integration.inputs import write_batches
from tests.waiting import eventually

SLOTS = (0, 1)


class Publishes(tg.KeyedProcessFunction, tg.CheckpointedFunction, tg.CheckpointListener):
    """Publishes rows when a checkpoint contains them, as a file for each. Notes what it hears."""

    waiting = tg.ListState(tuple[int, int], operator=True)

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def open(self, ctx):
        self.slot = ctx.get_index_of_this_subtask()

    def initialize_state(self, ctx):
        self.new = []

    def process_element(self, row, ctx):
        self.new.append(row.v)
        yield row.k, row.v

    def snapshot_state(self, ctx):
        self.waiting.add_all([(ctx.get_checkpoint_id(), v) for v in self.new])

    def notify_checkpoint_complete(self, checkpoint_id):
        self.hear("complete", checkpoint_id)
        for _, v in (each for each in self.waiting if each[0] <= checkpoint_id):
            (Path(self.folder) / f"row-{v}").touch()
        self.waiting.update([each for each in self.waiting if each[0] > checkpoint_id])

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.hear("aborted", checkpoint_id)

    def hear(self, what: str, checkpoint_id: int) -> None:
        name = f"told-{self.slot}-{what}-{checkpoint_id}-{time.time_ns()}-{uuid.uuid4().hex}"
        (Path(self.folder) / name).touch()


class Case:
    def __init__(self, spark, folder: Path) -> None:
        self.spark, self.folder, self.rows = spark, folder, 0
        self.shown = folder / "shown"
        self.shown.mkdir()

    def feed(self, files: int) -> None:
        for _ in range(files):
            batch = [(v, f"k{v % 8}") for v in range(self.rows, self.rows + 10)]
            write_batches(self.folder / "in", "v int, k string", [batch], self.rows // 10)
            self.rows += 10

    def job(self):
        job = tg.Job("told", parallelism=2)
        frame = self.spark.readStream.schema("v int, k string").option("maxFilesPerTrigger", 1)
        rows = job.source("in", frame.parquet(str(self.folder / "in")))
        named = rows.key_by("k").process("publish", Publishes(self.shown), schema="k string, v int")
        named.sink("out", tg.DiscardSink())
        return job

    def choices(self, **checkpoint):
        place = tg.Checkpointing(dir=str(self.folder / "checkpoints"), **checkpoint)
        return {"checkpoint": place, "options": {"local_dir": str(self.folder / "local")}}

    def published(self) -> set[int]:
        return {int(path.name.split("-")[1]) for path in self.shown.glob("row-*")}

    def heard(self, slot: int, what: str) -> list[int]:
        """Ids in the order in which a slot heard them."""
        names = [path.name.split("-") for path in self.shown.glob(f"told-{slot}-{what}-*")]
        return [int(name[3]) for name in sorted(names, key=lambda name: int(name[4]))]


@pytest.fixture
def case(spark, tmp_path):
    case = Case(spark, tmp_path)
    case.feed(3)
    return case


@pytest.mark.feature("J27")
def test_functions_are_notified_of_all_completed_checkpoints_in_order_and_across_a_restart(spark, case):
    """When a run has ended, the last checkpoint has been told: nothing waits in state."""
    for _ in range(2):
        case.job().run(spark, trigger="available-now", **case.choices(interval="100 ms"))
        assert case.published() == set(range(case.rows))
        case.feed(3)
    for slot in SLOTS:
        heard = case.heard(slot, "complete")
        assert heard == sorted(heard)
        assert len(set(heard)) >= 3
        assert case.heard(slot, "aborted") == []


@pytest.mark.feature("J27")
def test_functions_are_notified_of_an_aborted_checkpoint_and_commit_with_the_next(spark, case):
    in_the_way = case.folder / "checkpoints" / "told" / "shared"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where tasks need a folder")
    choices = case.choices(interval="500 ms", inline_threshold=0, tolerable_failures=1000)
    run = case.job().start(spark, **choices)
    try:
        eventually(lambda: all(case.heard(slot, "aborted") for slot in SLOTS))
        assert case.published() == set()
        in_the_way.unlink()
        eventually(
            lambda: case.published() == set(range(case.rows))
        )  # the source is idle: an epoch without rows tells them
    finally:
        run.stop()
    assert not run.failures
    for slot in SLOTS:
        assert case.heard(slot, "complete")[-1] >= case.heard(slot, "aborted")[0]
