"""The line a person reads while a job runs."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tidegate.checkpoint.coordination.coordinator import Coordinator
from tidegate.checkpoint.coordination.failure import CheckpointFailureReason
from tidegate.checkpoint.coordination.requests import CheckpointRequest, RequestKind
from tidegate.checkpoint.coordination.timing import Cadence, Timing
from tidegate.checkpoint.files.task_part import UploadAck
from tidegate.checkpoint.job_log.entry import CheckpointRef
from tidegate.core.ids import EpochId, Lineage, Slot, TaskId, Term
from tidegate.runtime.epochs.reports import EpochReport
from tidegate.runtime.monitoring.progress import Progress, line
from tidegate.testing.clock import at

EPOCH = EpochId(Term(3), 41)
REPORT = EpochReport(
    epoch=EPOCH, rows_in=6200, tries=1, duration_ms=500, plan_ms=50, job_ms=400, operators={}, hosts={}
)
TASK = TaskId(1, Slot(0))


def coordinator() -> Coordinator:
    made = Coordinator(Timing(Cadence(None)), [TASK])
    made.epoch_finished(EPOCH, True, at(0))
    return made


def complete(made: Coordinator, at_ms: int) -> None:
    made.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=at_ms), at(at_ms))
    (pending,) = made.pending
    made.acknowledge(
        UploadAck(
            checkpoint_id=pending.id,
            task=TASK,
            state=None,
            new_files=(),
            state_size_bytes=80_200_000,
            checkpointed_size_bytes=4_100_000,
            async_ms=300,
        ),
        at(at_ms + 800),
    )
    made.on_completed(
        pending.id,
        CheckpointRef(id=pending.id, term=Term(3), epoch=EPOCH, lineage=Lineage("l"), metadata="m", checksum="c"),
        (),
        at(at_ms + 800),
    )


@pytest.mark.feature("K4")
def test_progress_line_has_epoch_rate_and_newest_checkpoint() -> None:
    made = coordinator()
    assert line("orders", REPORT, made.statistics, 0).endswith("no checkpoint yet")
    complete(made, 1_000)
    shown = line("orders", REPORT, made.statistics, 4_000)
    assert shown == "orders  epoch 3.41  12,400 rows/s  checkpoint 1: 2 s ago, 4.1 MB of 80.2 MB, 800 ms"


def test_a_checkpoint_that_failed_since_is_shown() -> None:
    made = coordinator()
    complete(made, 1_000)
    made.request(CheckpointRequest(kind=RequestKind.MANUAL, at_ms=2_000), at(2_000))
    made.decline(2, CheckpointFailureReason.CHECKPOINT_DECLINED, at(2_500), "disk full")
    assert "checkpoint 2 FAILED: disk full" in line("orders", REPORT, made.statistics, 4_000)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_and_a_file_nothing() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        progress = Progress("orders", stream)
        progress.begin()
        progress.epoch(REPORT, None)
        progress.epoch(replace(REPORT, rows_in=1), None)
        progress.end()
    assert file.getvalue() == ""
    assert terminal.getvalue().count("\n") == 1
    assert "12,400 rows/s  no checkpoints" in terminal.getvalue()
