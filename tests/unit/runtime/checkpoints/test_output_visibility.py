"""When the output of an epoch becomes visible in each mode, and what a return to the checkpoint shows again. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidegate as tg
from tests.unit.runtime.driver.epoch_kit import epoch_report
from tidegate.checkpoint.job_log.start import Start
from tidegate.checkpoint.layout import JobLayout
from tidegate.config import Checkpointing, RecoveryConfig, read_options
from tidegate.config.checkpoint_config import CheckpointConfig
from tidegate.config.restart_strategy import NoRestart
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.history import JobHistory
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.checkpoints.ownership import Ownership
from tidegate.runtime.checkpoints.sink_threads import SinkThreads
from tidegate.runtime.driver.running_job import Epochs, RunningJob
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.job_description import JobDescription
from tidegate.runtime.epochs.reports import EpochReport, EpochReports
from tidegate.runtime.epochs.settings import Durability
from tidegate.runtime.exchange.assignment import Archive
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.runtime.monitoring.job_metrics import JobMetrics
from tidegate.runtime.monitoring.progress import Progress
from tidegate.runtime.sources.query_directory import Positions
from tidegate.storage import LocalStorage, RoutedStorage

WAIT_S = 60


class Copying:
    """Runs epochs without tasks: the rows of a batch are its output."""

    def __init__(self, sink: tg.CollectSink, lineage: Lineage, term: Term) -> None:
        self.sink, self.lineage, self.epoch = sink, lineage, EpochId(term, 1)
        self.versions: dict[Any, Any] = {}
        self.clocks = Clocks()

    def run_epoch(self, batch: list[int], **choices: Any) -> EpochReport:
        self.epoch = EpochId(self.epoch.term, self.epoch.number + 1)
        writer = self.sink.create_writer(None)  # type: ignore[arg-type]
        writer.write(pa.record_batch({"n": pa.array(batch)}))
        staged = Committable(
            lineage=self.lineage,
            sink=Uid("out"),
            epoch=self.epoch,
            slot=Slot(0),
            payload=writer.prepare_commit() or b"",
        )
        return epoch_report(self.epoch, rows_in=len(batch), committables=(staged,))


class Running:
    """A job that copies its rows to a sink, in one of the two modes, with checkpoints on request."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.sink = tg.CollectSink()
        job = tg.Job("copies", parallelism=1)
        job.source("in", tg.testing.frame("n bigint")).sink("out", self.sink)
        graph, storage = job.graph(), RoutedStorage(LocalStorage(folder / "checkpoints"))
        chosen = Checkpointing(dir=str(folder / "checkpoints"), interval="1 h", mode=mode)
        config = CheckpointConfig.of(read_options(chosen.to_options()))
        owned = Ownership.claim(JobHistory(storage, JobLayout("copies"), config), Start(), force=True)
        described = JobDescription(
            job="copies", parallelism=1, max_parallelism=128, backend="hashmap", levels=1,
            sources=(graph.sources[0].uid,), operators=(), state_ids={}, spark_version="4.3.0",
        )  # fmt: skip
        committers = Committers(graph, storage)
        self.loop = CheckpointLoop(owned, described, SinkThreads(committers.committers, storage))
        durability = Durability(
            Archive(str(folder)), config, RecoveryConfig.of(read_options()), NoRestart(), fresh=False, force=False
        )
        point = owned.restore_point()
        running = RunningJob(
            spark=None, graph=graph, settings=None, durability=durability, trigger=None, committers=committers,
            runner=Copying(self.sink, point.lineage, point.term), description=described, loop=self.loop,
            reports=EpochReports(10), metrics=JobMetrics(()), progress=Progress("copies"), stop=StopRequest(),
            events=JobEvents("copies"),
        )  # type: ignore[arg-type]  # fmt: skip
        self._epochs = Epochs(running, folder / "query", None)
        self.loop.begin_at(self._epochs.snapshot())

    def read(self, *rows: int) -> list[int]:
        """Run an epoch on these rows, and return all that are visible after it."""
        self._epochs.run(list(rows), Positions((str(rows[-1]),), "{}"))  # type: ignore[arg-type]
        self.loop.output_committed().result(WAIT_S)
        return [row.n for row in self.sink.rows]


@pytest.mark.feature("N30")
@pytest.mark.parametrize(
    ("mode", "at_once", "in_the_end"),
    [("AT_LEAST_ONCE", [1, 2], [1, 2, 1, 2, 3]), ("EXACTLY_ONCE", [], [1, 2, 3])],
)
def test_rows_that_are_read_again_are_shown_again_only_at_least_once(tmp_path, mode, at_once, in_the_end):
    job = Running(tmp_path, mode)
    assert job.read(1, 2) == at_once
    job.loop.rewind()  # a failure: no checkpoint has completed, so the same rows are read again
    job.read(1, 2)
    job.read(3)
    job.loop.request().result(WAIT_S)
    assert [row.n for row in job.sink.rows] == in_the_end
    job.loop.leave()
