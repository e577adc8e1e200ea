"""When the output of an epoch becomes visible, and what a return to the checkpoint repeats, without Spark."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.unit.api.shop import Frame
from tests.unit.runtime.checkpoints.test_output import WAIT_S, Place, Target
from tests.unit.runtime.driver.epoch_kit import epoch_report
from tidegate.connectors.sink import Committable
from tidegate.core.ids import EpochId, Lineage, Slot, Term, Uid
from tidegate.runtime.checkpoints.committers import Committers
from tidegate.runtime.checkpoints.loop import CheckpointLoop
from tidegate.runtime.driver.running_job import Epochs, RunningJob
from tidegate.runtime.driver.stop_request import StopRequest
from tidegate.runtime.epochs.clocks import Clocks
from tidegate.runtime.epochs.reports import EpochReport, EpochReports
from tidegate.runtime.epochs.run_options import RunOptions
from tidegate.runtime.epochs.settings import read_settings
from tidegate.runtime.epochs.trigger import EpochTrigger
from tidegate.runtime.monitoring.job_events import JobEvents
from tidegate.runtime.monitoring.job_metrics import JobMetrics
from tidegate.runtime.monitoring.progress import Progress
from tidegate.runtime.sources.query_directory import Positions

BATCH: Any = object()


@dataclass
class Sink:
    target: Target

    def create_writer(self, context: Any) -> Any: ...

    def create_committer(self, context: Any) -> Any:
        return self.target


class Runner:
    """Runs epochs that each leave one row for the sink."""

    def __init__(self, lineage: Lineage, term: Term) -> None:
        self.lineage, self.epoch, self.versions, self.clocks = lineage, EpochId(term, 1), dict[Any, Any](), Clocks()

    def timers_due(self) -> bool:
        return False

    timers_pending = timers_due

    def close(self, leave: bool = False) -> None: ...

    def discard_anchor(self) -> None: ...

    def run_epoch(self, batch: Any, **more: Any) -> EpochReport:
        self.epoch = self.epoch.next()
        row = Committable(lineage=self.lineage, sink=Uid("out"), epoch=self.epoch, slot=Slot(0), payload=b"row")
        return epoch_report(self.epoch, committables=(row,))


def running(folder: Path, target: Target, loop: CheckpointLoop | None, mode: str | None) -> tuple[Epochs, Runner]:
    job = tg.Job("job", parallelism=1)
    job.source("in", Frame("a int")).sink("out", Sink(target))
    chosen = None if mode is None else tg.Checkpointing(dir=str(folder / "ckpt"), interval="1 h", mode=mode)
    _, durability = read_settings(1, RunOptions(parallelism=1, checkpoint=chosen))
    point = None if loop is None else loop.ownership.restore_point()
    runner: Any = Runner(Lineage("line"), Term(1)) if point is None else Runner(point.lineage, point.term)
    nobody: Any = None
    made = RunningJob(
        spark=nobody, graph=job.graph(), settings=nobody, durability=durability, trigger=EpochTrigger(),
        committers=Committers(job.graph(), None), runner=runner, description=nobody, loop=loop, reports=EpochReports(9),
        metrics=JobMetrics(()), progress=Progress("job", io.StringIO()), stop=StopRequest(),
        events=JobEvents("job"),
    )  # fmt: skip
    return Epochs(made, folder / "query", None), runner


@pytest.mark.feature("D4", "J2", "J6", "N28", "N31")
@pytest.mark.parametrize(("mode", "times"), [("AT_LEAST_ONCE", 2), ("EXACTLY_ONCE", 1)])
def test_a_return_to_the_checkpoint_repeats_output_only_in_at_least_once(tmp_path: Path, mode: str, times: int) -> None:
    """State and positions are part of the next checkpoint in either mode."""
    target = Target()
    with Place(tmp_path).run(out=target) as job:
        epochs, runner = running(tmp_path, target, job.loop, mode)
        epochs.run(None, None)
        assert len(target.published) == times - 1
        job.loop.rewind()
        epochs.run(None, None)
        job.loop.request().result(WAIT_S)
        assert len(target.published) == times
        kept = job.loop.ownership.restore_point().snapshot
        assert kept is not None
        assert kept.epoch == runner.epoch


@pytest.mark.feature("D4")
def test_output_in_at_least_once_is_committed_with_its_epoch_and_not_again_with_its_checkpoint(tmp_path: Path) -> None:
    target = Target()
    with Place(tmp_path).run(out=target) as job:
        epochs, _ = running(tmp_path, target, job.loop, "AT_LEAST_ONCE")
        epochs.run(None, None)
        job.loop.request().result(WAIT_S)
        job.loop.output_committed().result(WAIT_S)
        assert target.calls == [1]
        kept = job.loop.ownership.restore_point().snapshot
        assert kept is not None
        assert kept.committables == ()


@pytest.mark.feature("J6", "N31")
@pytest.mark.parametrize("mode", ["AT_LEAST_ONCE", "EXACTLY_ONCE"])
def test_a_checkpoint_ends_where_its_last_epoch_has_read_to_in_either_mode(tmp_path: Path, mode: str) -> None:
    with Place(tmp_path).run(sources=(Uid("in"),), out=Target()) as job:
        epochs, runner = running(tmp_path, Target(), job.loop, mode)
        for offset in ("10", "20"):
            epochs.run(BATCH, Positions((offset,)))
            job.loop.request(awaits_output=False).result(WAIT_S)
            kept = job.loop.ownership.restore_point().snapshot
            assert kept is not None
            assert (kept.epoch, [position.lines for position in kept.positions]) == (runner.epoch, [(offset,)])


@pytest.mark.feature("J3")
def test_without_checkpoints_output_is_visible_with_its_epoch(tmp_path: Path) -> None:
    target = Target()
    epochs, runner = running(tmp_path, target, None, None)
    epochs.run(None, None)
    assert target.published == [(runner.epoch, Slot(0))]
